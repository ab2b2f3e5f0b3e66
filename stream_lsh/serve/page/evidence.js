// What a match rests on besides its similarity.

import { count, shortened } from "./format.js";

const QUOTED = 400;

// match: with `terms` or `passages`. text: of the newer document, if it is there.
export function evidence(match, text) {
  if (match.terms?.length) return `by ${match.terms.join(", ")}`;
  const [longest] = match.passages ?? [];
  if (!longest) return "";
  return `${count(longest.words)} consecutive words${text === undefined ? "" : `: ${quoted(text, longest.newer)}`}`;
}

export const quoted = (text, [begin, end]) => `“${shortened(Array.from(text).slice(begin, end).join(""), QUOTED)}”`;
