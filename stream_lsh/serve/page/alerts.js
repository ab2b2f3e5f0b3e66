// The view of alerts.

import { get } from "./api.js";
import { $, dotted, link, make, say, time } from "./elements.js";
import { count, words } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";
import { Rows, membersOf, sourcesOf, title } from "./rows.js";

const STORED = 100;
const shown = new Set();  // keys: the stream begins with alerts that were stored before
let unread = 0, cursor = null;

const rows = new Rows({ list: $("alerts"), more: $("more-alerts"), most: 100, element: rowOf, changed: () => { $("no-alerts").hidden = rows.entries.length > 0; } });

export function add(alert) {
  if (!show(alert)) return;
  if (!route.isShown("alerts")) unread += 1;
  showUnread();
}

// Shows the alerts that the service has stored, also before its last start.
export async function load() {
  const { alerts, next_cursor } = await get("v1/alerts", { limit: STORED });
  for (const { alert } of alerts.reverse()) show(alert);
  continued(next_cursor);
}

async function older() {
  $("older-alerts").disabled = true;
  try {
    const { alerts, next_cursor } = await get("v1/alerts", { limit: STORED, cursor });
    const added = alerts.map(({ alert }) => alert).filter(({ key }) => !shown.has(key));
    for (const { key } of added) shown.add(key);
    rows.append(added);
    continued(next_cursor);
  } catch (error) {
    say($("older-alerts"), `${error.message}: try again`);
  } finally {
    $("older-alerts").disabled = false;
  }
}

function continued(next) {
  cursor = next;
  $("older-alerts").hidden = next === null;
  say($("older-alerts"), "Show older alerts");
}

function show(alert) {
  if (shown.has(alert.key)) return false;
  shown.add(alert.key);
  rows.add(alert);
  return true;
}

function showUnread() {
  $("alert-count").hidden = !unread;
  say($("alert-count"), unread > 99 ? "99+" : count(unread));
}

function rowOf(alert) {
  const opener = link(alert.group ? route.address("group", { n: alert.group.group }) : route.address("document", { id: idText(alert.id) }), String(alert.id));
  describe(alert.id, (found) => { opener.textContent = nameOf(alert.id, found); });
  const { group } = alert;
  return make("li", {}, make("span", { class: "members" }, ...(group ? membersOf(group.live_members) : [])), title(opener), make("p", { class: "meta" }, ...dotted(
    make("b", {}, alert.rule), words(alert.kind), alert.time === null || alert.time === undefined ? null : time(alert.time),
    group ? sourcesOf(group) : null)));
}

$("older-alerts").addEventListener("click", older);

route.view("alerts", "Alerts", () => { unread = 0; showUnread(); rows.wake(); }, { list: true });
