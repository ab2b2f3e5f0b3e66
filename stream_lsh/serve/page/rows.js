// A list of rows, the latest first, that holds still while somebody uses it: new rows wait behind a button.

import { make, onKey } from "./elements.js";
import { count, plural } from "./format.js";

const DRAW_MS = 200, MOST_OLDER = 2000, SOURCES = 3;

export class Rows {
  #list; #more; #most; #element; #changed; #cut;
  #older = 0;
  #waiting = [];  // items that are not shown, the latest last
  #shown = [];  // {item, element}, the latest first
  #dropped = false;
  #drawing = 0;
  #over = false;
  #paused = false;

  // list: an <ol>. more: the button that shows new rows. most: limit of the rows that are shown without older ones, and of
  // those that wait.
  // element(item): its <li>. changed(): called after rows were added or removed. cut(): called if some left at the end.
  constructor({ list, more, most = 200, element, changed = () => {}, cut = () => {} }) {
    [this.#list, this.#more, this.#most, this.#element, this.#changed, this.#cut] = [list, more, most, element, changed, cut];
    list.addEventListener("pointerenter", (event) => { this.#over = event.pointerType === "mouse"; });
    list.addEventListener("pointerleave", () => { this.#over = false; this.#soon(); });
    list.addEventListener("focusout", () => this.#soon());
    onKey((key) => this.#step(key));
    addEventListener("scroll", () => this.#soon(), { passive: true });
    more.addEventListener("click", () => { this.#draw(); list.querySelector("a")?.focus({ preventScroll: true }); scrollTo(0, 0); });
  }

  get items() { return this.#shown.map(({ item }) => item); }
  get all() { return [...this.items, ...this.#waiting]; }
  get size() { return this.#shown.length + this.#waiting.length; }
  get entries() { return this.#shown; }
  get paused() { return this.#paused; }

  set paused(value) {
    this.#paused = value;
    this.#soon();
  }

  add(item) {
    this.#waiting.push(item);
    if (this.#waiting.length > this.#most) {
      this.#waiting.shift();
      this.#dropped = true;
    }
    this.#soon();
  }

  // Shows older rows at the end, the latest first.
  append(items) {
    const added = items.map((item) => ({ item, element: this.#element(item) }));
    this.#list.append(...added.map(({ element }) => element));
    this.#shown.push(...added);
    this.#older = Math.min(MOST_OLDER, this.#older + added.length);
    this.#trim();
    this.#changed();
  }

  clear() {
    [this.#waiting, this.#shown, this.#older, this.#dropped] = [[], [], 0, false];
    this.#list.replaceChildren();
    this.#more.hidden = true;
    this.#changed();
  }

  // Shows new rows if the list may move now; to be called when its view is shown.
  wake() { this.#soon(); }

  // Whether rows may not move now: they are paused, in another view, under the mouse, in use by the keyboard, or scrolled.
  get #still() {
    if (this.#paused) return true;
    if (!this.#shown.length) return false;
    return !this.#list.offsetParent || this.#over || this.#list.contains(document.activeElement) || this.#list.getBoundingClientRect().top < 0;
  }

  #soon() {
    if (!this.#waiting.length) {
      this.#more.hidden = true;
      return;
    }
    this.#drawing ||= setTimeout(() => {
      this.#drawing = 0;
      if (this.#still) this.#tell(); else this.#draw();
    }, DRAW_MS);
  }

  #tell() {
    this.#more.hidden = !this.#waiting.length;
    this.#more.textContent = `Show ${this.#dropped ? "the latest " : ""}${plural(this.#waiting.length, "new row")}`;
  }

  #draw() {
    const added = this.#waiting.splice(0).reverse().map((item) => ({ item, element: this.#element(item) }));
    this.#dropped = false;
    this.#more.hidden = true;
    if (!added.length) return;
    if (this.#shown.length) added.forEach(({ element }) => element.classList.add("new"));
    this.#list.prepend(...added.map(({ element }) => element));
    this.#shown.unshift(...added);
    this.#trim();
    this.#changed();
  }

  #trim() {
    const left = this.#shown.splice(this.#most + this.#older);
    for (const { element } of left) element.remove();
    if (left.length) this.#cut();
  }

  // j and k move from row to row while the list is shown. m marks a row as seen.
  #step(key) {
    const step = { j: 1, k: -1 }[key];
    if (!this.#list.offsetParent || (!step && key !== "m")) return false;
    const links = [...this.#list.querySelectorAll("li:not([hidden]) > .title a")];
    const at = links.findIndex((one) => one.closest("li").contains(document.activeElement));
    if (step) links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
    else links[at]?.closest("li").querySelector(".seen")?.click();
    return true;
  }
}

// How many members a group has, for the beginning of a row.
export const membersOf = (members) => [make("b", {}, count(members)), members === 1 ? " member" : " members"];

// The first sources of a group, and how many more it has; null without one.
export function sourcesOf(group) {
  const named = group.first_sources.slice(0, SOURCES).map(String), more = group.sources - named.length;
  return named.length ? `${named.join(", ")}${more > 0 ? ` and ${plural(more, "more source")}` : ""}` : null;
}

// The headline of a row, as a link.
export const title = (link) => make("div", { class: "title" }, link);
