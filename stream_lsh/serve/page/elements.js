// Elements of the page. Texts are inserted as text only, never as HTML.

import { full, moment } from "./format.js";

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export const link = (href, ...children) => make("a", { href }, ...children);
export const quiet = (...children) => make("p", { class: "quiet" }, ...children);
export const problem = (error) => make("p", { class: "problem" }, error.message);
export const time = (ms, exact = false) => make("time", { datetime: new Date(ms).toISOString(), title: full(ms) }, moment(ms, exact));

export function facts(place, pairs) {
  place.replaceChildren(...pairs.map(([name, value]) => make("div", { "data-fact": name }, make("dt", {}, name), make("dd", {}, value?.nodeType ? value : String(value)))));
  return place;
}

// Parts with dots between them; empty parts are left out.
export function dotted(...parts) {
  const shown = parts.filter((part) => part !== null && part !== undefined && part !== "");
  return shown.flatMap((part, i) => (i ? [make("span", { class: "dot", "aria-hidden": "true" }, " · "), part] : [part]));
}

// Calls `done(key)` for a key that is pressed anywhere but in a field, alone.
export function onKey(done) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
    if (done(event.key)) event.preventDefault();
  });
}

// Replaces the text only if it differs, so that screen readers do not read the same twice.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
