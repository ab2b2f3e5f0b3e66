// Where two texts differ, and which places of the two belong together.

const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{M}\p{N}]+/gu;
const INSIDE = /^([^\p{L}\p{M}\p{N}]*)(.*?)([^\p{L}\p{M}\p{N}]*)$/su;

export const wordsOf = (text) => text.match(WORD)?.length ?? 0;

// The pieces of a text in order: {text, shared, at}, where `at` is the number of shared words before it. Of what differs
// only the words are marked, without blanks and punctuation around them. spans: of characters, not of UTF-16 units.
export function pieces(text, spans) {
  const characters = Array.from(text), found = [];
  let at = 0, place = 0;
  const put = (piece, shared) => {
    if (!piece) return;
    found.push({ text: piece, shared, at });
    if (shared) at += wordsOf(piece);
  };
  const differs = (end) => {
    const [, before, words, after] = INSIDE.exec(characters.slice(place, end).join(""));
    put(before, true);
    put(words, false);
    put(after, true);
  };
  for (const [begin, end] of spans) {
    differs(begin);
    put(characters.slice(begin, end).join(""), true);
    place = end;
  }
  differs(characters.length);
  return found;
}

// The numbers of shared words before each difference, in both texts together, ascending.
export function places(...sides) {
  return [...new Set(sides.flat().filter((piece) => !piece.shared).map((piece) => piece.at))].sort((a, b) => a - b);
}

// The pieces, with shared ones cut at each of these places: so both texts have all places, as {place}.
export function anchored(found, all) {
  const result = [], left = [...all];
  for (const piece of found) {
    if (!piece.shared) {
      while (left.length && left[0] <= piece.at) result.push({ place: left.shift() });
      result.push(piece);
      continue;
    }
    let at = piece.at, begin = 0;
    for (const word of piece.text.matchAll(WORD)) {
      while (left.length && left[0] <= at) {
        if (word.index > begin) result.push({ text: piece.text.slice(begin, word.index), shared: true });
        begin = Math.max(begin, word.index);
        result.push({ place: left.shift() });
      }
      at += 1;
    }
    result.push({ text: piece.text.slice(begin), shared: true });
  }
  return [...result, ...left.map((place) => ({ place }))];
}

// The pieces before and after a number of UTF-16 units: the headline, and the rest.
export function split(found, units) {
  const [head, rest] = [[], []];
  let at = 0;
  for (const piece of found) {
    const length = piece.text.length, cut = Math.max(0, Math.min(length, units - at));
    if (cut) head.push({ ...piece, text: piece.text.slice(0, cut) });
    if (cut < length) rest.push({ ...piece, text: piece.text.slice(cut), at: piece.at + (piece.shared ? wordsOf(piece.text.slice(0, cut)) : 0) });
    at += length;
  }
  return [head, rest];
}
