// The page: its views, the stream of events, and the token. It shows what it gets from the API.

import * as alerts from "./alerts.js";
import { Problem, useToken } from "./api.js";
import * as connection from "./connection.js";
import * as duplicates from "./duplicates.js";
import { $ } from "./elements.js";
import * as groups from "./groups.js";
import * as route from "./route.js";
import * as service from "./service.js";
import * as timeline from "./timeline.js";
import { listen } from "./stream.js";
import "./check.js";
import "./comparison.js";
import "./document.js";

const EVERY_MS = 2000;
let listening = false;

function take(kind, data) {
  if (kind === "pair") duplicates.add(data);
  else if (kind === "alert") alerts.add(data);
  else if (kind === "group") {
    groups.change();
    timeline.change(data);
  } else if (kind === "gap") connection.missed();
}

async function begin() {
  if (listening) return;
  listening = true;
  await alerts.load().catch(() => null);  // the stream says what is wrong
  await listen("pair,group,alert", take, connection.streamChanged, service.arrived);
  listening = false;
}

async function tick() {
  if (!document.hidden) {
    try {
      await service.refresh();
      duplicates.resume();
      await groups.tick();
    } catch (error) {
      if (error instanceof Problem && [401, 403].includes(error.status)) $("login").hidden = false;
    }
  }
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("token").value);
  $("token").value = "";
  $("login").hidden = true;
  begin();
  tick();
});

document.querySelector(".skip").addEventListener("click", (event) => {  // the address names the view
  event.preventDefault();
  $("main").focus();
});

route.start();
begin();
tick();
setInterval(tick, EVERY_MS);
setInterval(() => connection.show(), 1000);
document.addEventListener("visibilitychange", tick);
