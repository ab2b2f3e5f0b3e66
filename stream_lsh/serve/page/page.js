// The page shows what it gets from the API. Texts of documents are inserted as text only, never as HTML.

import { Problem, get, listen, post, useToken } from "./api.js";
import { growth, lines, stacked } from "./charts.js";

const KINDS = ["unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected", "deleted", "outdated"];
const SHOWN = 50, SECONDS = 120, EVERY_MS = 2000;
const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const words = (kind) => kind.replace("_", " ");
const percent = (similarity) => `${(100 * similarity).toFixed(1)} %`;
const moment = (ms) => new Date(ms).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
const AS_JSON = { id_type: "json" };  // ids in a request are JSON, so that numbers and strings stay distinct

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const link = (text, onclick) => make("button", { type: "button", class: "link", onclick }, text);

function facts(place, pairs) {
  place.replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

// -- connection -------------------------------------------------------------------------------------

let connection = { kind: "off", text: "connecting" }, missed = "", behind = 0;

function showState() {
  const late = connection.kind === "live" && behind > 0 ? `, ${number.format(behind)} documents behind` : "";
  const text = connection.text + late + missed;
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").dataset.state = connection.kind;
}

// -- counts by the second --------------------------------------------------------------------------------------

let settings = null, texts = false, reached = 0;

const measure = () => settings?.measure ?? "jaccard";
// Whether documents are vectors, bit vectors or sets. Their text form may be long.
const isItem = () => ["cosine", "euclidean", "hamming", "weighted-jaccard"].includes(measure());
const SHOWN_OF_ITEM = 400;
const shown = (text) => isItem() && text.length > SHOWN_OF_ITEM
  ? `${text.slice(0, SHOWN_OF_ITEM)}… (${number.format(text.length)} characters)` : text;

async function refresh() {
  const stats = await get("v1/stats", { seconds: SECONDS });
  settings = stats.index.settings;
  texts = stats.index.texts;
  const now = Math.floor(Date.parse(stats.service.now) / 1000);
  const at = new Map(stats.seconds.map((second) => [second.at, second]));
  const seconds = Array.from({ length: SECONDS }, (_, i) => at.get(now - SECONDS + i) ?? { kinds: {}, p50_ms: null, p99_ms: null });
  const totals = stats.totals, kinds = totals.kinds;
  const last = seconds.slice(-10);
  const rate = last.reduce((sum, second) => sum + Object.values(second.kinds).reduce((a, b) => a + b, 0), 0) / last.length;
  const judged = kinds.unique + kinds.near_duplicate + kinds.exact_duplicate;
  const latest = seconds.findLast((second) => second.p99_ms !== null);
  const tiles = [
    ["documents in the index", number.format(stats.index.documents)],
    ["documents per second", rate.toFixed(rate < 10 ? 1 : 0)],
    ["duplicates", judged ? percent(1 - kinds.unique / judged) : "-"],
    ["p99 latency", latest ? `${latest.p99_ms} ms` : "-"],
    ["documents since the start", number.format(totals.documents)],
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  const used = KINDS.filter((kind) => kinds[kind] > 0);
  const label = `Documents per second in the last ${SECONDS} seconds; now ${rate.toFixed(1)} per second`;
  stacked($("rate"), label, seconds.map((second) => second.kinds), used);
  $("legend").replaceChildren(...used.map((kind) => make("li", { class: `k-${kind}` }, `${words(kind)}: ${number.format(kinds[kind])}`)));
  const series = { p50: seconds.map((second) => second.p50_ms), p99: seconds.map((second) => second.p99_ms) };
  lines($("latency"), "Latency of answers in milliseconds", series);
  if ($("seconds").closest("details").open) showTable(seconds, used, now);
  const held = [
    ["documents", number.format(stats.index.documents)],
    ...(stats.index.bytes === null ? [] : [["bytes on disk", number.format(stats.index.bytes)]]),
    ["next seq", number.format(stats.index.next_seq)], ...(measure() === "jaccard" ? [] : [["measure", measure()]]),
    settings.max_distance != null ? ["max. distance", settings.max_distance] : ["threshold", settings.threshold],
    ["compared with", settings.compare_with === "kept" ? "kept documents" : "all earlier documents"],
    ["texts stored", texts ? "yes" : "no"], ["window", settings.window ?? "none"],
    ...(stats.index.stream_time > 0 ? [["stream time", moment(stats.index.stream_time)]] : []),
    ["listeners", stats.service.listeners],
  ];
  facts($("index"), held);
  facts($("bounds"), [
    ["verdicts with candidates not compared", number.format(totals.not_compared)],
    ["verdicts with unlisted matches", number.format(totals.truncated)],
    ["requests refused (too many waiting)", number.format(totals.refused_requests)],
    ["rejected", Object.entries(totals.rejected).map(([why, n]) => `${number.format(n)} ${words(why)}`).join(", ") || 0],
    ...(stats.index.jumps ? [["jumps of stream time by more than the window", stats.index.jumps]] : []),
  ]);
  behind = reached && stats.index.next_seq - reached > 2 * Math.max(rate, 5) ? stats.index.next_seq - reached : 0;
  $("groups-section").hidden = !stats.index.groups;
  $("check-section").hidden = !stats.index.checks;
  const wanted = {
    hamming: "Bits in hexadecimal or base64", "weighted-jaccard": "Elements separated by commas, or JSON with their weights",
  }[measure()] ?? `A vector of ${settings.dimensions} numbers separated by commas or spaces, or its base64`;
  if (isItem()) $("text-label").textContent = `${wanted} (nothing is added to the index)`;
  showWithin();
}

function showTable(seconds, used, now) {
  const heads = ["second", ...used.map(words), "p50 ms", "p99 ms"];
  const [head, body] = [$("seconds").tHead, $("seconds").tBodies[0]];
  head.replaceChildren(make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text))));
  const rows = seconds.map((second, i) => [
    new Date(1000 * (now - SECONDS + i)).toLocaleTimeString("en"),
    ...used.map((kind) => second.kinds[kind] ?? 0), second.p50_ms ?? "", second.p99_ms ?? "",
  ]);
  body.replaceChildren(...rows.reverse().map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, String(cell))))));
}

