// The view of new duplicates: pairs as rows, with filters.

import { Problem, get } from "./api.js";
import { reasonOf } from "./connection.js";
import { $, dotted, link, make, say, time } from "./elements.js";
import { count, percent, plural } from "./format.js";
import { UNKNOWN, describe, forget, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";
import { Rows, title } from "./rows.js";
import { isSeen, setSeen } from "./seen.js";
import { evidence } from "./evidence.js";
import { settings } from "./settings.js";

const FILTERS = { q: "", source: "", min: "", since: "", unseen: "" };
const PATIENCE_MS = 700, MOST_PENDING = 200, TYPING_MS = 250;
const SINCE_MS = { "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 };
const AT_ONCE = 50, MOST_REQUESTS = 4, MOST_SOURCES = 500;
const pending = [], sources = new Set();
let filters = { ...FILTERS }, newest = null, timer = 0;
let latest = 0;  // event time, of all documents
let cursor = null, ended = false, searching = null, failed = false, passing = false;

const rows = new Rows({ list: $("pairs"), more: $("more-pairs"), element: rowOf, changed, cut: () => { [cursor, ended] = [null, false]; } });

// group: of whose timeline the comparison is a part; null for the list of duplicates.
export const compareAddress = (a, b, group = null) => route.address("compare", { a: idText(a), b: idText(b), group });

const keyOf = (pair) => `${idText(pair.newer)} ${pair.newer_seq}`;
const isFiltered = () => Object.entries(filters).some(([name, value]) => value && name !== "unseen");

// A pair with what is known of its documents. done(): called as soon as that is all.
function itemOf(pair, done = () => {}) {
  const item = { pair, key: keyOf(pair), newer: UNKNOWN, older: UNKNOWN, due: Date.now() + PATIENCE_MS };
  let lacking = 2;
  for (const side of ["newer", "older"]) {
    describe(pair[side], (found) => {
      item[side] = found;
      latest = Math.max(latest, found.time ?? 0);
      if (found.source !== null && sources.size < MOST_SOURCES) sources.add(String(found.source));
      lacking -= 1;
      if (!lacking) done(item);
    });
  }
  return item;
}

export function add(pair) {
  if (newest === pair.newer_seq) return;  // the first pair of a document has the best match
  newest = pair.newer_seq;
  forget(pair.newer);
  pending.push(itemOf(pair, (item) => {
    item.due = 0;
    if (item.late) offer(item); else flush();
  }));
  if (pending.length > MOST_PENDING) pending.shift();
  flush();
}

// The addresses of the rows above and below that of a comparison; null where there is none. The row counts as seen.
export function beside(a, b) {
  const visible = rows.entries.filter(({ element }) => !element.hidden);
  const at = visible.findIndex(({ item: { pair } }) => idText(pair.older) === a && idText(pair.newer) === b);
  if (at < 0) return [null, null];
  const around = [visible[at - 1], visible[at + 1]].map((row) => (row ? compareAddress(row.item.pair.older, row.item.pair.newer) : null));
  visible[at].item.seen(true);
  return around;
}

// Adds a new pair, if the filters let it through.
function offer(item) {
  item.late = !passes(item);  // perhaps because its headlines are not known yet
  if (!item.late && rows.all.every(({ key }) => key !== item.key)) {
    rows.add(item);
    route.noticed();
  }
}

// Shows pending rows in their order, once their headlines are known: otherwise ids would be seen first, and rows would grow.
function flush() {
  const now = Date.now();
  while (pending.length && pending[0].due <= now) offer(pending.shift());
  clearTimeout(timer);
  if (pending.length) timer = setTimeout(flush, pending[0].due - now);
}

function rowOf(item) {
  const { pair } = item;
  const opener = link(compareAddress(pair.older, pair.newer), String(pair.newer));
  opener.addEventListener("click", () => mark(true));
  const [of, meta] = [make("p", { class: "of" }), make("p", { class: "meta" })];
  const seen = make("button", { type: "button", class: "seen", onclick: () => mark(!isSeen(item.key)) });
  const element = make("li", { "data-id": idText(pair.newer) },
    make("span", { class: "similarity", title: "similarity" }, percent(pair.similarity)), title(opener), meta, of, seen);
  item.seen = mark;
  item.fill = fill;

  function mark(value) {
    setSeen(item.key, value);
    showSeen();
    if (filters.unseen) changed();
  }

  function showSeen() {
    const is = isSeen(item.key);
    element.classList.toggle("is-seen", is);
    seen.setAttribute("aria-pressed", String(is));
    seen.textContent = is ? "✓ Seen" : "Mark as seen";
    seen.setAttribute("aria-label", `${seen.textContent}: ${opener.textContent}`);
  }

  function fill() {
    const { newer, older } = item;
    opener.textContent = nameOf(pair.newer, newer);
    const same = older.headline !== null && older.headline === newer.headline;
    const like = same ? ["one with the same headline"] : [make("bdi", {}, nameOf(pair.older, older))];
    of.replaceChildren("Like ", ...dotted(...like,
      older.source !== null ? make("b", {}, String(older.source)) : null, older.time !== null ? time(older.time) : null));
    meta.replaceChildren(...dotted(newer.source !== null ? make("b", {}, String(newer.source)) : null,
      newer.time !== null ? time(newer.time) : null, evidence(pair) || null));
    showSeen();
  }

  fill();
  for (const side of ["newer", "older"].filter((one) => item[one] === UNKNOWN)) {
    describe(pair[side], (found) => {
      item[side] = found;
      fill();
    });
  }
  return element;
}

const textOf = ({ pair, newer, older }) => [nameOf(pair.newer, newer), nameOf(pair.older, older), newer.source, older.source, pair.newer, pair.older]
  .map(String).join("\n").toLowerCase();

// Whether a new pair has what the filters ask for. The service filters older ones.
function passes(item) {
  const { newer, older, pair } = item, text = textOf(item);
  if (filters.since && (newer.time ?? 0) < latest - (SINCE_MS[filters.since] ?? latest)) return false;
  return filters.q.toLowerCase().split(/\s+/).every((word) => text.includes(word)) && pair.similarity >= Number(filters.min) / 100
    && (!filters.source || [newer.source, older.source].some((source) => String(source ?? "") === filters.source));
}

// Shows which rows there are, and how many.
function changed() {
  let visible = 0;
  for (const { item, element } of rows.entries) {
    element.hidden = filters.unseen !== "" && isSeen(item.key);
    visible += !element.hidden;
  }
  const all = rows.entries.length, filtered = isFiltered();
  $("no-pairs").hidden = all > 0 || filtered || searching !== null;
  $("no-matching").hidden = visible > 0 || failed || !(filtered || all);
  say($("no-matching"), searching !== null ? "Searching." : all ? "You have seen all of these rows." : ended ? "No duplicate that the service has in memory fits these filters." : "No recent duplicate fits these filters.");
  say($("pairs-count"), visible < all ? `${count(visible)} of ${plural(all, "row")}` : all ? `${plural(all, "row")}${filtered ? " found" : ""}` : "");
  $("older-pairs").hidden = ended || !(all || filtered) || (searching !== null && !all);
  $("older-pairs").disabled = searching !== null;
  say($("older-pairs"), searching !== null ? "Searching" : failed ? "Try again" : filtered ? "Search further back" : "Show older rows");
  $("all-pairs").hidden = !(ended && visible);
  const used = Object.values(filters).filter(Boolean).length;
  $("no-filters").hidden = !used;
  say($("show-filters"), used ? `Filters (${used})` : "Filter");
  $("since").hidden = !settings()?.time_field && !filters.since;
  showSources();
}

// Asks the service for older pairs that fit the filters, and shows them at the end.
async function older(wanted = AT_ONCE) {
  const search = searching = {};
  let why = "";
  failed = false;
  changed();
  try {
    const { q, source, min, since } = filters;
    const query = Object.fromEntries(Object.entries({ q, source, since, min_similarity: min && Number(min) / 100 }).filter(([, value]) => value !== ""));
    let found = 0;
    for (let n = 0; n < MOST_REQUESTS && found < wanted && !ended; n += 1) {
      const page = await get("v1/pairs", { ...query, best: true, limit: 4 * AT_ONCE, ...(cursor === null ? {} : { cursor }) });
      if (search !== searching) return;
      const shown = new Set(rows.all.map(({ key }) => key)), added = page.pairs.filter((pair) => !shown.has(keyOf(pair)));
      [cursor, ended, found] = [page.next_cursor, page.next_cursor === null, found + added.length];
      const items = await Promise.all(added.map(described));
      if (search !== searching) return;
      rows.append(items);
    }
  } catch (error) {
    if (search === searching) [failed, why, passing] = [true, reasonOf(error)[1], !(error instanceof Problem) || [429, 503].includes(error.status)];
  }
  if (search !== searching) return;
  searching = null;
  say($("search-problem"), why);
  changed();
}

// Continues a search that failed for a reason that passes, now that the service answers.
export function resume() { if (failed && passing) older(); }

// The item of a pair, with its headlines if they arrive soon.
const described = (pair) => new Promise((done) => {
  const item = itemOf(pair, done);
  setTimeout(done, PATIENCE_MS, item);
});

let typing = 0;

// The rows of other filters.
function search() {
  clearTimeout(typing);
  [cursor, ended, searching, failed] = [null, false, null, false];
  rows.clear();
  older();
}

function showSources() {
  if (filters.source) sources.add(filters.source);
  const names = ["", ...[...sources].sort()], select = $("filter-source");
  select.closest("label").hidden = !sources.size;
  if (names.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name || "all sources")));
  select.value = filters.source;
}

