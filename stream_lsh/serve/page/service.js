// The view of the service: figures, limits, charts, the index. Asks for statistics, one request at a time.

import { get } from "./api.js";
import { lines, stacked } from "./charts.js";
import { fit } from "./check.js";
import { behind, figuresChanged, gaps } from "./connection.js";
import { $, facts, make, say } from "./elements.js";
import { count, full, percent, plural, second as clock, words } from "./format.js";
import * as route from "./route.js";
import { learn, measure, settings } from "./settings.js";

const KINDS = ["unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected", "deleted", "outdated"];
const SECONDS = 120, RATE_SECONDS = 10, MINUTE = 60;
let asking = false, reached = 0, latest = null;

export const arrived = (seq) => { reached = Math.max(reached, seq); };

export async function refresh() {
  if (asking) return;
  asking = true;
  try {
    latest = await get("v1/stats", { seconds: SECONDS });
    learn(latest.index);
    fit(latest.index.checks);
    $("nav-groups").hidden = !latest.index.groups;
    figuresChanged(null);
    draw();
  } catch (error) {
    figuresChanged(error);
    throw error;
  } finally {
    asking = false;
  }
}

// The latest seconds, also those without any work, the current one last.
function secondsOf(stats) {
  const now = Math.floor(Date.parse(stats.service.now) / 1000), at = new Map(stats.seconds.map((second) => [second.at, second]));
  return Array.from({ length: SECONDS }, (_, i) => now - SECONDS + 1 + i)
    .map((time) => at.get(time) ?? { at: time, kinds: {}, p50_ms: null, p99_ms: null, max_ms: null });
}

const milliseconds = (value) => (value === null ? "–" : value < 1000 ? `${value < 10 ? value.toFixed(1) : Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);
const largest = (seconds, name) => seconds.reduce((most, second) => (second[name] === null ? most : Math.max(most ?? 0, second[name])), null);

function draw() {
  const stats = latest, { totals, index, service } = stats, { kinds } = totals;
  const seconds = secondsOf(stats), whole = seconds.slice(-1 - RATE_SECONDS, -1), minute = seconds.slice(-MINUTE);
  const rate = whole.reduce((sum, second) => sum + Object.values(second.kinds).reduce((a, b) => a + b, 0), 0) / RATE_SECONDS;
  const judged = kinds.unique + kinds.near_duplicate + kinds.exact_duplicate;
  behind(reached && index.next_seq - reached > 2 * Math.max(rate, 5) ? index.next_seq - reached : 0);
  say($("rate-now"), `${rate.toFixed(rate < 10 ? 1 : 0)} documents/s`);
  const rows = limitsOf(stats);
  if (!route.isShown("service")) return;
  tiles([
    ["documents in the index", count(index.documents)],
    ["documents per second", rate.toFixed(rate < 10 ? 1 : 0), `mean of ${RATE_SECONDS} s`],
    ["duplicates", judged ? percent(1 - kinds.unique / judged) : "–", "since the start"],
    ["slowest answer", milliseconds(largest(minute, "max_ms")), "in the last minute"],
    ["p99", milliseconds(largest(minute, "p99_ms")), "in the worst second of it"],
    ["waiting documents", count(service.waiting), `refused from ${count(service.limits.waiting_documents)} on`],
  ]);
  limits(rows);
  charts(seconds, kinds, rate);
  facts($("index"), held(stats));
}

function tiles(values) {
  $("tiles").replaceChildren(...values.map(([name, value, note = ""]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, note)))));
}

// -- limits: how often each was met, and when that was last noticed ---------------------------------------------------

const noticed = new Map();

function limitsOf({ totals, index }) {
  const rejected = Object.entries(totals.rejected).map(([why, n]) => `${count(n)} ${words(why)}`).join(", ");
  const rows = [
    ["Requests refused", totals.refused_requests, "too many documents waited"],
    ["Documents rejected", Object.values(totals.rejected).reduce((a, b) => a + b, 0), rejected || "invalid, or with an id that is in use"],
    ["Candidates not compared", totals.not_compared, "verdicts whose search met its limit"],
    ["Matches not listed", totals.truncated, "verdicts with more matches than max_matches"],
    ["Jumps of stream time", index.jumps, "longer than the window"],
    ["Events missed by this page", gaps(), "they left the memory of the service"],
  ];
  for (const [name, value] of rows) {
    const known = noticed.get(name);
    noticed.set(name, { value, at: known && value > known.value ? Date.now() : known?.at ?? null });
  }
  return rows;
}

function limits(rows) {
  const met = rows.filter(([, value]) => value > 0);
  say($("limits-none"), met.length ? "" : "No limit was met since the service started.");
  $("limits").replaceChildren(...met.map(([name, value, note]) => make("li", {},
    make("b", {}, count(value)), make("span", { class: "title" }, name),
    make("p", { class: "meta" }, `${note}${noticed.get(name).at ? `; last at ${clock(noticed.get(name).at)}` : "; before this page was opened"}`))));
}

// -- charts -------------------------------------------------------------------------------------------------------------

function charts(seconds, kinds, rate) {
  const used = KINDS.filter((kind) => kinds[kind] > 0);
  stacked($("rate"), `Documents per second in the last ${SECONDS} seconds; now ${rate.toFixed(1)} per second`, seconds.map((second) => second.kinds), used);
  $("legend").replaceChildren(...used.map((kind) => make("li", { class: `k-${kind}` }, make("span", {}, `${words(kind)}: ${count(kinds[kind])}`))));
  const column = (name) => seconds.map((second) => second[name]);
  lines($("latency"), `Latency of answers in the last ${SECONDS} seconds; the slowest took ${milliseconds(largest(seconds, "max_ms"))}`,
    { max: column("max_ms"), p99: column("p99_ms"), p50: column("p50_ms") });
  if ($("seconds").closest("details").open) table(seconds, used);
}

function table(seconds, used) {
  const heads = ["second", ...used.map(words), "p50 ms", "p99 ms", "slowest ms"];
  const rows = seconds.map((second) => [
    clock(1000 * second.at), ...used.map((kind) => second.kinds[kind] ?? 0), second.p50_ms ?? "", second.p99_ms ?? "", second.max_ms ?? "",
  ]);
  $("seconds").tHead.replaceChildren(make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text))));
  $("seconds").tBodies[0].replaceChildren(...rows.reverse().map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, String(cell))))));
}

function held({ index, service, totals }) {
  const known = settings();
  return [
    ["documents", count(index.documents)], ["next seq", count(index.next_seq)],
    ...(index.bytes === null ? [] : [["bytes on disk", count(index.bytes)]]),
    ["measure", measure()],
    known.max_distance != null ? ["max. distance", known.max_distance] : ["threshold", known.threshold],
    ["compared with", known.compare_with === "kept" ? "kept documents" : "all earlier documents"],
    ["texts stored", index.texts ? "yes" : "no"], ["window", known.window ?? "none"],
    ...(index.stream_time > 0 ? [["stream time", full(index.stream_time)]] : []),
    ["started", full(Date.parse(service.started))], ["documents since then", count(totals.documents)],
    ["listeners", plural(service.listeners, "page or program", "pages and programs")],
  ];
}

$("seconds").closest("details").addEventListener("toggle", () => { if (latest) draw(); });
addEventListener("resize", () => { if (latest) draw(); });
route.view("service", "Service", () => { if (latest) draw(); });
