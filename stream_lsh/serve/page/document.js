// The view of one document, and what the settings of the index say of documents.

import { get } from "./api.js";
import { $, facts, link, make, problem, quiet, time } from "./elements.js";
import { count, percent, shortened, words } from "./format.js";
import { describe, nameOf } from "./headlines.js";
import { idText } from "./json.js";
import * as route from "./route.js";
import { settings } from "./settings.js";

const SHOWN_OF_ITEM = 400, MOST_OF_HEADLINE = 160;

// Whether documents are vectors, bit vectors or sets. Their text form may be long.
export const isItem = () => ["cosine", "euclidean", "hamming", "weighted-jaccard"].includes(settings()?.measure);

export const shownText = (text) => (isItem() && text.length > SHOWN_OF_ITEM
  ? `${shortened(text, SHOWN_OF_ITEM)} (${count(text.length)} characters)` : text);

// The fields of a document, as pairs of name and value. brief: only those that an editor compares.
export function fieldsOf(found, brief = false) {
  const source = make("span", {}, "–");
  describe(found.id, ({ source: said }) => { if (said !== null) source.textContent = String(said); });
  return [
    ["source", source],
    ["time", found.time === null ? "–" : time(found.time)],
    ...(brief ? [] : [["verdict", verdict(found)]]),
    ...(brief || found.group === null ? [] : [["group", link(route.address("group", { n: found.group }), count(found.group))]]),
    ["id", make("code", {}, idText(found.id))],
  ];
}

// The kind is unknown while it is provisional, and in a pipeline if the first verdict is no longer stored.
function verdict(found) {
  const kind = found.kind === null ? "no verdict yet" : words(found.kind);
  const of = found.duplicate_of === null ? [] : [" of ", link(route.address("document", { id: idText(found.duplicate_of) }), String(found.duplicate_of)), ` (${percent(found.similarity)})`];
  return make("span", {}, kind, ...of, `, ${found.state}`);
}

// The end of the first line and the blank lines after it, if that looks like a headline: it is short, and text follows.
export function headlineEnd(text) {
  const begin = text.length - text.trimStart().length, end = text.indexOf("\n", begin);
  if (end < 0 || end - begin > MOST_OF_HEADLINE || !text.slice(end).trim()) return 0;
  return end + /^\s*\n/.exec(text.slice(end))[0].length;
}

async function show(query) {
  const id = query.get("id") ?? "", body = $("document-body");
  $("document-title").textContent = "Document";
  body.replaceChildren(quiet("Loading the document."));
  try {
    const texts = settings()?.texts ?? true;
    const found = await get(`v1/documents/${encodeURIComponent(id)}`, { text: texts, id_type: "json" });
    if (route.query().get("id") !== id) return;
    describe(found.id, (known) => {
      $("document-title").textContent = nameOf(found.id, known);
      if (route.isShown("document")) route.name($("document-title").textContent);
    });
    body.replaceChildren(facts(make("dl", { class: "facts" }), fieldsOf(found)),
      texts ? make("div", { class: "text whole" }, shownText(found.text.slice(isItem() ? 0 : headlineEnd(found.text)))) : quiet("This index stores no texts."));
  } catch (error) {
    body.replaceChildren(problem(error));
  }
}

route.view("document", "Document", show);
