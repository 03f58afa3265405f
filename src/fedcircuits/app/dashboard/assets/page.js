"use strict";
// The page: tabs, questions to the server, and the view of the model.

async function ask(path, said) {
  try {
    const answer = await fetch(`api/${path}`, said === undefined ? {} : {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(said) });
    const found = answer.headers.get("Content-Type").startsWith("application/json") ? await answer.json() : { error: await answer.text() };
    problem(found.error || "");
    return found.error ? null : found;
  } catch (error) {
    problem("The dashboard's server does not answer: has fedcircuits dashboard been stopped?");
    return null;
  }
}

function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

const TABS = ["ask", "watch", "model"];

function show(name, focus) {
  for (const tab of TABS) {
    const chosen = tab === name;
    byId(tab).hidden = !chosen;
    byId(`tab-${tab}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
  }
  if (focus) byId(`tab-${name}`).focus();
  resize();
  if (name === "watch") Watch.curves();
  if (name === "model") Model.begin();
}

function resize() {
  for (const panel of Ask.panels.values()) panel.resize();
  Watch.resize();
}

function recolour() {
  for (const panel of Ask.panels.values()) panel.recolour();
  Watch.recolour();
}

// What a file says about its training, in this order; the rest follows under its own name.
const FACTS = { parties: "parties, rows × columns", split: "split", engine: "engine", learner: "learner of a party",
  weights: "weights of combinations", seed: "seed", notes: "notes" };

const Model = {
  begun: false,

  async begin() {
    if (this.begun) return;
    this.begun = true;
    if (this.hasModel) {
      const found = await ask("model");
      if (found) byId("about").replaceChildren(...this.parts(found));
    }
    if (this.hasSite) {
      const found = await ask("site");
      if (found) byId("site").replaceChildren(...this.siteParts(found));
    }
  },

  parts(m) {
    const parts = [element("h2", {}, `${m.file}: ${m.estimator}`)];
    const facts = [["column to predict", m.target || "none"]];
    const { messages, bytes, ...learned } = m.learned;
    for (const name of new Set([...Object.keys(FACTS), ...Object.keys(learned)])) {
      if (name in learned) facts.push([FACTS[name] || name, name === "parties" ? sizes(learned[name]) : fact(learned[name])]);
    }
    if (bytes !== undefined) facts.push(["sent in training", `${Number(messages).toLocaleString("en")} messages, ${bytesWords(bytes)}`]);
    facts.push(["nodes of the circuit", m.nodes.toLocaleString("en")]);
    if (m.where) facts.push(["parts at", m.where.sites.join(", ")], ["consortium", m.where.consortium]);
    parts.push(grid(["what", "value"], facts));
    parts.push(element("h2", {}, "The circuit"), scroll(element("img", { class: "circuit", src: "api/circuit.svg",
      alt: m.parties.length ? `the circuit: ${m.parties.map((p) => `${p.name} has ${p.circuits} circuits`).join(", ")}` : `the circuit of ${m.nodes} nodes` })));
    if (m.parties.length) parts.push(element("p", { class: "faint" }, "Every party keeps the circuits that it learned. The coordinator combines them. Darker squares describe more rows."),
      grid(["party", "circuits", "columns"], m.parties.map((p) => [p.name, p.circuits, p.columns.join(", ")])));
    if (m.revealed) parts.push(element("h2", {}, "What was revealed to whom"), prose(grid(["phase", "to", "from", "what"], m.revealed)));
    if (m.crossed) parts.push(element("h2", {}, "What was sent in training"), scroll(grid(["phase", "messages", "bytes"], m.crossed)));
    return parts;
  },

  siteParts(s) {
    const parts = [element("h2", {}, `${s.name}, of the consortium ${s.consortium}`), element("p", {}, `Members: ${s.members.join(", ")}.`)];
    if (s.policy) parts.push(element("h2", {}, "Policy"), grid(["rule", "value"], Object.entries(s.policy)));
    if (s.audit) parts.push(element("h2", {}, "Audit log"), s.audit.length
      ? scroll(grid(["time", "event", "run", "who", "what", "bytes", "reveals"], s.audit)) : element("p", {}, "No requests yet."));
    return parts;
  },
};

// A table whose last column is prose: on a phone it stands below the others.
const prose = (table) => { table.classList.add("prose"); return table; };
const scroll = (child) => element("div", { class: "scroll" }, child);

// Rows × columns by party; of many parties the first ones, or once if all have the same.
function sizes(parties) {
  const all = Object.entries(parties), words = (size) => size.map((n) => n.toLocaleString("en")).join(" × ");
  if (all.length > 3 && new Set(all.map(([, size]) => words(size))).size === 1) return `${all.length} parties, ${words(all[0][1])} each`;
  return all.slice(0, 8).map(([name, size]) => `${name} ${words(size)}`).join("; ") + (all.length > 8 ? ` … (${all.length})` : "");
}

function fact(value) {
  if (Array.isArray(value)) return value.join("; ") || "none";
  if (value && typeof value === "object") return Object.entries(value).map(([n, v]) => `${n} ${Array.isArray(v) ? v.join(" × ") : v}`).join("; ");
  return String(value);
}

async function begin() {
  document.querySelector("[role=tablist]").addEventListener("keydown", (e) => {
    const open = TABS.filter((t) => !byId(`tab-${t}`).disabled);
    const at = open.findIndex((t) => byId(`tab-${t}`).getAttribute("aria-selected") === "true");
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: open.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    show(open[(to + open.length) % open.length], true);
  });
  for (const tab of TABS) byId(`tab-${tab}`).addEventListener("click", () => show(tab));
  const start = await ask("start");
  if (!start) return;
  byId("file").textContent = start.file || start.events || start.site || "";
  document.title = `${start.file || start.events || start.site} – fedcircuits`;
  Model.hasModel = start.columns !== null;
  Model.hasSite = start.site !== null;
  byId("tab-ask").disabled = start.columns === null;
  byId("tab-watch").disabled = start.events === null;
  if (start.events === null) byId("tab-watch").title = "To watch a training, name the file of train --watch: fedcircuits dashboard run.jsonl";
  byId("tab-model").disabled = start.columns === null && start.site === null;
  show(start.columns ? "ask" : start.events ? "watch" : "model");
  if (start.columns) Ask.begin(start);
  if (start.events) Watch.begin(start.events);
  let waits = null;
  addEventListener("resize", () => { clearTimeout(waits); waits = setTimeout(resize, 100); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}

begin();
