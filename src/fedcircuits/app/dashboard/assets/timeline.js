"use strict";
// Who computes and who waits: one line per party, time from left to right.

const Timeline = {
  lines: new Map(), // party → pieces {from, state}, each until the next begins

  reset() { this.lines.clear(); },

  // From this moment on a party is in another state: "computes", "waits", "lost", or "" for gone.
  turn(party, state, at) {
    const pieces = this.lines.get(party) || this.lines.set(party, []).get(party);
    const last = pieces[pieces.length - 1];
    if (!last || last.state !== state) pieces.push({ from: at, state });
  },

  draw(until) {
    const canvas = byId("timeline"), names = [...this.lines.keys()];
    const width = canvas.parentElement.clientWidth, high = names.length > 12 ? 14 : 20, scale = devicePixelRatio || 1;
    if (!width || !until) return;
    canvas.width = width * scale;
    canvas.height = (names.length * high + 20) * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = `${high > 14 ? 12 : 10}px system-ui`;
    pen.textBaseline = "middle";
    const room = Math.min(width / 3, 8 + Math.max(0, ...names.map((n) => pen.measureText(n).width)));
    const x = (at) => room + (width - room - 2) * Math.min(at / until, 1);
    names.forEach((name, i) => this.line(pen, name, i * high, high, room, x, until));
    pen.fillStyle = colour("faint");
    pen.font = "11px system-ui";
    const step = roundStep(until / Math.max(2, Math.floor((width - room) / 90)));
    for (let at = 0; at <= until; at += step) {
      pen.textAlign = at === 0 ? "left" : x(at) > width - 30 ? "right" : "center";
      pen.fillText(`${short(at)} s`, x(at), names.length * high + 12);
    }
    canvas.setAttribute("aria-label", `who computes and who waits: ${names.map((n) => this.words(n, until)).join("; ")}`);
  },

  line(pen, name, top, high, room, x, until) {
    pen.fillStyle = colour("ink");
    pen.textAlign = "left";
    pen.fillText(fitting(pen, name, room - 8), 0, top + high / 2);
    const pieces = this.lines.get(name);
    pieces.forEach((piece, i) => {
      const [from, to] = [x(piece.from), x(i + 1 < pieces.length ? pieces[i + 1].from : until)];
      const waits = piece.state === "waits";
      if (!piece.state) return;
      pen.fillStyle = colour({ computes: "after", waits: "pale", lost: "bad" }[piece.state]);
      pen.fillRect(from, top + (waits ? 0.4 : 0.2) * high, Math.max(to - from, waits ? 0 : 1), (waits ? 0.2 : 0.6) * high);
    });
  },

  words(name, until) {
    const pieces = this.lines.get(name);
    const waited = pieces.reduce((sum, p, i) => sum + (p.state === "waits" ? (i + 1 < pieces.length ? pieces[i + 1].from : until) - p.from : 0), 0);
    const lost = pieces.find((p) => p.state === "lost");
    return `${name} waited ${percent(Math.min(waited / until, 1))} of the time${lost ? ` and was lost after ${seconds(lost.from)}` : ""}`;
  },
};

// The next of 1, 2, 5, 10, 20 …
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((n) => n * power >= least);
}

function fitting(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  while (text && pen.measureText(`${text}…`).width > room) text = text.slice(0, -1);
  return `${text}…`;
}