// -- events ----------------------------------------------------------------------------------------------------------

const waiting = { pair: [], alert: [] };
let drawn = true, groupsChanged = false, newest = null;

function take(kind, data) {
  if (kind === "gap") {
    missed = `; missed some events between ${data.from} and ${data.to}, which are no longer stored`;
    showState();
    return;
  }
  if (kind === "pair") {
    if (newest === data.newer_seq) return;  // the first pair of a document has the best match
    newest = data.newer_seq;
    waiting.pair.push(data);
  } else if (kind === "alert") waiting.alert.push(data);
  else if (kind === "group") groupsChanged = true;
  if (drawn) {
    drawn = false;
    requestAnimationFrame(draw);
  }
}

function draw() {
  drawn = true;
  add($("pairs"), $("no-pairs"), waiting.pair, (pair) => [
    link(`${pair.newer} is similar to ${pair.older}`, () => showPair(pair.older, pair.newer)), ` ${percent(pair.similarity)}`, reason(pair),
  ]);
  add($("alerts"), $("no-alerts"), waiting.alert, (alert) => [
    make("strong", {}, alert.rule), ` (${words(alert.kind)}) with `, link(String(alert.id), () => showDocument(alert.id)),
    alert.group ? [", ", link(`group ${alert.group.group}`, () => showGroup(alert.group.group))] : "",
    ` at ${moment(alert.time)}`,
  ].flat());
}

function add(list, none, items, shown) {
  if (!items.length) return;
  none.hidden = true;
  const added = items.splice(0).slice(-SHOWN).reverse().map((item) => make("li", { class: "new" }, ...shown(item)));
  list.prepend(...added);
  while (list.children.length > SHOWN) list.lastChild.remove();
}

// -- groups ----------------------------------------------------------------------------------------------------------

let order = "largest";

async function showGroups() {
  groupsChanged = false;
  try {
    const { groups } = await get("v1/groups", { order, limit: 20 });
    $("groups").hidden = !groups.length;
    $("no-groups").hidden = groups.length > 0;
    $("no-groups").textContent = "No groups yet.";
    $("groups").tBodies[0].replaceChildren(...groups.map((group) => make("tr", {},
      make("td", {}, link(String(group.representative.id), () => showGroup(group.group))),
      make("td", {}, number.format(group.live_members)), make("td", {}, group.joined_since === undefined ? "" : number.format(group.joined_since)),
      make("td", {}, number.format(group.sources)))));
  } catch (error) {
    $("groups").hidden = true;
    $("no-groups").hidden = false;
    $("no-groups").textContent = error.message;
  }
}

