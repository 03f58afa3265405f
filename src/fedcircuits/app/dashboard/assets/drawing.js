"use strict";
// Elements, tables, numbers and small charts.

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A table; columns of numbers are aligned on the right.
function grid(heads, rows) {
  const number = heads.map((_, i) => rows.length > 0 && rows.every((row) => NUMBER.test(row[i])));
  const cell = (tag, text, i, more = {}) => element(tag, { ...more, class: number[i] ? "number" : "" }, String(text));
  return element("table", { class: "grid" },
    element("thead", {}, element("tr", {}, ...heads.map((h, i) => cell("th", h, i, { scope: "col" })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((c, i) => cell("td", c, i))))));
}

const NUMBER = /^(< )?[−-]?[\d.,]+( (%|ms|s|bytes|kB|MB|GB|TB))?$/;

// Two digits, and as many as a rare event or a nearly sure one needs.
function percent(share) {
  const rare = Math.min(share, 1 - share);
  if (rare <= 0) return `${Math.round(100 * share)} %`;
  if (rare < 0.0001) return share < 0.5 ? "< 0.01 %" : "> 99.99 %";
  return `${(100 * share).toFixed(rare < 0.001 ? 2 : rare < 0.01 ? 1 : 0)} %`;
}

// Rows of a csv file; cells in quotes may have commas and quotes of their own.
function cells(text) {
  return text.trim().split("\n").map((line) => [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].slice(0, -1)
    .map((found) => found[1].replace(/^"|"$/g, "").replaceAll('""', '"')));
}

const seconds = (number) => `${number < 0.1 ? "< 0.1" : number < 100 ? number.toFixed(1) : Math.round(number)} s`;
const duration = (number) => (number < 100 ? `${Math.ceil(number)} s` : number < 6000 ? `${Math.round(number / 60)} minutes` : `${(number / 3600).toFixed(1)} hours`);
// Dates are days since 1970 here.
const iso = (days) => new Date(Math.floor(days) * 864e5).toISOString().slice(0, 10);
const round3 = (number) => String(Number(Number(number).toPrecision(3))).replace("-", "−");
const short = (number) => Number(Number(number).toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: false });

function bytesWords(size) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (size >= 1000 && i < units.length - 1) { size /= 1000; i += 1; }
  return i === 0 ? `${size} bytes` : `${Number(size.toPrecision(3))} ${units[i]}`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function roomForStems(u, low, high) {
  const step = (high - low) / Math.max(u.data[0].length - 1, 1) || 1;
  return [low - step / 2, high + step / 2];
}

// A chart of curves over one x; `curves` are {label, colour, fill, dash}.
function chart(holder, curves, { height = 90, small = true, xWords = short, yWords = short, stems = false, space = 45 } = {}) {
  const axis = { stroke: colour("faint"), grid: { show: !small, stroke: colour("pale"), width: 1 },
    ticks: { size: 3, stroke: colour("pale") }, font: "11px system-ui" };
  const series = curves.map((c) => ({ label: c.label, stroke: colour(c.colour), width: c.dash ? 1.5 : 2,
    dash: c.dash ? [4, 3] : undefined, fill: c.fill ? colour(c.colour) + "33" : undefined,
    points: { show: false }, paths: stems ? uPlot.paths.bars({ size: [0.5, 8] }) : undefined }));
  const options = { width: Math.max(holder.clientWidth || 200, 100), height, cursor: { show: false }, legend: { show: false },
    scales: { x: { time: false, range: stems ? roomForStems : undefined }, y: small ? { range: (u, low, high) => [0, 1.08 * high || 1] } : {} },
    series: [{}, ...series],
    axes: [{ ...axis, size: 22, space, values: (u, v) => v.map((n) => (n === null ? "" : xWords(n))) },
      small ? { show: false } : { ...axis, size: 62, values: (u, v) => v.map(yWords) }] };
  return new uPlot(options, [[], ...curves.map(() => [])], holder);
}
