// The view of groups: the table, one request at a time.

import { get } from "./api.js";
import { $, dotted, link, make, say, time } from "./elements.js";
import { count, plural } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";
import { membersOf, sourcesOf } from "./rows.js";
import { settings } from "./settings.js";

const LIMIT = 50, MOST = 1000, WITHIN = "24h", MOST_REQUESTS = 4, TYPING_MS = 250;
const FILTERS = ["order", "q", "source", "min"];
let filters = { order: "largest", q: "", source: "", min: "" }, asked = null, stale = true, over = false, cursor = null, shown = 0;

const isFiltered = () => Boolean(filters.q || filters.source || filters.min);

// Groups have changed: the table is asked for again, unless somebody uses it or it is the result of a search.
export const change = () => { stale = true; };

export async function tick() {
  if (!route.isShown("groups") || !stale || asked) return;
  if (over || isFiltered() || $("groups").contains(document.activeElement)) {
    $("more-groups").hidden = false;
    return;
  }
  await load();
}

// The table from its beginning, as long as it was; or the next rows of it.
async function load(further = false) {
  const now = asked = {}, { order, q, source, min } = filters;
  if (!further) stale = false;
  mention(false);
  try {
    const query = { order, q, source, since: order === "growing" ? WITHIN : "", min_similarity: min && Number(min) / 100 };
    const given = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ""));
    const wanted = further ? LIMIT : Math.min(MOST, Math.max(LIMIT, shown));
    let next = further ? cursor : null, found = 0;
    for (let n = 0; n < MOST_REQUESTS && found < wanted && (n === 0 || next); n += 1) {
      const page = await get("v1/groups", { ...given, limit: wanted - found, ...(next ? { cursor: next } : {}) });
      if (now !== asked) return;
      [cursor, next, found] = [page.next_cursor, page.next_cursor, found + page.groups.length];
      draw(page.groups, further || n > 0);
    }
  } catch (error) {
    if (now !== asked) return;
    stale = true;
    $("groups").hidden = !further;
    $("no-groups").hidden = further;
    say($("no-groups"), error.message);
  }
  asked = null;
  mention(true);
}

function draw(groups, further) {
  $("more-groups").hidden = true;
  const known = new Set(further ? [...$("groups").children].map((one) => one.dataset.group) : []);
  const added = groups.filter(({ group }) => !known.has(String(group))).map(rowOf);
  if (further) $("groups").append(...added); else $("groups").replaceChildren(...added);
  shown = $("groups").children.length;
  $("groups").hidden = !shown;
  $("no-groups").hidden = shown > 0;
  say($("no-groups"), isFiltered() ? (cursor ? "No group of those that were searched fits these filters." : "No group fits these filters.")
    : filters.order === "growing" ? "No group has grown in the last day." : "No groups yet. A group begins with the first duplicate of a document.");
}

// Says how many groups there are, and whether there are more.
function mention(done) {
  const searching = !done && isFiltered();
  say($("groups-count"), searching ? "Searching." : shown ? `${plural(shown, "group")}${isFiltered() ? " found" : cursor ? " shown" : ""}` : "");
  $("older-groups").hidden = !cursor;
  $("older-groups").disabled = !done;
  say($("older-groups"), isFiltered() ? "Search more groups" : "Show more groups");
}

function rowOf(group) {
  const { id } = group.representative, opener = link(route.address("group", { n: group.group }), String(id));
  const span = group.first === null ? null : make("span", {}, time(group.first), ...(group.last > group.first ? [" – ", time(group.last)] : []));
  const element = make("li", { "data-id": idText(id), "data-group": group.group },
    make("span", { class: "members" }, ...membersOf(group.live_members)),
    make("div", { class: "title" }, opener),
    make("p", { class: "meta" }, ...dotted(
      sourcesOf(group), span,
      group.joined_since === undefined ? null : make("b", {}, `+${count(group.joined_since)} in a day`))));
  describe(id, (found) => { opener.textContent = nameOf(id, found); });
  return element;
}

function show(query) {
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  if (!["largest", "newest", "growing"].includes(wanted.order)) wanted.order = "largest";
  const again = FILTERS.some((name) => wanted[name] !== filters[name]) || !shown;
  filters = wanted;
  for (const name of ["q", "source", "min"]) {  // a space at the end is left for the next word
    if ($(`groups-${name}`).value.trim() !== filters[name]) $(`groups-${name}`).value = filters[name];
  }
  for (const one of document.querySelectorAll("[data-order]")) {
    one.href = route.address("groups", { ...filters, order: one.dataset.order });
    if (one.dataset.order === filters.order) one.setAttribute("aria-current", "true"); else one.removeAttribute("aria-current");
  }
  $("groups-source").closest("label").hidden = !settings()?.source_field && !filters.source;
  if (again) {
    [shown, cursor] = [0, null];
    load();
  } else tick();
}

let typing = 0;
const filter = () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    route.replace({ q: $("groups-q").value.trim(), source: $("groups-source").value.trim(), min: $("groups-min").value });
    if (route.isShown("groups")) show(route.query());
  }, TYPING_MS);
};

$("groups").addEventListener("pointerenter", (event) => { over = event.pointerType === "mouse"; });
$("groups").addEventListener("pointerleave", () => { over = false; });
$("more-groups").addEventListener("click", () => load());
$("older-groups").addEventListener("click", () => load(true));
for (const name of ["groups-q", "groups-source", "groups-min"]) $(name).addEventListener("input", filter);
$("groups-filter").addEventListener("submit", (event) => event.preventDefault());

route.view("groups", "Groups", show, { list: true });
