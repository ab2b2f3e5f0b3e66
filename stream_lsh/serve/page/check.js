// The view that checks a text against the index.

import { post } from "./api.js";
import { isItem } from "./document.js";
import { $, dotted, link, make, problem, time } from "./elements.js";
import { evidence } from "./evidence.js";
import { percent, plural, words } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";
import { title } from "./rows.js";
import { measure, settings } from "./settings.js";

const WANTED = {
  hamming: "Bits in hexadecimal or base64", "weighted-jaccard": "Elements separated by commas, or JSON with their weights",
};

// After new statistics: the form fits the index. checks: whether the service can check documents.
export function fit(checks) {
  $("check").hidden = !checks;
  $("no-check").hidden = checks;
  if (isItem()) {
    $("text-label").textContent = WANTED[measure()] ?? `A vector of ${settings().dimensions} numbers separated by commas or spaces, or its base64`;
  }
  const fields = settings().match_within ?? [];
  if ($("within").children.length === fields.length) return;
  $("within").replaceChildren(...fields.map((name) =>
    make("label", {}, `${name} (only documents with the same value match)`, make("input", { "data-field": name }))));
}

function put(object, path, value) {
  const names = path.split("."), last = names.pop();
  for (const name of names) object = object[name] ??= {};
  object[last] = value;
}

const parts = (text) => text.split(/[\n,]/).map((part) => part.trim()).filter(Boolean);

// A vector as numbers, a set as JSON or parts. Anything else is sent as text, and the service reports what is wrong.
function item(text) {
  if (measure() === "weighted-jaccard") {
    try { return /^[{[]/.test(text) ? JSON.parse(text) : parts(text); } catch { return parts(text); }
  }
  const numbers = text.replace(/^\[|\]$/g, "").split(/[\s,]+/).filter(Boolean).map(Number);
  return measure() !== "hamming" && numbers.length && numbers.every(Number.isFinite) ? numbers : text;
}

function asDocument(text) {
  const wanted = {}, known = settings();
  put(wanted, known.id_field, `page-${Date.now()}-${Math.random().toString(36).slice(2)}`);
  if (isItem()) put(wanted, known.vector_field ?? known.bits_field ?? known.set_field, item(text.trim()));
  else if (known.set_field) put(wanted, known.set_field, parts(text));
  else for (const [i, field] of known.text_field.entries()) put(wanted, field, i ? "" : text);
  if (known.time_field) put(wanted, known.time_field, Date.now());
  for (const input of document.querySelectorAll("[data-field]")) put(wanted, input.dataset.field, input.value || null);
  return wanted;
}

function rowOf(match, text) {
  const opener = link(route.address("document", { id: idText(match.id) }), String(match.id)), meta = make("p", { class: "meta" });
  const fill = (found) => {
    opener.textContent = nameOf(match.id, found);
    meta.replaceChildren(...dotted(found?.source == null ? null : make("b", {}, String(found.source)),
      found?.time == null ? null : time(found.time), evidence(match, text) || null));
  };
  fill(null);
  describe(match.id, fill);
  return make("li", {}, make("span", { class: "similarity" }, percent(match.similarity)), title(opener), meta);
}

$("check").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("text").value, place = $("found");
  try {
    if (!settings()) throw new Error("The settings of the index are not known yet. Try again in a moment.");
    const { kind, matches } = await post("v1/check", JSON.stringify(asDocument(text)));
    place.replaceChildren(
      make("h2", {}, matches.length ? `Verdict: ${words(kind)}. ${plural(matches.length, "similar document")}` : "No similar document in the index."),
      make("ol", { class: "rows" }, ...matches.map((match) => rowOf(match, text))));
  } catch (error) {
    place.replaceChildren(problem(error));
  }
});

route.view("check", "Check a text", () => {});
