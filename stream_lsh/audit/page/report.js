// The report. All of it is made of the data, and texts are inserted as text only.

const report = parse($("data").textContent);
const MOST_SHOWN = 80;  // characters of an id
const idOf = (id) => make("bdi", { class: "id" }, id === null ? "no id" : shortened(String(id), MOST_SHOWN));
const share = (value) => (value === null ? "not known" : value < 1 && value >= .9995 ? "above 99.9 %" : percent(value));
const similarity = (value) => value.toFixed(3);
const number = (value) => (value === null ? "" : count(value));

function section(id, name, title, ...children) {
  const head = make("h2", { id: `${id}-title` }, title);
  $("report").append(make("section", { id, "aria-labelledby": head.id, class: "card part" }, head, ...children));
  $("sections").append(make("a", { href: `#${id}` }, name));
}

// A table in which the first column is text and the others are numbers.
function table(caption, columns, rows) {
  const line = (cells) => make("tr", {}, ...cells.map((cell, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, cell)));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, make("table", {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...columns.map((column) => make("th", { scope: "col" }, column)))),
    make("tbody", {}, ...rows.map(line))));
}

function shape(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Bars of kept documents with the dropped ones on top. bars: [label, kept, dropped].
function chart(caption, first, bars) {
  if (!bars.length) return quiet("No documents.");
  const most = Math.max(1, ...bars.map(([, kept, dropped]) => kept + dropped)), withKept = bars.some(([, kept]) => kept);
  const drawn = bars.flatMap(([, kept, dropped], i) => {
    const bar = (value, from, kind) => shape("rect", { class: `k-${kind}`, x: i + .08, width: .84, y: 100 - 100 * (from + value) / most, height: 100 * value / most });
    return [bar(kept, 0, "unique"), bar(dropped, kept, "near_duplicate")];
  });
  const middle = bars[Math.floor((bars.length - 1) / 2)][0];
  return make("figure", { class: "bars" },
    make("figcaption", {}, caption),
    make("ul", { class: "legend" }, ...(withKept ? [make("li", { class: "k-unique" }, make("span", {}, "kept"))] : []),
      make("li", { class: "k-near_duplicate" }, make("span", {}, "dropped")), make("li", { class: "most" }, make("span", {}, `highest bar: ${count(most)}`))),
    shape("svg", { viewBox: `0 0 ${bars.length} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...drawn),
    make("p", { class: "ends", "aria-hidden": "true" }, ...[bars[0][0], ...(bars.length > 2 ? [middle] : []), ...(bars.length > 1 ? [bars.at(-1)[0]] : [])].map((label) => make("span", {}, label))),
    make("details", {}, make("summary", {}, "Figures"), table(caption, [first, ...(withKept ? ["kept"] : []), "dropped"],
      bars.map(([label, kept, dropped]) => [label, ...(withKept ? [count(kept)] : []), count(dropped)]))));
}

// -- pairs ------------------------------------------------------------------------------------------------------------

const shownPieces = (found, marked) => found.map((piece) => (marked(piece) ? make("mark", {}, piece.text) : piece.text));

function sides(pair) {
  if (!pair.sides) return quiet(pair.missing);
  const starts = pair.sides[0].spans ? align(...pair.sides.map((side) => side.text)) : [[], []];
  const later = (i) => (i === 1) !== pair.superseded;  // the document that superseded another is the first one
  return make("div", { class: "two" }, ...pair.sides.map((side, i) => make("article", {},
    make("p", { class: "order" }, later(i) ? "Later: " : "Earlier: ", idOf(i ? pair.id : pair.duplicate_of)),
    make("div", { class: "text", tabindex: "0", role: "group", "aria-label": later(i) ? "text of the later document" : "text of the earlier document" },
      ...(side.spans ? shownPieces(pieces(side.text, side.spans, starts[i]), (piece) => !piece.shared) : [side.text])),
    ...(side.cut ? [quiet("Only the beginning is shown.")] : []))));
}

// Pairs that are compared as soon as they are opened.
const list = (pairs) => make("div", { class: "pairs" }, ...pairs.map((pair) => {
  const one = make("details", {}, make("summary", {}, make("b", {}, similarity(pair.similarity)), " ", idOf(pair.id), " like ", idOf(pair.duplicate_of)));
  one.addEventListener("toggle", () => { if (one.open && one.childElementCount === 1) one.append(sides(pair)); });
  return one;
}));

// -- labels -----------------------------------------------------------------------------------------------------------

const labels = new Map();
let place = 0, saved = true;

function labelling(sample) {
  const said = make("p", { class: "summary", role: "status" }), shown = make("div", {});
  const button = (text, key, act, main) => make("button", { type: "button", class: main ? "main" : null, onclick: act, "data-key": key }, text, make("kbd", {}, key));
  const label = (wrong) => { labels.set(sample[place].seq, wrong); saved = false; go(place + 1); };
  const go = (to) => {
    place = Math.max(0, Math.min(sample.length - 1, to));
    draw();
  };
  const save = () => {
    const lines = sample.filter((pair) => labels.has(pair.seq)).map((pair) => `{"seq":${pair.seq},"id":${idText(pair.id)},"wrong":${labels.get(pair.seq)}}`);
    const file = URL.createObjectURL(new Blob(lines.map((line) => `${line}\n`), { type: "application/x-ndjson" }));
    make("a", { href: file, download: "labels.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(file), 60_000);
    saved = true;
    draw();
  };
  const keys = { y: () => label(false), n: () => label(true), j: () => go(place + 1), k: () => go(place - 1), s: save };
  const buttons = make("div", { class: "choices" }, button("Right: a duplicate", "y", keys.y), button("Wrong: keep it", "n", keys.n),
    button("Next", "j", keys.j), button("Back", "k", keys.k), button("Save labels", "s", keys.s, true));
  const region = make("div", { class: "labelling", tabindex: "0", role: "group", "aria-label": "Label drops: keys y, n, j, k and s work in here" }, said, buttons, shown);
  region.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  function draw() {
    const pair = sample[place], given = labels.get(pair.seq);
    say(said, `Pair ${place + 1} of ${sample.length}, similarity ${similarity(pair.similarity)}: ${given === undefined ? "no label" : given ? "wrong" : "right"}. `
      + (labels.size ? `${plural(labels.size, "label")}, ${saved ? "all saved" : "not saved"}.` : ""));
    for (const one of buttons.children) if ("yn".includes(one.dataset.key)) one.setAttribute("aria-pressed", given === (one.dataset.key === "n"));
    shown.replaceChildren(sides(pair));
  }
  draw();
  addEventListener("beforeunload", (event) => { if (!saved) event.preventDefault(); });
  return region;
}

// -- the parts --------------------------------------------------------------------------------------------------------

const { documents, wrong_drops: wrong } = report;
const interval = `${share(wrong.low)} to ${share(wrong.high)}`;
const suspects = report.shared_texts.filter((one) => one.set);
const tile = (name, value, note = "") => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, note)));

$("report").replaceChildren(
  make("div", { class: "head" }, make("h1", {}, "Audit of ", make("bdi", {}, report.index))),
  make("p", { class: "summary" }, `${report.measure}, threshold ${Number(report.threshold.toFixed(4))}${report.window ? `, window ${report.window}` : ""}.`),
  make("dl", { class: "tiles" },
    tile("live documents", count(documents.live)),
    tile("dropped", count(documents.dropped), documents.live ? share(documents.dropped / documents.live) : ""),
    tile("exact duplicates", count(documents.exact_duplicates)), tile("near-duplicates", count(documents.near_duplicates)),
    tile("wrong drops", wrong.labelled ? share(wrong.share) : "no labels", wrong.labelled ? interval : "label a sample below"),
    tile("not compared", report.not_compared ? count(report.not_compared.not_compared) : "not known", report.not_compared ? `of ${plural(report.not_compared.verdicts, "verdict")}` : "give --verdicts")),
  ...suspects.map((one) => make("p", { class: "warning" }, `${share(one.share_of_source)} of the documents of `, idOf(one.source),
    ` were dropped in one group (${one.group}). ${percent(one.shared_share)} of its shingles are in nearly all of them. `, make("a", { href: "#shared" }, "Look at the shared text"), ".")),
  ...(documents.damaged ? [make("p", { class: "warning" }, `${plural(documents.damaged, "damaged row")} left out. stream-lsh info --check names the file.`)] : []),
  ...(documents.removed ? [quiet(`${plural(documents.removed, "deleted or replaced version")} left out.`)] : []),
  ...(documents.provisional ? [quiet(`${plural(documents.provisional, "provisional row")} left out: they have no decision yet.`)] : []));

const { sources } = report;
const sourceRows = (found) => found.map((one) => [idOf(one.source), count(one.documents), count(one.dropped), share(one.dropped_share)]);
section("sources", "Sources", "Sources", ...(sources ? [
  table("The sources with the most drops", [sources.field, "documents", "dropped", "share"], [...sourceRows(sources.most),
    ...(sources.rest.sources ? [[`${plural(sources.rest.sources, "other source")}`, count(sources.rest.documents), count(sources.rest.dropped), share(sources.rest.dropped / Math.max(1, sources.rest.documents))]] : []),
    ...(sources.uncounted ? [["further sources, not counted apart", count(sources.uncounted), "", ""]] : []),
    ...(sources.without ? [["without a source", count(sources.without), "", ""]] : [])]),
  ...(sources.highest.length ? [table("The highest shares, of sources with 20 documents or more", [sources.field, "documents", "dropped", "share"], sourceRows(sources.highest))] : []),
] : [quiet("Not known: the index keeps no groups, or has no source_field.")]));

const when = (ms) => new Date(ms).toISOString().slice(0, report.times.minutes < 1440 ? 16 : 10).replace("T", " ");
section("times", "Time", "Time", report.times.bars.length
  ? chart(`Documents by event time (UTC), ${duration(60_000 * report.times.minutes)} a bar`, "from", report.times.bars.map(([from, ...counts]) => [when(from), ...counts]))
  : quiet("Not known: the documents have no event times."), ...(report.times.bars.length && report.times.without ? [quiet(`${plural(report.times.without, "document")} without an event time.`)] : []));

const steps = new Map(report.similarities.map(([at, drops]) => [Math.round(100 * at), drops]));
const firstStep = Math.floor(100 * report.threshold + 1e-9);
const { higher, lower, lower_unknown: unknown, sampled } = report.thresholds;
section("similarities", "Similarity", "Similarity and threshold",
  steps.size ? chart("Drops by similarity, 0.01 a bar", "from", Array.from({ length: 101 - firstStep }, (_, i) => [((firstStep + i) / 100).toFixed(2), 0, steps.get(firstStep + i) ?? 0])) : quiet("Nothing was dropped."),
  table("Higher thresholds, by the similarities that are stored", ["threshold", "drops", "at most so many fewer"], higher.map((one) => [one.threshold.toFixed(2), count(one.drops), count(one.fewer)])),
  quiet("The similarity of a drop is that with the document that it was dropped for. At a higher threshold it may still be dropped for another one."),
  ...(unknown ? [quiet(`Lower thresholds: not known, because ${unknown}.`)] : lower.length ? [
    table(`Lower thresholds, by a sample of ${plural(sampled, "kept document")} searched for again`, ["threshold", "of the kept documents, also dropped", "95 % interval", "found at this similarity"],
      lower.map((one) => [one.threshold.toFixed(2), `at least ${share(one.share_of_kept)}`, `${share(one.low)} to ${share(one.high)}`, share(one.found)])),
    quiet("The bands of the index are made for its own threshold. The last column is the probability that they find a pair of this similarity. The interval is that of the sample only.")]
    : [quiet("Lower thresholds: not known, because there is no kept document, or the threshold is low.")]));

section("sizes", "Size", "Size", chart(report.measure === "levenshtein" ? "Documents by size" : "Documents by their number of distinct shingles or elements", "from", report.sizes.map(([from, ...counts]) => [count(from), ...counts])));

const groupRows = (found, name) => found.map((one) => [idOf(one.representative), count(one.group), count(one[name]), count(one.live_members), count(one.sources), one.first === null ? "" : full(one.first), one.last === null ? "" : full(one.last)]);
const groupColumns = (name) => ["representative", "group", name, "live members", "sources", "first", "last"];
section("groups", "Groups", "Groups", ...(report.groups ? [
  table("The largest groups", groupColumns("drops"), groupRows(report.groups.largest, "drops")),
  ...(report.groups.fastest.length ? [table("The fastest groups: the most drops within an hour", groupColumns("drops in an hour"), groupRows(report.groups.fastest, "drops_in_an_hour"))] : []),
] : [quiet("Not known: the index keeps no groups.")]));

section("shared", "Shared text", "Shared text", ...(report.shared_texts.length ? report.shared_texts.map((one) => make("details", { open: Boolean(one.set), class: "shared" },
  make("summary", {}, `Group ${one.group}: ${plural(one.drops, "drop")}, `, make("b", {}, percent(one.shared_share)), " of the shingles shared",
    ...(one.source === null ? [] : [", ", make("b", {}, share(one.share_of_source)), " of ", idOf(one.source)])),
  make("p", {}, `Marked is what nine of ten share, of ${plural(one.sampled, "drop")} and the representative. Without it, ${count(one.similar_without)} of ${count(one.sampled)} would still be similar to the representative.`),
  ...(one.set ? [make("p", { class: "warning" }, one.set)] : []),
  make("div", { class: "text whole", tabindex: "0", role: "group", "aria-label": `text of the representative of group ${one.group}` }, ...shownPieces(pieces(one.text, one.spans, []), (piece) => piece.shared)),
  ...(one.cut ? [quiet("Only the beginning is shown.")] : []))) : [quiet("Not known: there are no groups, or the index does not store texts that it compares by shingles.")]));

section("above", "Just above", "Just above the threshold", quiet("The near-duplicates with the lowest similarities. Differences are marked."), report.pairs.above.length ? list(report.pairs.above) : quiet("There are none."));
section("below", "Just below", "Just below the threshold", quiet("Kept documents, of the sample that was searched for again, with the nearest earlier kept document. Differences are marked."), report.pairs.below.length ? list(report.pairs.below) : quiet(unknown ? `Not known, because ${unknown}.` : "There are none."));

section("labels", "Label", "Label drops", quiet("Say of each drop whether it was right. The keys work while this part has the focus. Save the labels, and give them back: stream-lsh audit --labels labels.jsonl"),
  report.pairs.sample.length ? labelling(report.pairs.sample) : quiet("Nothing was dropped."));
section("wrong", "Wrong drops", "Wrong drops", make("p", {}, wrong.labelled
  ? `${wrong.share === null ? "The share is not known, because not every stratum has a label." : `${share(wrong.share)} of the drops are wrong, by ${plural(wrong.labelled, "label")}.`} 95 % interval: ${interval}.` : "There are no labels yet."),
  ...(wrong.unused ? [quiet(`${plural(wrong.unused, "label")} of documents that this index has not dropped: left out.`)] : []),
  table("By similarity", ["stratum", "drops", "labelled", "wrong", "share", "95 % interval"], wrong.strata.map((one) => [one.exact ? "exact duplicates" : `${one.from.toFixed(3)} to ${one.to.toFixed(3)}`, count(one.drops), count(one.labelled), count(one.wrong), one.labelled ? share(one.share) : "", one.labelled ? `${share(one.low)} to ${share(one.high)}` : ""])));
