// The stream of events, which reconnects by itself. EventSource would be simpler, but cannot send a token.

import { Problem, ask, token } from "./api.js";
import { parse } from "./json.js";

const AGAIN_MS = 1000, SILENT_MS = 45_000;  // the service sends a comment every 15 s
const LATEST = 100;

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// Calls `each(kind, data)` for every event, `changed(error)` when the connection begins (null) or ends, and
// `reached(seq)` once the events of all documents before `seq` have arrived. Ends only when a token is refused.
export async function listen(kinds, each, changed, reached) {
  let place = null;
  for (;;) {
    const control = new AbortController();
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => control.abort(new Error("nothing was heard from the service for 45 s")), SILENT_MS);
    };
    try {
      heard();
      const headers = place === null ? {} : { "Last-Event-ID": place };
      const answer = await ask(`v1/events?kinds=${kinds}&latest=${LATEST}`, { headers, signal: control.signal });
      changed(null);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) place = take(part, each) ?? place;
        if (place !== null) reached(Number.parseInt(place, 10));
      }
      changed(new Error("the service closed the connection"));
    } catch (error) {
      if (error instanceof Problem && error.status === 401) {
        if (error.token !== token()) continue;  // a new token was entered meanwhile
        changed(error);
        return;
      }
      changed(error);
    } finally {
      clearTimeout(silence);
    }
    await wait(AGAIN_MS);
  }
}

// Passes one event of the stream to `each`, and returns its id.
function take(part, each) {
  let id = null, kind = "message", data = null;
  for (const line of part.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon <= 0) continue;
    const name = line.slice(0, colon), value = line.slice(colon + 2);
    if (name === "id") id = value;
    else if (name === "event") kind = value;
    else if (name === "data") data = parse(value);
  }
  if (data !== null) each(kind, data);
  return id;
}
