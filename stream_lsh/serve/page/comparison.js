// The view that compares two documents: headline and fields, and the texts side by side.

import { get } from "./api.js";
import { beside } from "./duplicates.js";
import { align, wordsOf } from "./alignment.js";
import { anchored, pieces, places, split } from "./differences.js";
import { fieldsOf, headlineEnd, isItem, shownText } from "./document.js";
import { $, facts, link, make, onKey, problem, quiet } from "./elements.js";
import { quoted } from "./evidence.js";
import { count, duration, percent, plural } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";

let asked = null, current = -1, texts = [];

async function show(query) {
  const [a, b] = [query.get("a"), query.get("b")], body = $("compare-body");
  asked = `${a} ${b}`;
  $("compare-group").hidden = !query.has("group");
  $("compare-group").href = route.address("group", { n: query.get("group") });
  $("compare-list").hidden = query.has("group");
  const now = asked, around = query.has("group") ? [null, null] : beside(a, b);
  for (const [i, name] of ["newer-row", "older-row"].entries()) {
    $(name).hidden = around[i] === null;
    $(name).href = around[i] ?? "";
  }
  texts = [];
  $("compare-title").textContent = "Compare";
  $("steps").hidden = true;
  body.replaceChildren(quiet("Loading both documents."));
  try {
    const found = await get("v1/compare", { a, b, id_type: "json" });
    if (asked === now) draw(found, body);
  } catch (error) {
    if (asked === now) body.replaceChildren(problem(error));
  }
}

function draw(found, body) {
  const spoken = found.shared !== null, sides = [found.a, found.b];
  const starts = spoken ? align(found.a.text, found.b.text) : [[], []];
  const parts = sides.map((side, i) => (spoken ? pieces(side.text, side.spans, starts[i]) : [{ text: shownText(side.text), shared: true, start: 0, at: 0 }]));
  const halves = sides.map((side, i) => split(parts[i], isItem() ? 0 : headlineEnd(side.text), starts[i]));
  const all = places(...halves.map(([, rest]) => rest));
  const panes = halves.map(([, rest], i) => pane(anchored(rest, all, starts[i]), `text of ${sides[i].id}`));
  $("compare-title").textContent = `${found.match ? "A match" : "No match"}: ${percent(found.similarity)} similar`;
  describe(found.b.id, (known) => { if (route.isShown("compare")) route.name(`${percent(found.similarity)}: ${nameOf(found.b.id, known)}`); });
  body.replaceChildren(
    make("p", { class: "summary" }, spoken ? `${sharedWords(parts)} ` : "", `${found.why[0].toUpperCase()}${found.why.slice(1)}.`,
      ...(found.same_group ? [" ", link(route.address("group", { n: found.a.group }), "Show all copies"), "."] : [])),
    ...(found.terms?.length ? [make("p", {}, `Shared terms with the most weight: ${found.terms.join(", ")}.`)] : []),
    ...(found.passages?.length ? [make("ol", { class: "passages", "aria-label": "Shared passages" },
      ...found.passages.map((passage) => make("li", {}, `${count(passage.words)} words: ${quoted(found.a.text, passage.a)}`)))] : []),
    make("div", { class: "sides" }, ...sides.map((side, i) => make("article", { "aria-label": String(side.id) }, make("p", { class: "order" }, orderOf(found, i)),
      headline(halves[i][0], side), facts(make("dl", { class: "facts" }), fieldsOf(side, true)), panes[i],
      ...(side.cut ? [quiet("Only the beginning of the text is compared here.")] : [])))));
  texts = panes;
  current = -1;
  $("steps").hidden = !all.length;
  position();
  for (const [i, one] of panes.entries()) one.addEventListener("scroll", () => follow(one, panes[1 - i]), { passive: true });
}

// Which document was published first, and how much later the other one; without times, which one arrived first.
function orderOf({ a, b }, i) {
  const [one, other] = i === 0 ? [a, b] : [b, a];
  if (one.time !== null && other.time !== null && one.time !== other.time) {
    return one.time < other.time ? "First" : `Later, by ${duration(one.time - other.time)}`;
  }
  return one.seq === null || other.seq === null ? "" : one.seq < other.seq ? "First" : "Later";
}

const marked = (found) => found.map((piece) => (piece.shared ? piece.text : make("mark", {}, piece.text)));

