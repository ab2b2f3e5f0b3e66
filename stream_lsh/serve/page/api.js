// Requests to the API, with the token.

import { parse } from "./json.js";

const TOKEN = "stream-lsh-token";
const PATIENCE_MS = 15_000;

export class Problem extends Error {
  constructor(status, detail, health, token) {
    super(detail);
    this.status = status;
    this.health = health;
    this.token = token;
  }
}

export const token = () => sessionStorage.getItem(TOKEN);
export const useToken = (value) => sessionStorage.setItem(TOKEN, value);

export async function ask(path, options = {}) {
  const used = token();
  const headers = { ...options.headers, ...(used ? { Authorization: `Bearer ${used}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  let said = {};
  try { said = parse(await answer.text()); } catch { /* no problem+json: the answer is from a proxy */ }
  throw new Problem(answer.status, said.detail ?? `${answer.status} ${answer.statusText}`, said.health, used);
}

const answered = async (path, options = {}) =>
  parse(await (await ask(path, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) })).text());

export function get(path, query = {}) {
  const said = new URLSearchParams(query).toString();
  return answered(said ? `${path}?${said}` : path);
}

// body: JSON text.
export const post = (path, body) =>
  answered(path, { method: "POST", headers: { "Content-Type": "application/json" }, body });