for (const button of document.querySelectorAll("[data-order]")) {
  button.addEventListener("click", () => {
    order = button.dataset.order;
    for (const other of document.querySelectorAll("[data-order]")) other.setAttribute("aria-pressed", String(other === button));
    showGroups();
  });
}

// -- dialogs ------------------------------------------------------------------------------------------------------

async function open(title, fill) {
  const [dialog, body] = [$("dialog"), $("dialog-body")];
  $("dialog-title").textContent = title;
  body.replaceChildren(make("p", { class: "quiet" }, "loading"));
  if (!dialog.open) dialog.showModal();
  $("dialog-title").focus();
  try {
    body.replaceChildren(...await fill());
  } catch (error) {
    body.replaceChildren(make("p", { class: "problem" }, error.message));
  }
}

// A text with everything outside the shared spans marked. Spans count characters, not UTF-16 units.
function marked(text, spans) {
  const characters = Array.from(text), parts = [];
  let at = 0;
  const differs = (begin, end) => {
    const said = characters.slice(begin, end).join("");
    const [, before, words_, after] = /^([^\p{L}\p{M}\p{N}]*)(.*?)([^\p{L}\p{M}\p{N}]*)$/su.exec(said);
    parts.push(before, ...(words_ ? [make("mark", {}, words_)] : []), after);
  };
  for (const [begin, end] of spans) {
    differs(at, begin);
    parts.push(characters.slice(begin, end).join(""));
    at = end;
  }
  differs(at, characters.length);
  return make("div", { class: "text", tabindex: "0", role: "group", "aria-label": "text" }, ...parts);
}

// The evidence of a match besides the similarity. text: of the newer document, if available.
function reason(match, text) {
  if (match.terms?.length) return `, by ${match.terms.join(", ")}`;
  const [longest] = match.passages ?? [];
  if (!longest) return "";
  return `, ${number.format(longest.words)} consecutive words${text === undefined ? "" : `: ${quoted(text, longest.newer)}`}`;
}

const quoted = (text, [begin, end]) => {
  const said = Array.from(text).slice(begin, Math.min(end, begin + SHOWN_OF_ITEM)).join("");
  return `“${said}${end - begin > SHOWN_OF_ITEM ? "…" : ""}”`;
};

function described(found) {
  const of = found.duplicate_of === null ? "" : ` of ${found.duplicate_of}`;
  const group = found.group === null ? "" : `, group ${found.group}`;
  const seq = found.seq === null ? "" : `, seq ${found.seq}`;  // unknown in a pipeline if the first verdict is no longer stored
  return `${found.kind === null ? "no verdict yet" : words(found.kind)}${of}${group}${seq}, ${found.state}`;
}

function showPair(a, b) {
  open(`${b} compared with ${a}`, async () => {
    const found = await get("v1/compare", { a: JSON.stringify(a), b: JSON.stringify(b), ...AS_JSON });
    const side = (one) => make("div", {}, make("h3", {}, String(one.id)), make("p", { class: "quiet" }, described(one)),
      found.shared === null ? make("div", { class: "text" }, shown(one.text)) : marked(one.text, one.spans),
      ...(one.cut ? [make("p", { class: "quiet" }, "only the beginning of the text is compared here")] : []));
    return [
      make("p", {}, `${found.match ? "A match" : "No match"}: ${found.why}.`, ...(found.shared === null ? [] : [
        ` They share ${found.shared} of ${found.a.shingles} and ${found.b.shingles} shingles. Differences are `,
        make("mark", {}, "highlighted"), "."])),
      ...(found.terms?.length ? [make("p", {}, `Shared terms with the most weight: ${found.terms.join(", ")}.`)] : []),
      ...(found.passages?.length ? [make("ol", { class: "list", "aria-label": "Shared passages" },
        ...found.passages.map((passage) => make("li", {}, `${number.format(passage.words)} words: ${quoted(found.a.text, passage.a)}`)))] : []),
      make("div", { class: "sides" }, side(found.a), side(found.b)),
    ];
  });
}

function showDocument(id) {
  open(String(id), async () => {
    const found = await get(`v1/documents/${encodeURIComponent(JSON.stringify(id))}`, { text: texts, ...AS_JSON });
    return [make("p", { class: "quiet" }, described(found)), make("div", { class: "text" }, shown(found.text ?? ""))];
  });
}