const headline = (found, side) => make("h2", {}, link(route.address("document", { id: idText(side.id) }),
  ...(found.length ? marked(found) : [String(side.id)])));

function pane(found, label) {
  const nodes = found.map((piece) => (piece.place === undefined
    ? (piece.shared ? piece.text : make("mark", {}, piece.text)) : make("span", { "data-place": piece.place })));
  return make("div", { class: "text", tabindex: "0", role: "group", "aria-label": label }, ...nodes);
}

function sharedWords(parts) {
  const [a, b] = parts.map((found) => {
    const whole = wordsOf(found.map((piece) => piece.text).join(""));
    const other = found.filter((piece) => !piece.shared).reduce((sum, piece) => sum + wordsOf(piece.text), 0);
    return [whole - other, whole];
  });
  if (a[0] === a[1] && b[0] === b[1]) return `All ${plural(a[1], "word")} are the same.`;
  return `${count(a[0])} of ${plural(a[1], "word")} of the first text and ${count(b[0])} of ${count(b[1])} of the second are the same. Differences are marked.`;
}

// -- scrolling: the places of the differences belong together, and what is between them is stretched ----------------

let leader = null, freed = 0;

function follow(from, to) {
  if (leader !== null && leader !== from) return;
  leader = from;
  clearTimeout(freed);
  freed = setTimeout(() => { leader = null; }, 120);
  to.scrollTop = matching(from, to);
}

const tops = (one) => [...one.querySelectorAll("[data-place]")].map((anchor) => anchor.offsetTop);

function matching(from, to) {
  const at = from.scrollTop, [room, theirs] = [from.scrollHeight - from.clientHeight, to.scrollHeight - to.clientHeight];
  const xs = [0, ...tops(from).map((top) => Math.min(top, room)), room], ys = [0, ...tops(to).map((top) => Math.min(top, theirs)), theirs];
  let i = 0;
  while (i < xs.length - 2 && xs[i + 1] <= at) i += 1;
  const share = xs[i + 1] > xs[i] ? (at - xs[i]) / (xs[i + 1] - xs[i]) : 0;
  return ys[i] + Math.min(1, share) * (ys[i + 1] - ys[i]);
}

// -- steps: from difference to difference ----------------------------------------------------------------------------

function position() {
  const all = texts[0]?.querySelectorAll("[data-place]").length ?? 0;
  $("step-count").textContent = current < 0 ? plural(all, "difference") : `difference ${current + 1} of ${all}`;
}

// How far below the upper edge a place can be in both texts, a third of the height if possible. tops: of the place.
function sameHeight(tops) {
  const least = Math.max(...tops.map((top, i) => top - (texts[i].scrollHeight - texts[i].clientHeight)));
  return Math.min(...tops, Math.max(least, texts[0].clientHeight / 3));
}

function step(by) {
  const anchors = texts.map((one) => [...one.querySelectorAll("[data-place]")]);
  const all = anchors[0]?.length ?? 0;
  if (!all) return;
  current = current < 0 ? (by > 0 ? 0 : all - 1) : (current + by + all) % all;
  for (const mark of document.querySelectorAll("mark.current")) mark.classList.remove("current");
  leader = texts[0];  // both are moved here, so neither follows the other
  clearTimeout(freed);
  freed = setTimeout(() => { leader = null; }, 250);
  const tops = anchors.map((one) => one[current].offsetTop), at = sameHeight(tops);
  for (const [i, one] of texts.entries()) {
    one.scrollTop = tops[i] - at;
    const mark = anchors[i][current].nextSibling;
    if (mark?.nodeName === "MARK") mark.classList.add("current");
  }
  const [seen] = texts, { top, bottom } = seen.getBoundingClientRect();
  if (top > innerHeight * 0.7 || bottom < innerHeight * 0.3) seen.scrollIntoView({ block: "center" });
  position();
}

$("next").addEventListener("click", () => step(1));
$("previous").addEventListener("click", () => step(-1));
const KEYS = { n: "next", p: "previous", k: "newer-row", j: "older-row" };
onKey((key) => {
  const name = KEYS[key];
  if (!route.isShown("compare") || !name) return false;
  if (!$(name).hidden) $(name).click();
  return true;
});

route.view("compare", "Compare", show);
