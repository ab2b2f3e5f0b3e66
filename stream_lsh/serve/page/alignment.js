// Which words of two texts belong together: those of a common subsequence, found from runs that occur once in each text.

const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{M}\p{N}]+/gu;
const RUN = 3;  // words

export const wordsOf = (text) => text.match(WORD)?.length ?? 0;

function wordsIn(text) {
  const [words, starts] = [[], []];
  for (const { 0: word, index } of text.matchAll(WORD)) {
    words.push(word.toLowerCase());
    starts.push(index);
  }
  return { words, starts };
}

// Places of the runs that occur once; -1 for those that occur again.
function runsOf({ words }) {
  const found = new Map();
  for (let i = 0; i + RUN <= words.length; i += 1) {
    const run = words.slice(i, i + RUN).join(" ");
    found.set(run, found.has(run) ? -1 : i);
  }
  return found;
}

// The longest part of pairs [i, j], ascending in i, in which j ascends too.
function ascending(pairs) {
  const ends = [], before = new Array(pairs.length);
  for (const [n, [, j]] of pairs.entries()) {
    let low = 0, high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[ends[middle]][1] < j) low = middle + 1; else high = middle;
    }
    before[n] = low ? ends[low - 1] : -1;
    ends[low] = n;
  }
  const found = [];
  for (let n = ends.at(-1) ?? -1; n >= 0; n = before[n]) found.push(pairs[n]);
  return found.reverse();
}

// For each text where its words that belong together begin, in UTF-16 units. Both lists are equally long.
export function align(one, other) {
  const [a, b] = [wordsIn(one), wordsIn(other)], runs = runsOf(b);
  const anchors = [...runsOf(a)].map(([run, i]) => [i, runs.get(run) ?? -1]).filter(([i, j]) => i >= 0 && j >= 0);
  const found = [];
  let [nextA, nextB] = [0, 0];
  const forward = () => {
    while (nextA < a.words.length && nextB < b.words.length && a.words[nextA] === b.words[nextB]) found.push([nextA++, nextB++]);
  };
  forward();
  for (const [i, j] of ascending(anchors)) {
    if (i < nextA || j < nextB) continue;
    let back = 0;
    while (i - back > nextA && j - back > nextB && a.words[i - back - 1] === b.words[j - back - 1]) back += 1;
    [nextA, nextB] = [i - back, j - back];
    forward();
  }
  return [found.map(([i]) => a.starts[i]), found.map(([, j]) => b.starts[j])];
}
