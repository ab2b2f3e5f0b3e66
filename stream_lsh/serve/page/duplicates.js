// The view of new duplicates: pairs as rows, with filters.

import { $, dotted, link, make, say, time } from "./elements.js";
import { count, percent, plural } from "./format.js";
import { UNKNOWN, describe, forget, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";
import { Rows, title } from "./rows.js";
import { isSeen, setSeen } from "./seen.js";
import { evidence } from "./evidence.js";

const FILTERS = { q: "", source: "", min: "", unseen: "" };
const PATIENCE_MS = 700, MOST_PENDING = 200;
const pending = [];
let filters = { ...FILTERS }, newest = null, timer = 0;

const rows = new Rows({ list: $("pairs"), more: $("more-pairs"), element: rowOf, changed });

export const compareAddress = (a, b) => route.address("compare", { a: idText(a), b: idText(b) });

export function add(pair) {
  if (newest === pair.newer_seq) return;  // the first pair of a document has the best match
  newest = pair.newer_seq;
  forget(pair.newer);
  const item = { pair, key: `${idText(pair.newer)} ${pair.newer_seq}`, newer: UNKNOWN, older: UNKNOWN, due: Date.now() + PATIENCE_MS };
  let lacking = 2;
  pending.push(item);
  if (pending.length > MOST_PENDING) pending.shift();
  for (const side of ["newer", "older"]) {
    describe(pair[side], (found) => {
      item[side] = found;
      lacking -= 1;
      if (lacking) return;
      item.due = 0;
      flush();
    });
  }
  flush();
}

// Shows pending rows in their order, once their headlines are known: otherwise ids would be seen first, and rows would grow.
function flush() {
  const now = Date.now();
  while (pending.length && pending[0].due <= now) rows.add(pending.shift());
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
    item.text = [opener.textContent, nameOf(pair.older, older), newer.source, older.source, pair.newer, pair.older]
      .map(String).join("\n").toLowerCase();
    showSeen();
  }

  fill();
  for (const side of ["newer", "older"].filter((one) => item[one] === UNKNOWN)) {
    describe(pair[side], (found) => {
      item[side] = found;
      fill();
      soon();
    });
  }
  return element;
}

let due = 0;
const soon = () => { due ||= setTimeout(() => { due = 0; changed(); }, 50); };

// Shows the rows that the filters let through, and says how many.
function changed() {
  const wanted = filters.q.toLowerCase().split(/\s+/).filter(Boolean), least = Number(filters.min) / 100;
  let visible = 0;
  for (const { item, element } of rows.entries) {
    const { newer, older, pair } = item;
    element.hidden = !(wanted.every((word) => item.text.includes(word)) && pair.similarity >= least
      && (!filters.source || [newer.source, older.source].some((source) => String(source ?? "") === filters.source))
      && !(filters.unseen && isSeen(item.key)));
    visible += !element.hidden;
  }
  const all = rows.entries.length, filtered = Object.values(filters).some(Boolean);
  $("no-pairs").hidden = all > 0;
  $("no-matching").hidden = !(all && !visible);
  say($("pairs-count"), filtered ? `${count(visible)} of ${plural(all, "row")}` : all ? plural(all, "row") : "");
  showSources();
}

function showSources() {
  const found = new Set(rows.items.flatMap(({ newer, older }) => [newer.source, older.source]).filter((one) => one !== null).map(String));
  if (filters.source) found.add(filters.source);
  const names = ["", ...[...found].sort()], select = $("filter-source");
  select.closest("label").hidden = !found.size;
  if (names.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name || "all sources")));
  select.value = filters.source;
}

function show(query) {
  for (const name of Object.keys(FILTERS)) filters[name] = query.get(name) ?? "";
  $("filter-q").value = filters.q;
  $("filter-min").value = filters.min;
  $("filter-unseen").checked = filters.unseen === "1";
  showSources();
  $("filter-source").value = filters.source;
  $("filters").classList.toggle("open", Object.values(filters).some(Boolean));
  changed();
  rows.wake();
}

function filter(values) {
  filters = { ...filters, ...values };
  route.replace(filters);
  changed();
}

$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filter-q").addEventListener("input", () => filter({ q: $("filter-q").value }));
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
