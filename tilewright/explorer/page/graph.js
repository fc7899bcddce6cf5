// The program as boxes: ops in kernels, or in name scopes, from arguments at the top to results at the bottom.
"use strict";

const OP_WIDE = 150, OP_HIGH = 24, ROW = 46, PAD = 12;
const READABLE = 1.5; // units of the picture for a pixel

class Graph {
  constructor(app, svg) {
    this.app = app;
    this.svg = svg;
    this.grouping = "steps";
    this.constants = false; // whether ops without operands have boxes
    this.begin();
    this.pointer();
  }

  // A program that was not shown before: boxes of long ones are closed.
  begin() {
    this.closed = new Set();
    this.chosen = null;
    this.lastLit = new Set();
    this.view = null;
    this.group();
    if (this.app.data.ops.length > 40) this.groups.forEach((g) => this.closed.add(g.key));
  }

  // The boxes: {key, title, kind, ops}; arguments are boxes of their own.
  group() {
    const { ops, steps } = this.app.data, found = new Map();
    const add = (key, title, kind, k) => {
      if (!found.has(key)) found.set(key, { key, title, kind, ops: [] });
      found.get(key).ops.push(k);
    };
    ops.forEach((op, k) => {
      if (!this.constants && op.step < 0 && !op.operands.length) return;
      if (this.grouping === "scopes") {
        const parts = op.scope.split("/").slice(0, -1), depth = ops.length > 400 ? 2 : 3;
        const name = parts.slice(0, depth).join("/") || "(no scope)";
        add(`scope ${name}`, name, "scope", k);
      } else if (op.step >= 0) add(`step ${op.step}`, steps[op.step].name, steps[op.step].kind, k);
      else add(`op ${k}`, op.name.replace("stablehlo.", ""), "free", k);
    });
    this.groups = [...found.values()];
    this.homeOf = new Map();
    this.groups.forEach((g) => g.ops.forEach((k) => this.homeOf.set(k, g)));
  }

  // Levels by longest paths; boxes in a circle (scopes that feed each other) share what they have.
  levels(nodes, sources) {
    const level = new Map(nodes.map((n) => [n, 0]));
    for (let round = 0; round < Math.min(nodes.length, 60); round++) {
      let moved = false;
      for (const n of nodes) {
        const wanted = Math.max(0, ...sources(n).filter((s) => level.has(s) && s !== n).map((s) => level.get(s) + 1));
        if (wanted > level.get(n) && wanted <= nodes.length) { level.set(n, wanted); moved = true; }
      }
      if (!moved) break;
    }
    return level;
  }

  inner(g) {
    if (g.kind === "free") return { wide: OP_WIDE, high: OP_HIGH, places: new Map([[g.ops[0], [0, 0]]]) };
    if (this.closed.has(g.key)) return { wide: OP_WIDE + 2 * PAD, high: OP_HIGH + 2 * PAD, places: new Map() };
    const { ops } = this.app.data, makers = this.app.follow.makers, own = new Set(g.ops);
    const sources = (k) => ops[k].operands.map((v) => makers[v]).filter((m) => own.has(m));
    const level = this.levels(g.ops, sources), rows = new Map();
    g.ops.forEach((k) => rows.set(level.get(k), [...(rows.get(level.get(k)) || []), k]));
    const most = Math.max(1, ...[...rows.values()].map((r) => r.length)), places = new Map();
    const wide = most * (OP_WIDE + 8) + 2 * PAD;
    [...rows.keys()].sort((a, b) => a - b).forEach((l, i) => {
      const row = rows.get(l), begin = (wide - row.length * (OP_WIDE + 8)) / 2;
      row.forEach((k, j) => places.set(k, [begin + j * (OP_WIDE + 8) + 4, PAD + 16 + i * ROW]));
    });
    return { wide, high: rows.size * ROW + PAD + 10, places };
  }

