"use strict";
// Watch: events of a training are read as its file grows.

const QUIET = 20; // seconds without an event
const STATES = { step: "computes", message: "computes", round: "computes", wait: "waits", lost: "lost", done: "" };

const Watch = {
  place: 0, parties: new Map(), phases: new Map(), times: [], likelihoods: [], sizes: [], faults: [], last: null, timer: null,

  begin(name) {
    this.name = name;
    byId("watch-state").textContent = `Waiting for ${name} …`;
    this.poll();
  },

  reset() {
    this.parties.clear(); this.phases.clear(); Timeline.reset();
    this.times = []; this.likelihoods = []; this.sizes = []; this.faults = []; this.last = null;
  },

  async poll() {
    const found = await ask(`events?from=${this.place}`);
    if (found) {
      if (found.anew) this.reset();
      this.place = found.next;
      found.events.forEach((e) => this.take(e));
      this.quiet = found.quiet;
      if (found.events.length || found.anew || found.quiet > QUIET) this.draw();
    }
    const more = found && found.events.length > 0;
    this.timer = setTimeout(() => this.poll(), more ? 250 : 700);
  },

  take(e) {
    if (e.kind === "begin") {
      if (e.messages === 0 && this.last && this.last.kind === "end") this.reset();
      for (const [name, p] of this.parties) if (!e.party.split(", ").includes(name)) p.state = p.state === "lost" ? "lost" : "left out";
      e.party.split(", ").forEach((name) => this.parties.set(name, { state: "begins", waits: "", round: "", since: e.seconds }));
      e.party.split(", ").forEach((name) => Timeline.turn(name, "computes", e.seconds));
    }
    const party = this.parties.get(e.party);
    // Who waits for a lost party is lost with it, and says why: that is not a fault of its own.
    const fault = e.kind === "lost" && !this.faults.some((f) => e.text.includes(f.text));
    if (party && STATES[e.kind] !== undefined) Timeline.turn(e.party, e.kind === "lost" && !fault ? "" : STATES[e.kind], e.seconds);
    if (party) {
      if (e.kind === "step") Object.assign(party, { state: e.text, waits: "", since: e.seconds });
      if (e.kind === "wait") Object.assign(party, { state: "waits", waits: `${e.other} (${e.text})`, since: e.seconds });
      if (e.kind === "message") Object.assign(party, { state: `sends ${e.text} to ${e.other}`, waits: "", since: e.seconds });
      if (e.kind === "round") party.round = e.rounds ? `${e.phase} ${e.round} of ${e.rounds}` : `${e.phase} ${e.round}`;
      if (e.kind === "done") Object.assign(party, { state: "has finished", waits: "", since: e.seconds });
      if (e.kind === "lost") Object.assign(party, { state: "lost", waits: "", since: e.seconds });
    }
    if (fault) this.faults.push({ at: e.seconds, text: e.text });
    if (e.kind === "end") for (const p of this.parties.values()) if (p.state !== "lost" && p.state !== "left out") Object.assign(p, { state: "has finished", waits: "" });
    if (e.phase) {
      const before = this.last || { messages: 0, bytes: 0, seconds: 0 };
      const phase = this.phases.get(e.phase) || { messages: 0, bytes: 0, seconds: 0 };
      phase.messages += e.messages - before.messages; phase.bytes += e.bytes - before.bytes; phase.seconds += e.seconds - before.seconds;
      this.phases.set(e.phase, phase);
    }
    this.times.push(e.seconds); this.likelihoods.push(e.likelihood); this.sizes.push(e.bytes);
    this.last = e;
  },

  draw() {
    const e = this.last;
    if (!e) return;
    const over = e.kind === "end";
    const round = e.rounds ? `, round ${e.round} of ${e.rounds}` : e.round ? `, round ${e.round}` : "";
    const left = !over && e.left !== null ? `, at most ${duration(e.left)} left in this phase` : "";
    const quiet = !over && this.quiet > QUIET ? ` No news for ${duration(this.quiet)}: a long step, or the training was stopped.` : "";
    byId("watch-state").textContent = `${over ? "Training has ended" : `Phase ${e.phase || "beginning"}${round}`}: `
      + `${seconds(e.seconds)}, ${e.messages.toLocaleString("en")} messages, ${bytesWords(e.bytes)}${left}.${quiet}`;
    byId("watch-state").dataset.over = String(over);
    const bar = byId("watch-bar");
    bar.hidden = over || !e.rounds;
    if (e.rounds) { bar.max = e.rounds; bar.value = e.round; }
    byId("parties").tBodies[0].replaceChildren(...[...this.parties].map(([name, p]) => element("tr", { class: p.state === "lost" ? "lost" : "", "data-party": name },
      ...[name, p.state, p.waits, p.round, seconds(p.since)].map((t, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, t)))));
    byId("faults").replaceChildren(...(this.faults.length ? this.faults.map((f) => `${seconds(f.at)}: ${f.text}`) : ["No party was lost."]).map((t) => element("li", {}, t)));
    byId("phases").tBodies[0].replaceChildren(...[...this.phases].map(([name, p]) => element("tr", {},
      ...[name, p.messages.toLocaleString("en"), bytesWords(p.bytes), seconds(p.seconds)].map((t, i) => element("td", { class: i ? "number" : "" }, t)))));
    this.curves();
  },

  curves() {
    if (byId("watch").hidden) return;
    const big = { small: false, height: 180, xWords: (n) => `${short(n)} s` };
    if (!this.likelihood) {
      this.likelihood = chart(byId("likelihood"), [{ label: "log-likelihood", colour: "after" }], big);
      this.bytes = chart(byId("bytes"), [{ label: "bytes", colour: "pinned", fill: true }], { ...big, yWords: bytesWords });
    }
    const told = this.likelihoods.some((l) => l !== null);
    byId("likelihood").hidden = !told;
    byId("unlikely").hidden = told;
    byId("unlikely").textContent = `${this.last && this.last.kind === "end" ? "This training reported no likelihood." : "No likelihood reported yet."} Methods without EM or gradients report none, and sites keep those of their own rows.`;
    Timeline.draw(this.last ? this.last.seconds : 0);
    const step = Math.max(1, Math.ceil(this.times.length / 2000));
    const some = (list) => list.filter((_, i) => i % step === 0 || i === list.length - 1);
    this.likelihood.setData([some(this.times), some(this.likelihoods)]);
    this.bytes.setData([some(this.times), some(this.sizes)]);
  },

  recolour() {
    for (const plot of [this.likelihood, this.bytes]) if (plot) plot.destroy();
    this.likelihood = this.bytes = null;
    this.curves();
  },

  resize() {
    if (this.last && !byId("watch").hidden) Timeline.draw(this.last.seconds);
    for (const [plot, id] of [[this.likelihood, "likelihood"], [this.bytes, "bytes"]])
      if (plot) plot.setSize({ width: Math.max(byId(id).clientWidth, 100), height: 180 });
  },
};