function show(query) {
  const asked = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, query.get(name) ?? ""]));
  const other = ["q", "source", "min", "since"].some((name) => asked[name] !== filters[name]);
  filters = asked;
  $("filter-q").value = filters.q;
  $("filter-min").value = filters.min;
  $("filter-since").value = filters.since;
  $("filter-unseen").checked = filters.unseen === "1";
  showSources();
  $("filter-source").value = filters.source;
  if (other) search(); else changed();
  rows.wake();
}

function filter(values) {
  filters = { ...filters, ...values };
  route.replace(filters);
  if ("unseen" in values) changed(); else search();
}

$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filter-q").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => filter({ q: $("filter-q").value.trim() }), TYPING_MS);
});
$("filter-since").addEventListener("input", () => filter({ since: $("filter-since").value }));
$("older-pairs").addEventListener("click", () => older());
$("filter-source").addEventListener("change", () => filter({ source: $("filter-source").value }));
$("filter-min").addEventListener("input", () => filter({ min: $("filter-min").value }));
$("filter-unseen").addEventListener("change", () => filter({ unseen: $("filter-unseen").checked ? "1" : "" }));
$("pause").addEventListener("click", () => {
  rows.paused = !rows.paused;
  $("pause").setAttribute("aria-pressed", String(rows.paused));
  $("pause").textContent = rows.paused ? "Paused" : "Pause";
});
$("show-filters").addEventListener("click", () => {
  const open = $("filters").classList.toggle("open");
  $("show-filters").setAttribute("aria-expanded", String(open));
  if (open) $("filter-q").focus();
});
$("all-seen").addEventListener("click", () => {
  for (const { item, element } of [...rows.entries]) if (!element.hidden) item.seen(true);
});

route.view("duplicates", "Duplicates", show, { list: true });
