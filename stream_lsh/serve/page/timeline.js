// The view of a group: its members as a timeline, from its first source on.

import { get } from "./api.js";
import { growth } from "./charts.js";
import { $, dotted, link, make, problem, quiet, time } from "./elements.js";
import { count, duration, full, percent, plural } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import { compareAddress } from "./duplicates.js";
import * as route from "./route.js";

const AT_ONCE = 100, NAMED = 12;
let asked = null, version = Infinity;

// A group has changed: if it is shown, a button offers its new members. row: of the group.
export function change(row) {
  if (route.isShown("group") && String(row.group) === asked && row.version > version) $("more-members").hidden = false;
}

async function show(query) {
  const number = query.get("n"), [head, body] = [$("group-title"), $("group-body")];
  if (asked !== number) {
    head.textContent = `Group ${number}`;
    body.replaceChildren(quiet("Loading the group."));
  }
  asked = number;
  version = Infinity;
  $("more-members").hidden = true;
  try {
    const group = await get(`v1/groups/${encodeURIComponent(number)}`);
    if (asked === number) draw(group, head, body);
  } catch (error) {
    if (asked === number) body.replaceChildren(problem(error));
  }
}

function draw(group, head, body) {
  const members = inTime(group.members), [first] = members;
  version = group.version;
  describe(group.representative.id, (found) => {
    head.textContent = nameOf(group.representative.id, found);
    if (route.isShown("group")) route.name(`Group: ${head.textContent}`);
  });
  const times = members.map((member) => member.time).filter((one) => one !== null);
  const chart = make("div"), figure = make("figure", { class: "card", hidden: times.length < 2 }, make("figcaption", {}, "Members over time"), chart);
  const list = make("ol", { class: "timeline" });
  const more = make("button", { type: "button", hidden: true });
  let shown = 0;
  const draw = () => {
    const some = members.slice(shown, shown + AT_ONCE);
    shown += some.length;
    list.append(...some.map((member) => entryOf(member, group, first)));
    more.hidden = shown >= members.length;
    more.textContent = `Show ${count(Math.min(AT_ONCE, members.length - shown))} more`;
  };
  more.addEventListener("click", draw);
  draw();
  const listed = group.total_members > members.length ? `; the first ${count(members.length)} are listed` : "";
  body.replaceChildren(
    make("p", { class: "summary" }, ...dotted(plural(group.live_members, "member") + listed,
      group.sources ? plural(group.sources, "source") : null,
      times.length > 1 ? `spread within ${duration(times.at(-1) - times[0])}` : null)),
    ...(named(members) ? [make("p", { class: "quiet" }, named(members))] : []), list, more, figure);
  if (times.length > 1) growth(chart, `Members over time, ${count(times.length)} in total`, times, full);
}

// By event time; without one in the order of arrival, at the end.
const inTime = (members) => [...members].sort((a, b) => (a.time ?? Infinity) - (b.time ?? Infinity) || a.seq - b.seq);

function named(members) {
  const sources = new Map();
  for (const { source } of members) if (source !== null) sources.set(source, (sources.get(source) ?? 0) + 1);
  const most = [...sources].sort((a, b) => b[1] - a[1]);
  const rest = most.length - NAMED;
  return most.slice(0, NAMED).map(([source, n]) => `${source} ${count(n)}`).join(", ") + (rest > 0 ? ` and ${plural(rest, "more source")}` : "");
}

function entryOf(member, group, first) {
  const kept = group.representative.id, representative = idText(member.id) === idText(kept);
  const opener = link(representative ? route.address("document", { id: idText(member.id) }) : compareAddress(kept, member.id, group.group), String(member.id));
  describe(member.id, (found) => { opener.textContent = nameOf(member.id, found); });
  const later = member.time !== null && first.time !== null && member !== first ? `+${duration(member.time - first.time)}` : null;
  const labels = [member === first ? "first" : null, representative ? "representative" : null, member.removed_by === undefined ? null : "deleted or replaced"];
  return make("li", { class: member === first ? "first" : "" },
    make("div", { class: "when" }, ...(member.time === null ? [] : [time(member.time, true)]), ...(later ? [make("span", {}, later)] : [])),
    make("p", { class: "meta" }, ...dotted(member.source === null ? null : make("b", {}, String(member.source)),
      member.similarity === null ? null : percent(member.similarity)),
    ...labels.filter(Boolean).flatMap((label) => [" ", make("span", { class: "tag" }, label)])),
    make("div", { class: "title" }, opener));
}

$("more-members").addEventListener("click", () => show(route.query()));

route.view("group", "Group", show);