  draw() {
    const { data, follow } = this.app, { ops, values } = data;
    const keys = this.groups.map((g) => g.key), by = new Map(this.groups.map((g) => [g.key, g]));
    const feeding = new Map(keys.map((key) => [key, new Set()])), order = new Map(keys.map((key, k) => [key, k]));
    this.groups.forEach((g) => g.ops.forEach((k) => [...ops[k].operands, ...ops[k].captured].forEach((v) => {
      const from = this.homeOf.get(follow.makers[v])?.key;
      // Scopes may feed each other: what comes first in the program stands above.
      if (from && order.get(from) < order.get(g.key)) feeding.get(g.key).add(from);
    })));
    const level = this.levels(keys, (key) => [...feeding.get(key)]);
    const rows = new Map();
    keys.forEach((key) => rows.set(level.get(key) + 1, [...(rows.get(level.get(key) + 1) || []), key]));
    const inner = new Map(keys.map((key) => [key, this.inner(by.get(key))]));
    const given = values.map((v, k) => k).filter((k) => values[k].kind === "argument");
    const shownArguments = given.filter((v) => follow.users[v].length || follow.captors[v].length || data.results.includes(v)).slice(0, 24);
    // Many arguments stand in several rows, above all others.
    for (let k = 0; k * 5 < shownArguments.length; k++) rows.set(k - 1000, shownArguments.slice(5 * k, 5 * k + 5).map((v) => `value ${v}`));
    shownArguments.forEach((v) => inner.set(`value ${v}`, { wide: OP_WIDE, high: OP_HIGH, places: new Map() }));
    this.places = new Map();
    let top = 0, most = 0;
    for (const l of [...rows.keys()].sort((a, b) => a - b)) {
      const row = rows.get(l);
      most = Math.max(most, row.reduce((n, key) => n + inner.get(key).wide + 20, 0));
    }
    for (const l of [...rows.keys()].sort((a, b) => a - b)) {
      const row = rows.get(l), total = row.reduce((n, key) => n + inner.get(key).wide + 20, -20);
      let left = (most - total) / 2;
      for (const key of row) {
        this.places.set(key, [left, top, inner.get(key)]);
        left += inner.get(key).wide + 20;
      }
      if (row.length) top += Math.max(...row.map((key) => inner.get(key).high)) + 40;
    }
    this.size = [Math.max(most, 200), Math.max(top, 100)];
    this.svg.replaceChildren();
    // Boxes below the edges, ops above them.
    [this.boxes, this.edges, this.tops] = ["g", "g", "g"].map((tag) => this.svg.appendChild(shape(tag)));
    this.edges.setAttribute("pointer-events", "none");
    this.nodes = new Map();
    for (const [key, [x, y, box]] of this.places) {
      if (key.startsWith("value ")) this.argument(Number(key.slice(6)), x, y);
      else this.box(by.get(key), x, y, box);
    }
    this.connect();
    if (!this.view) this.fit(READABLE);
    this.light();
  }

