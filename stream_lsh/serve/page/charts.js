// Charts as SVG, redrawn with each update.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 176, LEFT = 40, BOTTOM = 18, TOP = 8;

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

// As wide as its container, so that its text has the size of other text.
const widthOf = (place) => Math.max(240, place.clientWidth || Math.min(600, innerWidth - 64));

// marks: labels of the y axis, each with its share of the height. ends: labels of the x axis, left and right.
function frame(width, label, marks, ends) {
  const svg = node("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const [value, share] of marks) {
    const at = y(share, 1);
    svg.append(node("line", { class: "axis", x1: LEFT, x2: width, y1: at, y2: at }));
    svg.append(node("text", { x: LEFT - 4, y: at + 4, "text-anchor": "end" }, SHORT.format(value)));
  }
  svg.append(node("text", { x: LEFT, y: HEIGHT - 4, "text-anchor": "start" }, ends[0]));
  svg.append(node("text", { x: width, y: HEIGHT - 4, "text-anchor": "end" }, ends[1]));
  return svg;
}

const y = (value, most) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);
const halves = (most) => [[0, 0], [most / 2, 0.5], [most, 1]];

// Stacked columns. rows: [{kind: number}, ...], one per second, the latest last.
export function stacked(place, label, rows, kinds) {
  const most = Math.max(1, ...rows.map((row) => kinds.reduce((sum, kind) => sum + (row[kind] ?? 0), 0)));
  const width = widthOf(place), step = (width - LEFT) / rows.length;
  const svg = frame(width, label, halves(most), [`${rows.length} s ago`, "now"]);
  for (const [i, row] of rows.entries()) {
    let base = 0;
    for (const kind of kinds) {
      const value = row[kind] ?? 0;
      if (!value) continue;
      const top = y(base + value, most);
      svg.append(node("rect", {
        class: `k-${kind}`, x: LEFT + i * step, y: top, width: Math.max(1, step - 0.5), height: y(base, most) - top,
      }));
      base += value;
    }
  }
  place.replaceChildren(svg);
}

// Lines on a logarithmic scale from 1 on. series: {name: [number or null, ...]}.
export function lines(place, label, series) {
  const values = Object.values(series).flat().filter((value) => value !== null);
  const decades = Math.max(1, Math.ceil(Math.log10(Math.max(10, ...values))));
  const count = Math.max(2, ...Object.values(series).map((column) => column.length));
  const width = widthOf(place), marks = Array.from({ length: decades + 1 }, (_, i) => [10 ** i, i / decades]);
  const svg = frame(width, label, marks, [`${count} s ago`, "now"]);
  for (const [name, column] of Object.entries(series)) {
    let path = "", drawing = false;
    for (const [i, value] of column.entries()) {
      if (value === null) { drawing = false; continue; }
      const [at, height] = [LEFT + (i / (count - 1)) * (width - LEFT), y(Math.log10(Math.max(1, value)), decades)];
      path += `${drawing ? "L" : "M"}${at.toFixed(1)} ${height.toFixed(1)}`;
      if (!drawing) path += "h0.1";
      drawing = true;
    }
    svg.append(node("path", { class: `line k-${name}`, d: path }));
  }
  place.replaceChildren(svg);
}

// The growth of a group, as steps. times: of its members, in ms, ascending.
export function growth(place, label, times, shown) {
  if (!times.length) return;
  const [first, last] = [times[0], times[times.length - 1]];
  const width = widthOf(place), svg = frame(width, label, [[0, 0], [times.length, 1]], [shown(first), shown(last)]);
  const x = (time) => LEFT + (last > first ? (time - first) / (last - first) : 1) * (width - LEFT);
  let path = `M${LEFT} ${y(0, 1)}`;
  for (const [i, time] of times.entries()) path += `H${x(time).toFixed(1)}V${y(i + 1, times.length).toFixed(1)}`;
  svg.append(node("path", { class: "line k-p50", d: path }));
  place.replaceChildren(svg);
}
