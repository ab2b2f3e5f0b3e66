// Where two texts differ, and which places of the two belong together.

const INSIDE = /^([^\p{L}\p{M}\p{N}]*)(.*?)([^\p{L}\p{M}\p{N}]*)$/su;

// The number of values below this one. values: ascending.
function below(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < limit) low = middle + 1; else high = middle;
  }
  return low;
}

// The pieces of a text in order: {text, shared, start, at}, where `at` is the number of aligned words before it. Of what
// differs only the words are marked, without blanks and punctuation around them.
// spans: of characters, not of UTF-16 units. starts: of the aligned words.
export function pieces(text, spans, starts) {
  const characters = Array.from(text), found = [];
  let begin = 0, start = 0;
  const put = (piece, shared) => {
    if (piece) found.push({ text: piece, shared, start, at: below(starts, start) });
    start += piece.length;
  };
  const differs = (end) => {
    const [, before, words, after] = INSIDE.exec(characters.slice(begin, end).join(""));
    put(before, true);
    put(words, false);
    put(after, true);
  };
  for (const [first, end] of spans) {
    differs(first);
    put(characters.slice(first, end).join(""), true);
    begin = end;
  }
  differs(characters.length);
  return found;
}

// The numbers of aligned words before each difference, in both texts together, ascending.
export function places(...sides) {
  return [...new Set(sides.flat().filter((piece) => !piece.shared).map((piece) => piece.at))].sort((a, b) => a - b);
}

// The pieces, with shared ones cut at each of these places: so both texts have all places, as {place}.
export function anchored(found, all, starts) {
  const result = [], left = [...all];
  for (const piece of found) {
    let from = 0;
    while (left.length && (piece.shared ? (starts[left[0]] ?? Infinity) < piece.start + piece.text.length : left[0] <= piece.at)) {
      const cut = piece.shared ? Math.max(from, starts[left[0]] - piece.start) : 0;
      if (cut > from) result.push({ ...piece, text: piece.text.slice(from, cut) });
      result.push({ place: left.shift() });
      from = cut;
    }
    result.push({ ...piece, text: piece.text.slice(from) });
  }
  return [...result, ...left.map((place) => ({ place }))];
}

// The pieces before and after a number of UTF-16 units: the headline, and the rest.
export function split(found, units, starts) {
  const [head, rest] = [[], []];
  for (const piece of found) {
    const cut = Math.max(0, Math.min(piece.text.length, units - piece.start)), start = piece.start + cut;
    if (cut) head.push({ ...piece, text: piece.text.slice(0, cut) });
    if (cut < piece.text.length) rest.push({ ...piece, text: piece.text.slice(cut), start, at: below(starts, start) });
  }
  return [head, rest];
}
