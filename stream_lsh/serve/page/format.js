// Figures, times and ids as people read them.

const COUNT = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECOND = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const YEAR = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

export const count = (value) => COUNT.format(value);
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const percent = (share) => `${(100 * share).toFixed(1)} %`;
export const words = (name) => name.replaceAll("_", " ");
export const second = (ms) => SECOND.format(ms);
export const full = (ms) => FULL.format(ms);

// A moment as short as it can be: of today only the time, of this year without the year. exact: with seconds, if of today.
export function moment(ms, exact = false) {
  const [at, today] = [new Date(ms), new Date()];
  if (at.toDateString() === today.toDateString()) return (exact ? SECOND : CLOCK).format(at);
  return (at.getFullYear() === today.getFullYear() ? DAY : YEAR).format(at);
}

// A duration in its two largest units: "2 h 5 min".
export function duration(ms) {
  const first = UNITS.findIndex(([, size]) => ms >= size);
  if (first < 0) return "0 s";
  const [[name, size], next] = [UNITS[first], UNITS[first + 1]];
  const whole = Math.floor(ms / size), rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return rest ? `${whole} ${name} ${rest} ${next[0]}` : `${whole} ${name}`;
}

export function shortened(text, most) {
  const characters = Array.from(text);
  return characters.length > most ? `${characters.slice(0, most).join("")}…` : text;
}
