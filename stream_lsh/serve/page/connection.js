// Whether the page is live, and why not: one word and a sentence.

import { Problem } from "./api.js";
import { $, say } from "./elements.js";
import { count, duration, second } from "./format.js";

const OLD_MS = 6000;  // statistics arrive every two seconds
const state = { stream: { since: Date.now(), error: null, live: false }, figures: { at: 0, error: null }, behind: 0, missed: 0 };

export function streamChanged(error) {
  if (!state.stream.live && error !== null && state.stream.error !== null) state.stream.error = error;
  else state.stream = { since: Date.now(), error, live: error === null };
  show();
}

// error: why there are no statistics now, null if they have arrived.
export function figuresChanged(error) {
  state.figures = error === null ? { at: Date.now(), error: null } : { ...state.figures, error };
  show();
}

export function behind(documents) { state.behind = documents; }
export function missed() { state.missed += 1; }
export const gaps = () => state.missed;

// The word and the reason of an error.
export function reasonOf(error) {
  if (!(error instanceof Problem)) {
    return error?.name === "TimeoutError" ? ["no answer", "The service does not answer in time."]
      : ["gone", "The service cannot be reached. It may have stopped, or the network is down."];
  }
  const detail = `${error.message}.`.replace(/\.\.$/, ".");
  if (error.status === 401) return ["locked", "The service wants a token."];
  if (error.status === 403) return ["refused", `The service refuses this page: ${detail}`];
  if (error.status === 429) return ["overloaded", `The service is overloaded: ${detail}`];
  if (error.health === "starting" || /starting/.test(error.message)) return ["starting", `The service is starting: ${detail}`];
  if (error.health === "stopping" || /stopping/.test(error.message)) return ["stopping", "The service is stopping."];
  return [error.status === 503 ? "not ready" : "error", `The service answers ${error.status}: ${detail}`];
}

export function show(now = Date.now()) {
  const { stream, figures } = state, error = stream.error ?? figures.error;
  const old = figures.at > 0 && now - figures.at > OLD_MS;
  document.body.classList.toggle("stale", old);
  $("as-of").hidden = !old;
  if (old) say($("as-of"), `These numbers are old: they are of ${second(figures.at)}, ${duration(now - figures.at)} ago.`);
  let [word, why] = stream.live || error ? ["live", ""] : ["connecting", ""];
  if (error) [word, why] = reasonOf(error);
  else if (stream.live && old) [word, why] = reasonOf(figures.error ?? { name: "TimeoutError" });
  else if (stream.live && state.behind > 0) [word, why] = ["behind", `This page is ${count(state.behind)} documents behind the service.`];
  else if (stream.live && state.missed) why = "Some events are missing: they left the memory of the service before this page got them.";
  $("state").dataset.state = word;
  say($("state"), word);
  const since = error && stream.error && now - stream.since > 2000 ? ` No connection for ${duration(now - stream.since)}; this page tries again every second.` : "";
  $("why").hidden = !why;
  $("why").dataset.state = word;
  say($("why-text"), why);
  say($("why-since"), word === "locked" ? "" : since);
}
