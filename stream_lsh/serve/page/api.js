// The API as the page uses it: requests with the token, and the stream of events, which reconnects by itself.

const TOKEN = "stream-lsh-token";

export class Problem extends Error {
  constructor(status, detail, token) {
    super(detail);
    this.status = status;
    this.token = token;
  }
}

export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  let detail = answer.statusText;
  try { detail = (await answer.json()).detail; } catch { /* no problem+json: the answer is from a proxy */ }
  throw new Problem(answer.status, detail, token);
}

export async function get(path, query = {}) {
  const said = new URLSearchParams(query).toString();
  return (await ask(said ? `${path}?${said}` : path)).json();
}

export async function post(path, value) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(value) })).json();
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// Calls `each(kind, data)` for every event, `state(kind, text)` when the connection changes, and `reached(seq)` once the
// events of all documents before `seq` have arrived. Never ends. EventSource would be simpler, but cannot send a token.
export async function listen(kinds, each, state, reached) {
  let place = null;
  for (;;) {
    try {
      const headers = place === null ? {} : { "Last-Event-ID": place };
      const answer = await ask(`v1/events?kinds=${kinds}`, { headers });
      state("live", "live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) place = take(part, each) ?? place;
        if (place !== null) reached(Number.parseInt(place, 10));
      }
      state("off", "the service closed the connection; reconnecting");
    } catch (error) {
      if (error instanceof Problem && error.status === 401) {
        if (error.token !== sessionStorage.getItem(TOKEN)) continue;  // a new token was entered meanwhile
        state("locked", "a token is needed");
        return;
      }
      state("bad", "no connection; reconnecting");
    }
    await wait(1000);
  }
}

// Passes one event of the stream to `each`, and returns its id.
function take(part, each) {
  let id = null, kind = "message", data = null;
  for (const line of part.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon <= 0) continue;
    const name = line.slice(0, colon), value = line.slice(colon + 2);
    if (name === "id") id = value;
    else if (name === "event") kind = value;
    else if (name === "data") data = JSON.parse(value);
  }
  if (data !== null) each(kind, data);
  return id;
}
