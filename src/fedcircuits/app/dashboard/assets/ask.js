"use strict";
// Ask: evidence on the left, distributions on the right. Every change asks once for all of them.

const Ask = {
  columns: [], known: {}, panels: new Map(), pinned: null, latest: null, number: 0, busy: false, again: false, crossings: new Map(),

  begin(start) {
    const first = (column) => (column.name === start.target ? 0 : 1);
    this.columns = [...start.columns].sort((a, b) => first(a) - first(b));
    const controls = byId("controls");
    for (const column of this.columns) controls.append(this.control(column));
    for (const column of this.columns) this.panels.set(column.name, new Panel(column));
    byId("find").addEventListener("input", () => this.find(byId("find").value));
    byId("order").addEventListener("change", () => this.arrange());
    byId("clear").addEventListener("click", () => this.clear());
    byId("pin").addEventListener("click", () => this.pin());
    byId("event-form").addEventListener("submit", (e) => { e.preventDefault(); this.event(); });
    byId("evidence").addEventListener("submit", (e) => e.preventDefault());
    byId("complete").addEventListener("click", () => this.complete());
    byId("draw").addEventListener("click", () => this.draw());
    byId("download").addEventListener("click", (e) => { e.preventDefault(); this.download(); });
    byId("number").addEventListener("input", () => this.link());
    byId("seed").addEventListener("input", () => this.link());
    if (innerWidth <= 700) byId("evidence-box").open = false;
    const target = this.columns.find((c) => c.name === start.target && c.labels.length);
    if (target) byId("event").value = `${target.name} = ${target.labels[target.labels.length - 1]}`;
    this.link();
    this.legend();
    this.changed();
  },

  control(column) {
    const forget = element("button", { type: "button", class: "forget", "aria-label": `forget ${column.name}`, title: "not known" }, "×");
    const box = element("fieldset", { "data-column": column.name }, element("legend", {}, titled(column)), forget);
    box.append(column.labels.length ? this.menu(column) : this.range(column, box));
    forget.addEventListener("click", () => {
      for (const field of box.querySelectorAll("select, input")) field.value = field.type === "range" ? field.defaultValue : "";
      box.dispatchEvent(new Event("cleared"));
      this.set(column.name, null);
      box.querySelector("select, input").focus();
    });
    return box;
  },

  menu(column) {
    const select = element("select", { "aria-label": `known value of ${column.name}` }, element("option", { value: "" }, "not known"));
    column.labels.forEach((label, code) => select.append(element("option", { value: String(code) }, label)));
    select.addEventListener("change", () => this.set(column.name, select.value === "" ? null : { codes: [Number(select.value)] }));
    return select;
  },

  range(column, box) {
    const whole = column.kind !== "real";
    const [least, most] = [column.points[0], column.points[column.points.length - 1]];
    const step = whole ? 1 : (most - least) / 200;
    const slider = element("div", { class: "slider" });
    const number = (text) => (text.value === "" ? null : column.dated ? Date.parse(text.value) / 864e5 : Number(text.value));
    const holder = element("div", { class: column.dated ? "ends dated" : "ends" });
    const fields = ["from", "to"].map((word, i) => {
      const text = element("input", { type: column.dated ? "date" : "number", step: column.dated ? "1" : "any", placeholder: "any", "aria-label": `${column.name} ${word}` });
      const slide = element("input", { type: "range", min: String(least), max: String(most), step: String(step),
        value: String(i ? most : least), "aria-label": `${column.name} ${word}, slider` });
      slide.addEventListener("input", () => {
        const other = Number(fields[1 - i].slide.value);
        if (i ? Number(slide.value) < other : Number(slide.value) > other) slide.value = String(other);
        const end = Number(slide.value) <= least + step / 2 && !i || Number(slide.value) >= most - step / 2 && i;
        text.value = end ? "" : column.dated ? iso(slide.value) : short(slide.value);
        tell();
      });
      text.addEventListener("input", () => {
        slide.value = number(text) ?? (i ? most : least);
        tell();
      });
      return { text, slide, word };
    });
    const mark = () => {
      const shares = fields.map((f) => (Number(f.slide.value) - least) / (most - least || 1));
      slider.style.setProperty("--low", String(shares[0]));
      slider.style.setProperty("--high", String(shares[1]));
      fields[0].slide.style.zIndex = shares[0] > 0.5 ? "1" : "";
    };
    box.addEventListener("cleared", mark);
    const tell = () => {
      mark();
      const [low, high] = fields.map((f) => number(f.text));
      const same = low !== null && low === high;
      this.set(column.name, low === null && high === null ? null : same ? { value: low } : { low, high });
    };
    holder.append(...fields.map((f) => element("label", {}, f.word, f.text)), slider);
    slider.append(...fields.map((f) => f.slide));
    return holder;
  },

  set(name, said) {
    if (said === null) delete this.known[name]; else this.known[name] = said;
    document.querySelectorAll("#controls fieldset").forEach((box) =>
      box.classList.toggle("known", box.dataset.column in this.known));
    this.counted();
    this.link();
    this.changed();
  },

  counted() {
    const number = Object.keys(this.known).length;
    byId("evidence-title").textContent = number ? `Evidence: ${number} of ${this.columns.length} columns known` : "Evidence";
  },

  clear() {
    this.known = {};
    byId("evidence").reset();
    document.querySelectorAll("#controls fieldset").forEach((box) => { box.classList.remove("known"); box.dispatchEvent(new Event("cleared")); });
    this.find("");
    this.counted();
    this.link();
    this.changed();
  },

  // Columns whose name has the text, here and among the distributions.
  find(text) {
    const suits = (name) => name.toLowerCase().includes(text.trim().toLowerCase());
    document.querySelectorAll("#controls fieldset").forEach((box) => { box.hidden = !suits(box.dataset.column); });
    for (const [name, panel] of this.panels) panel.figure.hidden = !suits(name);
    const none = !this.columns.some((c) => suits(c.name));
    byId("unfound").hidden = !none;
    byId("unfound").textContent = none ? `No column is called “${text.trim()}”.` : "";
    resize();
  },

  // The distributions as in the table, or those first that the evidence changes most.
  arrange() {
    const panels = [...this.panels.values()];
    if (byId("order").value === "changed") panels.sort((a, b) => b.change() - a.change());
    byId("marginals").append(...panels.map((p) => p.figure));
  },

  // One question at a time; while it is asked, the last change waits.
  async changed() {
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    try {
      do {
        this.again = false;
        const found = await ask("marginals", { known: this.known });
        if (found) await this.show(found);
      } while (this.again);
    } finally { this.busy = false; }
  },

  async show(found) {
    found.words = found.words.replaceAll(">=", "≥").replaceAll("<=", "≤").replaceAll("`", "");
    this.latest = found;
    const given = found.known.length > 0;
    for (const [name, panel] of this.panels) panel.show(given ? found.marginals[name] || null : null, found.known.includes(name), this.known[name]);
    const chance = found.probability === null || !given ? "" : ` (true of ${percent(found.probability)} of rows)`;
    byId("words").textContent = given ? `Given ${found.words}${chance}` : "Without evidence";
    byId("words").dataset.milliseconds = found.milliseconds.toFixed(1);
    this.crossings.clear();
    this.crossed("the distributions", found);
    this.legend();
    if (this.again) return;
    if (found.known.some((n) => this.known[n] && ("low" in this.known[n] || (this.known[n].codes || []).length > 1))) {
      const inside = await ask("within", { known: this.known });
      if (inside) this.crossed("the distributions within ranges", inside);
      if (inside) for (const [name, values] of Object.entries(inside.marginals)) this.panels.get(name).show(values, true, this.known[name]);
    }
    if (byId("order").value) this.arrange();
    if (!this.again && byId("event").value.trim()) await this.event();
    await this.averages();
    document.body.dataset.answered = String((this.number += 1));
  },

  // A few at a time, from the top of the page: another change need not wait for all.
  async averages() {
    const shown = [...document.querySelectorAll("#marginals figure")].map((f) => f.dataset.column);
    const numbers = shown.filter((name) => !this.panels.get(name).column.labels.length);
    for (let i = 0; i < numbers.length && !this.again; i += FEW) {
      const found = await ask("averages", { known: this.known, columns: numbers.slice(i, i + FEW) });
      if (!found) return;
      for (const [name, mean] of Object.entries(found.averages)) this.panels.get(name).average(mean);
    }
  },

  async event() {
    const text = byId("event").value.trim();
    if (!text) { byId("event-answer").textContent = ""; return; }
    const found = await ask("event", { known: this.known, event: text });
    if (!found) { byId("event-answer").textContent = ""; return; }
    this.eventFound = found;
    this.crossed(`the probability of ${found.event}`, found, "event");
    const given = Object.keys(this.known).length > 0;
    const kept = this.pinned && this.pinned.event && this.pinned.event.event === found.event
      ? ` Kept: ${percent(this.pinned.event.after)} given ${this.pinned.words || "nothing"}.` : "";
    const [now, rest] = given ? [found.after, ` with the evidence, ${percent(found.before)} without.`] : [found.before, " without evidence."];
    byId("event-answer").replaceChildren(element("strong", {}, percent(now)), `${rest}${kept}`);
    byId("event-answer").dataset.value = String(given ? found.after : found.before);
  },

  pin() {
    this.pinned = this.pinned ? null : { words: this.latest ? this.latest.words : "", event: this.eventFound };
    byId("pin").setAttribute("aria-pressed", String(this.pinned !== null));
    byId("pin").textContent = this.pinned ? "Drop the comparison" : "Keep to compare";
    for (const panel of this.panels.values()) panel.pin(this.pinned !== null);
    this.legend();
    if (this.latest) this.event();
  },

  legend() {
    const given = Object.keys(this.known).length > 0;
    const items = [["before", "without evidence"]];
    if (given) items.push(["after", "with evidence"]);
    if (this.pinned) items.push(["pinned", `kept: given ${this.pinned.words || "nothing"}`]);
    byId("legend").replaceChildren(...items.map(([kind, text]) => element("li", { class: kind }, text)));
  },

  // What was sent for each of the answers on the page; answers to the same question replace it.
  crossed(title, found, key = title) {
    this.crossings.set(key, { title, found });
    const all = [...this.crossings.values()];
    const time = (found) => `${Math.max(1, Math.round(found.milliseconds))} ms`;
    if (all.every((c) => c.found.crossed === null)) {
      byId("crossed").replaceChildren(element("p", {}, "The whole model is in this file: no party was queried, nothing was sent."),
        grid(["answer", "time"], all.map((c) => [c.title, time(c.found)])));
      return;
    }
    byId("crossed").replaceChildren(...all.flatMap(({ title, found }) => {
      const parties = [...new Set(found.crossed.map((r) => r[1]))].filter((p) => p !== "coordinator");
      const words = found.crossed.length ? `queried ${parties.join(", ") || "nobody"}` : "nothing was sent";
      const line = element("p", {}, `For ${title}, in ${time(found)}: ${words}.`);
      return found.crossed.length ? [line, grid(["from", "to", "messages", "bytes", "what it reveals"], found.crossed)] : [line];
    }));
  },

  async complete() {
    const found = await ask("completed", { known: this.known });
    if (!found) return;
    const how = found.exact ? "No other row is more probable." : "The best single path through the circuit; another row may be more probable.";
    const words = (name) => (found.given.includes(name) ? "known" : found.inside.includes(name) ? "most probable value inside the range" : "filled in");
    const rows = Object.entries(found.row).map(([name, value]) => [name, value, words(name)]);
    byId("completed").replaceChildren(element("p", {}, how), grid(["column", "value", "how"], rows));
    this.crossed("the most probable row", found);
  },

  link() {
    const given = { known: JSON.stringify(this.known), number: byId("number").value || "100", seed: byId("seed").value || "0" };
    byId("download").href = `api/samples.csv?${new URLSearchParams(given)}`;
  },

  async drawn(number) {
    const found = await ask("samples", { known: this.known, number: Number(number), seed: Number(byId("seed").value) });
    if (found) this.crossed(`${number} drawn rows`, found, "drawn");
    return found;
  },

  async draw() {
    const found = await this.drawn(10);
    if (!found) return;
    const [head, ...rows] = cells(found.csv);
    byId("samples").replaceChildren(grid(head, rows.map((r) => r.map((c) => (c !== "" && isFinite(c) ? short(c) : c)))));
  },

  async download() {
    const found = await this.drawn(byId("number").value || "100");
    if (!found) return;
    const file = URL.createObjectURL(new Blob([found.csv], { type: "text/csv" }));
    element("a", { href: file, download: "samples.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(file), 60000);
  },
};

const SHOWN = 6, FEW = 12;
const titled = (column) => column.name + (column.unit ? ` (${column.unit})` : "");

// The distribution of one column: bars of categories, a curve of numbers.
class Panel {
  constructor(column) {
    this.column = column; this.after = null; this.kept = null; this.mean = null;
    this.note = element("span", { class: "note" });
    this.plot = element("div");
    this.sum = element("div", { class: "sum" });
    this.figure = element("figure", { class: "marginal", "data-column": column.name },
      this.note, element("figcaption", {}, titled(column)), this.plot, this.sum);
    byId("marginals").append(this.figure);
    this.draw();
  }

  show(after, known, said) {
    this.after = after;
    this.said = known ? said : null;
    this.mean = null;
    this.figure.classList.toggle("known", known);
    this.note.textContent = known ? "known" : "";
    this.draw();
  }

  average(mean) { this.mean = mean; this.sum.textContent = this.words(this.current()); }

  pin(on) { this.kept = on ? this.current() : null; this.draw(); }

  current() {
    if (this.after) return this.after;
    if (this.said && this.said.codes && this.said.codes.length === 1) return this.column.points.map((c) => (c === this.said.codes[0] ? 1 : 0));
    return this.said ? null : this.column.before;
  }

  draw() {
    if (this.column.labels.length) this.bars(); else this.curve();
    const now = this.current();
    this.figure.dataset.values = JSON.stringify(now);
    this.sum.textContent = this.words(now);
  }

  number(value) { return this.column.dated ? iso(value) : round3(value); }

  words(now) {
    if (this.said && "value" in this.said) return `is ${this.number(this.said.value)}`;
    if (this.said && (this.said.codes || []).length === 1) return `is ${this.column.labels[this.said.codes[0]]}`;
    if (!now) return "";
    const at = now.indexOf(Math.max(...now));
    if (this.column.labels.length) return this.rest(now);
    const average = this.mean === null ? "" : `mean ${this.number(this.mean)}, `;
    return now[at] > 0 ? `${average}peak near ${this.number(this.column.points[at])}` : "";
  }

  label(i) { return this.column.labels[this.column.points[i]]; }

  // Of a category of many values six are shown.
  shown(now) {
    const order = now.map((_, i) => i).sort((a, b) => now[b] - now[a]);
    return order.slice(0, SHOWN).sort((a, b) => a - b);
  }

  rest(now) {
    const few = this.shown(this.most(now)), hidden = this.column.labels.length - few.length;
    return hidden > 0 ? `${hidden} other values: ${percent(Math.max(0, 1 - few.reduce((sum, i) => sum + now[i], 0)))}` : "";
  }

  most(now) { return this.column.before.map((p, i) => Math.max(p, this.kept ? this.kept[i] : 0, now ? now[i] : 0)); }

  // How far the evidence moves the distribution: total variation, from 0 to 1.
  change() {
    const now = this.current(), shares = (list) => { const all = list.reduce((a, b) => a + b, 0) || 1; return list.map((p) => p / all); };
    if (!now || this.said) return -1;
    const [a, b] = [shares(now), shares(this.column.before)];
    return a.reduce((sum, p, i) => sum + Math.abs(p - b[i]), 0) / 2;
  }

  sets(now) {
    const sets = [["before", this.column.before]];
    if (this.kept) sets.push(["pinned", this.kept]);
    if (now !== this.column.before) sets.push(["after", now]);
    return sets;
  }

  bars() {
    const now = this.current();
    const sets = this.sets(now);
    const rows = this.shown(this.most(now)).map((i) => element("tr", {}, element("th", { scope: "row", title: this.label(i) }, element("span", {}, this.label(i))),
      element("td", {}, ...sets.map(([kind, values]) => element("meter", { class: kind, min: 0, max: 1, value: values[i], "aria-label": `${kind} ${percent(values[i])}` }))),
      element("td", { class: "share" }, percent(sets[sets.length - 1][1][i]))));
    this.plot.replaceChildren(element("table", { class: "bars" }, element("tbody", {}, ...rows)));
  }

  curve() {
    const stems = this.column.kind === "count" && this.column.points.length <= 40;
    if (!this.chart) {
      this.plot.setAttribute("role", "img");
      this.plot.setAttribute("aria-label", `distribution of ${this.column.name}`);
      this.chart = chart(this.plot, [{ label: "before", colour: "before", fill: true }, { label: "kept", colour: "pinned", dash: true },
        { label: "after", colour: "after", fill: true }], this.column.dated ? { xWords: (n) => iso(n).slice(0, this.years() ? 4 : 10), space: this.years() ? 45 : 85 } : { stems });
    }
    const now = this.current();
    const nothing = this.column.points.map(() => null);
    const after = now === this.column.before ? nothing : now || nothing;
    this.chart.setData([this.column.points, this.column.before, this.kept || nothing, after]);
  }

  years() { return this.column.points[this.column.points.length - 1] - this.column.points[0] > 4 * 365; }

  resize() { if (this.chart) this.chart.setSize({ width: Math.max(this.plot.clientWidth, 100), height: 90 }); }

  recolour() {
    if (this.chart) this.chart.destroy();
    this.chart = null;
    this.draw();
  }
}