  button(parent, kind, x, y, wide, high, label, said, click) {
    const g = shape("g", { class: kind, transform: `translate(${x},${y})`, tabindex: 0, role: "button", "aria-label": said });
    g.append(shape("rect", { class: "box", width: wide, height: high, rx: 5 }));
    const text = shape("text", { x: 6, y: 16 });
    const most = Math.floor((wide - 10) / 6.7);
    text.textContent = label.length > most ? label.slice(0, most - 1) + "…" : label;
    const title = shape("title");
    title.textContent = said;
    g.append(text, title);
    const go = (e) => { e.stopPropagation(); if (!this.dragged) click(); };
    g.addEventListener("click", go);
    g.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); this.dragged = false; go(e); } });
    parent.append(g);
    return g;
  }

  argument(v, x, y) {
    const value = this.app.data.values[v];
    const g = this.button(this.tops, "argument", x, y, OP_WIDE, OP_HIGH, `%${value.name}`, `argument %${value.name}: ${value.type}`,
      () => this.app.chooseValue(v));
    this.nodes.set(`value ${v}`, g);
  }

  box(g, x, y, inner) {
    if (g.kind === "free") return this.ops(inner, x, y);
    const step = g.kind === "scope" ? null : this.app.data.steps[Number(g.key.slice(5))];
    const said = `${g.title}: ${g.ops.length} op${g.ops.length === 1 ? "" : "s"}${step?.summary ? ", " + step.summary : ""}`;
    const label = this.closed.has(g.key) ? `▸ ${g.title} (${g.ops.length})` : `▾ ${g.title}`;
    const node = this.button(this.boxes, g.kind, x, y, inner.wide, inner.high, label, said, () => {
      if (this.closed.has(g.key)) this.closed.delete(g.key);
      else this.closed.add(g.key);
      if (step) this.app.chooseStep(Number(g.key.slice(5)));
      this.draw();
      this.nodes.get(g.key)?.focus();
    });
    this.nodes.set(g.key, node);
    this.ops(inner, x, y);
  }

  ops(inner, x, y) {
    for (const [k, [ox, oy]] of inner.places) {
      const op = this.app.data.ops[k], result = this.app.data.values[op.results[0]];
      const name = op.name.replace(/^stablehlo\.|^chlo\./, "");
      const words = `${name} %${result?.name ?? ""}: ${result?.type ?? "no result"}`;
      const inside = op.inside.length ? "↳ " : "", more = op.inside.length ? `, with ${many(op.inside.length, "program")} inside` : "";
      // `broadcast_in_dim %broadcast_in_dim_4` would be cut before its number.
      const own = `%${result?.name ?? ""}`, label = own.startsWith(`%${name}`) ? own : `${name} ${own}`;
      const node = this.button(this.tops, "op", x + ox, y + oy, OP_WIDE, OP_HIGH, inside + label, words + more, () => this.app.chooseOp(k));
      if (op.inside.length) node.addEventListener("dblclick", () => this.app.enter(op.inside[op.inside.length - 1]));
      this.nodes.set(`op ${k}`, node);
    }
  }

  // Where an op stands: in its box, or its box where that is closed.
  spot(k) {
    const g = this.homeOf.get(k);
    if (!g) return null;
    const [x, y, inner] = this.places.get(g.key), own = inner.places.get(k);
    return own ? [x + own[0], y + own[1], OP_WIDE, OP_HIGH] : [x, y, inner.wide, inner.high];
  }

  connect() {
    const { ops } = this.app.data, makers = this.app.follow.makers, seen = new Map();
    ops.forEach((op, k) => [...op.operands, ...op.captured].forEach((v) => {
      const from = makers[v] >= 0 ? this.spot(makers[v]) : this.places.has(`value ${v}`) ? [...this.places.get(`value ${v}`).slice(0, 2), OP_WIDE, OP_HIGH] : null;
      const to = this.spot(k), id = `${from} ${to}`;
      if (!from || !to || String(from) === String(to)) return;
      if (!seen.has(id)) {
        const [x0, y0, x1, y1] = [from[0] + from[2] / 2, from[1] + from[3], to[0] + to[2] / 2, to[1]], bend = Math.max(12, (y1 - y0) / 2);
        // What goes past other boxes leaves and comes by their sides.
        const far = y1 - y0 > 60 && Math.abs(x1 - x0) < OP_WIDE, side = Math.max(from[0] + from[2], to[0] + to[2]) + 10 + Math.min(60, (y1 - y0) / 9);
        const path = shape("path", { class: "edge", d: far
          ? `M${from[0] + from[2]} ${y0 - 10} C${side} ${y0 - 6} ${side} ${y1 + 8} ${to[0] + to[2]} ${y1 + 12}`
          : `M${x0} ${y0} C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}` });
        this.edges.append(path);
        seen.set(id, { path, pairs: [] });
      }
      seen.get(id).pairs.push([v, k]);
    }));
    this.paths = [...seen.values()];
  }

  // Marks the op that was chosen, and what is lit on the way.
  light(lit = this.lastLit || new Set()) {
    this.lastLit = lit;
    for (const [key, node] of this.nodes) {
      const k = Number(key.split(" ")[1]);
      const value = key.startsWith("value ") ? k : null;
      const isOp = key.startsWith("op ");
      node.classList.toggle("chosen", isOp ? this.chosen === k : value !== null && this.chosen === `value ${value}`);
      node.classList.toggle("lit", value !== null ? lit.has(value) : isOp && this.app.data.ops[k].results.some((v) => lit.has(v)));
    }
    for (const { path, pairs } of this.paths)
      path.classList.toggle("lit", pairs.some(([v, k]) => lit.has(v) && this.app.data.ops[k].results.some((r) => lit.has(r))));
  }

  // ---------------------------------------------------------------- zoom

  // All of it; at first no farther than words can be read.
  fit(most = Infinity) {
    const box = this.svg.getBoundingClientRect(), scale = Math.min(Math.max(this.size[0] / (box.width || 1), this.size[1] / (box.height || 1), 0.7), most);
    this.view = [(this.size[0] - box.width * scale) / 2, -10, scale];
    this.fitted = { view: this.view, most };
    this.look();
  }

  look() {
    const box = this.svg.getBoundingClientRect(), [x, y, scale] = this.view;
    this.svg.setAttribute("viewBox", `${x} ${y} ${Math.max(1, box.width * scale)} ${Math.max(1, box.height * scale)}`);
  }

  zoom(factor, at = null) {
    const box = this.svg.getBoundingClientRect(), [x, y, scale] = this.view;
    const [px, py] = at || [box.width / 2, box.height / 2], next = Math.min(Math.max(scale * factor, 0.2), 60);
    this.view = [x + px * (scale - next), y + py * (scale - next), next];
    this.look();
  }

  // `op 3` or `value 3`; what has no box (one of very many arguments) leaves the picture where it is.
  centre(key) {
    const k = Number(key.split(" ")[1]), isOp = key.startsWith("op ");
    if (isOp) this.closed.delete(this.homeOf.get(k).key);
    this.draw();
    if (!isOp && !this.places.has(key)) return;
    const [x, y, wide, high] = isOp ? this.spot(k) : [...this.places.get(key).slice(0, 2), OP_WIDE, OP_HIGH], box = this.svg.getBoundingClientRect(), scale = Math.min(this.view[2], 1.2);
    this.view = [x + wide / 2 - (box.width * scale) / 2, y + high / 2 - (box.height * scale) / 2, scale];
    this.look();
  }

  pointer() {
    let from = null;
    this.svg.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(e.deltaY > 0 ? 1.15 : 0.87, [e.offsetX, e.offsetY]); }, { passive: false });
    this.svg.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY, ...this.view]; this.dragged = false; });
    window.addEventListener("pointermove", (e) => {
      if (!from) return;
      const [dx, dy] = [e.clientX - from[0], e.clientY - from[1]];
      if (Math.abs(dx) + Math.abs(dy) > 5) this.dragged = true;
      if (this.dragged) { this.view = [from[2] - dx * from[4], from[3] - dy * from[4], from[4]]; this.look(); }
    });
    window.addEventListener("pointerup", () => (from = null));
    // What was fitted fits the new size, too: a frame in a notebook has none when its page begins.
    new ResizeObserver(() => {
      if (!this.view) return;
      if (this.fitted?.view === this.view) this.fit(this.fitted.most);
      else this.look();
    }).observe(this.svg);
  }
}
