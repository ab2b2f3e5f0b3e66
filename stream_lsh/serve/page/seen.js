// Which rows were seen. The browser keeps the latest ones, also over a reload.

const KEY = "stream-lsh-seen", MOST = 3000;
const seen = new Set(read());
let saving = 0;

function read() {
  try { return JSON.parse(localStorage.getItem(KEY)) ?? []; } catch { return []; }
}

export const isSeen = (key) => seen.has(key);

export function setSeen(key, value) {
  seen.delete(key);
  if (value) seen.add(key);
  while (seen.size > MOST) seen.delete(seen.values().next().value);
  clearTimeout(saving);
  saving = setTimeout(save, 100);
}

function save() {
  try { localStorage.setItem(KEY, JSON.stringify([...seen])); } catch { /* storage is full or not allowed: only in memory */ }
}

addEventListener("pagehide", save);
