// The address of a view: #/name?key=value. Back and Forward work, and every view can be bookmarked.

const places = new Map();  // scroll position and focus of the lists, by address
const views = new Map();
let current = { name: null, query: new URLSearchParams(), hash: null };

export function address(name, query = {}) {
  const said = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null)).toString();
  return `#/${name}${said ? `?${said}` : ""}`;
}

export function parsed(hash) {
  const [name, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { name: name || "duplicates", query: new URLSearchParams(query) };
}

// title: of the page. show(query): fills the view. list: its scroll position and focus are found again.
export const view = (name, title, show, { list = false } = {}) => views.set(name, { title, show, list });

export const query = () => current.query;
export const isShown = (name) => current.name === name;

// Changes the address of this view without a new entry in the history, as for filters.
export function replace(values) {
  const hash = address(current.name, { ...Object.fromEntries(current.query), ...values });
  if (hash === location.hash) return;
  history.replaceState(null, "", hash);
  current = { ...parsed(hash), hash };
}

let title = "", missed = 0;
const showTitle = () => { document.title = `${missed ? `(${missed > 99 ? "99+" : missed}) ` : ""}${title} – stream_lsh`; };

// Names the tab, and so bookmarks.
export function name(said) {
  title = said;
  showTitle();
}

// Counts a new row in the title while the tab is hidden.
export function noticed() {
  if (!document.hidden) return;
  missed += 1;
  showTitle();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  missed = 0;
  showTitle();
});

function go(first) {
  const to = { ...parsed(location.hash), hash: location.hash };
  if (!views.has(to.name)) to.name = "duplicates";
  if (views.get(current.name)?.list) {
    places.set(current.hash, { top: scrollY, focused: document.activeElement });
    for (const link of document.querySelectorAll(`a[data-list="${current.name}"]`)) link.href = current.hash || "#/";
  }
  current = to;
  const shown = views.get(to.name);
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${to.name}`;
  const section = document.getElementById(`view-${to.name}`);
  for (const entry of document.querySelectorAll("nav a[data-view]")) {
    if (entry.dataset.view.split(" ").includes(to.query.has("group") ? "group" : to.name)) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  name(shown.title);
  shown.show(to.query);
  const place = shown.list ? places.get(to.hash) : undefined;
  scrollTo(0, place?.top ?? 0);
  if (first) return;
  const focused = place?.focused?.isConnected && section.contains(place.focused) ? place.focused : section.querySelector("h1");
  focused.focus({ preventScroll: true });
}

export function start() {
  history.scrollRestoration = "manual";
  addEventListener("hashchange", () => go(false));
  go(true);
}