function showGroup(number_) {
  open(`Group ${number_}`, async () => {
    const group = await get(`v1/groups/${number_}`);
    const kept = group.representative.id, times = group.members.map((m) => m.time).filter((t) => t !== null).sort((a, b) => a - b);
    const chart = make("div");
    if (times.length > 1) growth(chart, `Members over time, ${times.length} in total`, times, moment);
    const sources = new Map();
    for (const member of group.members) {
      const source = member.source ?? "unknown";
      sources.set(source, (sources.get(source) ?? 0) + 1);
    }
    const named = [...sources].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([source, n]) => `${source} ${n}`).join(", ");
    const heads = ["document", "similarity", "source", "time"];
    const rows = group.members.map((member) => make("tr", {},
      make("td", {}, member.id === kept ? link(`${member.id} (representative)`, () => showDocument(member.id))
        : link(String(member.id), () => showPair(kept, member.id))),
      make("td", {}, member.similarity === null ? "" : percent(member.similarity)),
      make("td", {}, String(member.source ?? "")), make("td", {}, member.time === null ? "" : moment(member.time))));
    return [
      make("p", {}, `${number.format(group.live_members)} members, ${number.format(group.sources)} sources${named ? `: ${named}` : ""}`),
      chart,
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Members" }, make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows))),
    ];
  });
}

// -- check -----------------------------------------------------------------------------------------------

function showWithin() {
  const fields = settings.match_within ?? [];
  if ($("within").children.length === fields.length) return;
  $("within").replaceChildren(...fields.map((name) => {
    const input = make("input", { "data-field": name });
    return make("label", {}, `${name} (only documents with the same value match)`, input);
  }));
}

function put(object, path, value) {
  const names = path.split("."), last = names.pop();
  for (const name of names) object = object[name] ??= {};
  object[last] = value;
}

const parts = (text) => text.split(/[\n,]/).map((part) => part.trim()).filter(Boolean);

// A vector as numbers, a set as JSON or parts. Anything else is sent as text, and the service reports what is wrong.
function item(text) {
  if (measure() === "weighted-jaccard") {
    try { return /^[{[]/.test(text) ? JSON.parse(text) : parts(text); } catch { return parts(text); }
  }
  const numbers = text.replace(/^\[|\]$/g, "").split(/[\s,]+/).filter(Boolean).map(Number);
  return measure() !== "hamming" && numbers.length && numbers.every(Number.isFinite) ? numbers : text;
}

$("check").addEventListener("submit", async (event) => {
  event.preventDefault();
  const wanted = {}, text = $("text").value;
  try {
    if (!settings) await refresh();
    put(wanted, settings.id_field, `page-${Date.now()}-${Math.random().toString(36).slice(2)}`);
    if (isItem()) put(wanted, settings.vector_field ?? settings.bits_field ?? settings.set_field, item(text.trim()));
    else if (settings.set_field) put(wanted, settings.set_field, parts(text));
    else for (const [i, field] of settings.text_field.entries()) put(wanted, field, i ? "" : text);
    if (settings.time_field) put(wanted, settings.time_field, Date.now());
    for (const input of document.querySelectorAll("[data-field]")) put(wanted, input.dataset.field, input.value || null);
    const { kind, matches } = await post("v1/check", wanted);
    $("found").replaceChildren(
      make("p", {}, matches.length ? `Verdict: ${words(kind)}. Similar documents:` : "No similar document in the index."),
      make("ol", { class: "list" }, ...matches.map((match) =>
        make("li", {}, link(String(match.id), () => showDocument(match.id)), ` ${percent(match.similarity)}`, reason(match, text)))));
  } catch (error) {
    $("found").replaceChildren(make("p", { class: "problem" }, error.message));
  }
});

// -- updates ---------------------------------------------------------------------------------

let listening = false;

function begin() {
  if (listening) return;
  listening = true;
  listen("pair,group,alert", take, (kind, text) => {
    connection = { kind, text };
    if (kind === "locked") listening = false;
    showState();
  }, (place) => { reached = Math.max(reached, place); });
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("token").value);
  $("token").value = "";
  $("login").hidden = true;
  begin();
  tick();
});

async function tick() {
  try {
    await refresh();
    if (groupsChanged || !$("groups").tBodies[0].children.length) await showGroups();
  } catch (error) {
    if (error instanceof Problem && [401, 403].includes(error.status)) $("login").hidden = false;
  }
  showState();
}

begin();
tick();
setInterval(tick, EVERY_MS);
