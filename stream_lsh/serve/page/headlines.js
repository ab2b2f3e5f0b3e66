// Headline, source and time of documents by id: a memory, and one request at a time for what it lacks.

import { Problem, post } from "./api.js";
import { idText } from "./json.js";

const MOST = 5000, MOST_WAITING = 500, AT_ONCE = 50, AGAIN_MS = 2000;
export const UNKNOWN = { headline: null, source: null, time: null };
const known = new Map(), waiting = new Map();
let asking = false;

// Calls `done` with what is known of a document, at once or later. It is not called if too many others are asked for.
export function describe(id, done) {
  const key = idText(id);
  if (known.has(key)) {
    done(known.get(key));
    return;
  }
  const others = waiting.get(key) ?? [];
  waiting.delete(key);
  waiting.set(key, [...others, done]);
  if (waiting.size > MOST_WAITING) waiting.delete(waiting.keys().next().value);
  if (!asking) next();
}

// A new version of the document may have another headline.
export const forget = (id) => known.delete(idText(id));

async function next() {
  asking = true;
  await null;  // documents of the same moment are asked for together
  while (waiting.size) {
    const keys = [...waiting.keys()].slice(-AT_ONCE);
    try {
      const { documents } = await post("v1/headlines", `[${keys.join(",")}]`);
      for (const [i, key] of keys.entries()) {
        const done = waiting.get(key) ?? [];
        waiting.delete(key);
        known.set(key, documents[i]);
        for (const each of done) each(documents[i]);
      }
      while (known.size > MOST) known.delete(known.keys().next().value);
    } catch (error) {
      if (error instanceof Problem && [403, 404, 409, 422].includes(error.status)) keys.forEach((key) => waiting.delete(key));
      else await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
  asking = false;
}

export const nameOf = (id, found) => found?.headline ?? String(id);
