// The view of groups: the table, one request at a time.

import { get } from "./api.js";
import { $, dotted, link, make, say, time } from "./elements.js";
import { count, plural } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";

const LIMIT = 50, SOURCES = 3, WITHIN = "24h";
let order = "largest", wanted = "", asking = false, stale = true, over = false, next = null;

// Groups have changed: the table is asked for again, unless somebody uses it.
export const change = () => { stale = true; };

export async function tick() {
  if (!route.isShown("groups") || !stale) return;
  if (over || $("groups").contains(document.activeElement)) {
    $("more-groups").hidden = false;
    return;
  }
  await load();
}

async function load() {
  if (asking) {
    next = load;
    return;
  }
  [asking, stale, next] = [true, false, null];
  const asked = order;
  try {
    const { groups } = await get("v1/groups", { order: asked, limit: LIMIT, ...(asked === "growing" ? { since: WITHIN } : {}) });
    if (asked === order) draw(groups);
  } catch (error) {
    stale = true;
    $("groups").hidden = true;
    $("no-groups").hidden = false;
    say($("no-groups"), error.message);
  } finally {
    asking = false;
    next?.();
  }
}

function draw(groups) {
  $("more-groups").hidden = true;
  $("groups").hidden = !groups.length;
  $("no-groups").hidden = groups.length > 0;
  say($("no-groups"), order === "growing" ? "No group has grown in the last day." : "No groups yet. A group begins with the first duplicate of a document.");
  $("groups").replaceChildren(...groups.map(rowOf));
  filter();
}

function rowOf(group) {
  const { id } = group.representative, opener = link(route.address("group", { n: group.group }), String(id));
  const named = group.first_sources.slice(0, SOURCES).map(String), more = group.sources - named.length;
  const span = group.first === null ? null : make("span", {}, time(group.first), ...(group.last > group.first ? [" – ", time(group.last)] : []));
  const element = make("li", { "data-id": idText(id), "data-group": group.group },
    make("span", { class: "members" }, make("b", {}, count(group.live_members)), group.live_members === 1 ? " member" : " members"),
    make("div", { class: "title" }, opener),
    make("p", { class: "meta" }, ...dotted(
      named.length ? `${named.join(", ")}${more > 0 ? ` and ${plural(more, "more source")}` : ""}` : null, span,
      group.joined_since === undefined ? null : make("b", {}, `+${count(group.joined_since)} in a day`))));
  const fill = (found) => {
    opener.textContent = nameOf(id, found);
    element.dataset.text = [opener.textContent, id, ...group.first_sources].map(String).join("\n").toLowerCase();
  };
  fill(null);
  describe(id, (found) => { fill(found); filter(); });
  return element;
}

function filter() {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean), all = [...$("groups").children];
  for (const element of all) element.hidden = !words.every((word) => element.dataset.text.includes(word));
  const visible = all.filter((element) => !element.hidden).length;
  say($("groups-count"), words.length ? `${count(visible)} of ${plural(all.length, "group")}` : "");
}

function show(query) {
  const asked = ["largest", "newest", "growing"].includes(query.get("order")) ? query.get("order") : "largest";
  const again = asked !== order || !$("groups").children.length;
  [order, wanted] = [asked, query.get("q") ?? ""];
  $("groups-q").value = wanted;
  for (const one of document.querySelectorAll("[data-order]")) {
    if (one.dataset.order === order) one.setAttribute("aria-current", "true"); else one.removeAttribute("aria-current");
  }
  if (again) load(); else tick();
  filter();
}

$("groups").addEventListener("pointerenter", (event) => { over = event.pointerType === "mouse"; });
$("groups").addEventListener("pointerleave", () => { over = false; });
$("more-groups").addEventListener("click", load);
$("groups-q").addEventListener("input", () => {
  wanted = $("groups-q").value;
  route.replace({ q: wanted });
  filter();
});
$("groups-filter").addEventListener("submit", (event) => event.preventDefault());

route.view("groups", "Groups", show, { list: true });
