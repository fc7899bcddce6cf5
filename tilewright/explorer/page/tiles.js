// The tiles of a kernel one after the other: what is loaded, what stays, what is stored, and what that means for the time.
"use strict";

class Tiles {
  constructor(app, section) {
    this.app = app;
    this.section = section;
    this.timer = null;
    this.begin();
  }

  begin() {
    this.stop();
    this.built = false;
    const { app } = this;
    this.kernels = app.data.steps.map((s, k) => k).filter((k) => app.data.steps[k].kind === "kernel");
    this.kernel = this.kernels[0] ?? null;
  }

  choose(step) {
    if (this.kernels.includes(step) && step !== this.kernel) { this.kernel = step; this.built = false; }
  }

  build() {
    this.built = true;
    this.stop();
    const { steps, values } = this.app.data;
    this.section.replaceChildren();
    if (this.kernel === null) return this.section.append(make("p", {}, "No kernel: everything runs in the evaluator or a library."));
    const step = steps[this.kernel], select = make("select", { "aria-label": "kernel" });
    this.kernels.forEach((k) => select.append(make("option", { value: k }, steps[k].name)));
    select.value = this.kernel;
    select.addEventListener("change", () => { this.kernel = Number(select.value); this.build(); });
    const named = (name) => values.findIndex((v) => v.name === name);
    this.outputs = step.outputs.map(named).filter((v) => v >= 0 && values[v].shape);
    this.root = this.outputs[0];
    const shape = this.root === undefined ? [] : values[this.root].shape;
    this.sizes = shape.map((n, k) => Math.min(n, step.tiles.length === shape.length ? step.tiles[k] || n : n));
    const bar = make("div", { class: "bar" }, make("label", {}, "kernel ", select));
    this.inputs = this.sizes.map((size, k) => {
      const input = make("input", { type: "number", min: 1, max: shape[k], value: size, "aria-label": `tile size of dimension ${k}` });
      input.addEventListener("change", () => {
        this.sizes[k] = Math.min(Math.max(1, Number(input.value) || 1), shape[k]);
        input.value = this.sizes[k];
        this.at = 0;
        this.show();
      });
      bar.append(make("label", {}, `d${k} tile `, input));
      return input;
    });
    const button = (id, text, go) => { const b = make("button", { id }, text); b.addEventListener("click", go); bar.append(b); return b; };
    button("tile-back", "◂", () => this.move(-1)).setAttribute("aria-label", "tile before");
    this.play = button("tile-play", "play", () => this.toggle());
    button("tile-next", "▸", () => this.move(1)).setAttribute("aria-label", "next tile");
    this.said = make("p", { role: "status", "aria-live": "polite", id: "tile-said" });
    const key = make("p", { class: "dim" });
    for (const [c, text] of [["--lit", "loaded for this tile"], ["--kept", "kept from the tile before"], ["--old", "loaded before"], ["--mine", "stored by this tile"]])
      key.append(make("span", { style: "white-space: nowrap" }, make("span", { class: "key", style: `background:var(${c})` }), text), " ");
    this.meter = make("div", { class: "meter", role: "img" });
    this.cards = make("div");
    this.figures = make("div");
    this.section.append(bar, this.said, key, this.meter, make("p", { class: "dim", id: "tile-bytes" }), this.cards, this.figures);
    this.at = 0;
    this.grids = new Map();
    const used = [...new Set([...step.inputs.map(named), ...this.outputs])].filter((v) => v >= 0 && values[v].shape);
    for (const v of used) {
      const grid = new Grid(this.app, v);
      this.grids.set(v, grid);
      this.cards.append(grid.card);
    }
    this.figures.append(make("h2", {}, "Where it lies"), table(["memory", "where", "holds", "bytes"],
      step.buffers.map(([name, scope, holds, size]) => [name, { thread: "scratch of a thread", argument: "argument", result: "result" }[scope] || scope, holds, bytes(size)])),
      make("h2", {}, "Cost"), this.choices(step), this.roofline());
    this.show();
  }

  // Kernels of loops' bodies are planned once.
  others(step) {
    return (this.app.program === 0 && this.app.data.others[step.name]) || [];
  }

  // The plans with other tiles: what each would cost, and its loops.
  choices(step) {
    const others = this.others(step), best = Math.min(...others.map((o) => o.seconds));
    const all = make("div", { id: "tile-choices" }), loops = make("pre", { id: "tile-loops" }, step.loops);
    this.cost = make("p", { id: "tile-cost", role: "status" }, step.estimate);
    all.append(this.cost);
    if (others.length > 1) {
      const t = table(["tiles", "predicted", "tasks", "scratch"], others.map((o) => {
        const b = make("button", {}, o.tiles.join(" × "));
        b.addEventListener("click", () => {
          this.sizes = this.sizes.map((n, k) => Math.min(o.tiles[k], this.app.data.values[this.root].shape[k]));
          this.inputs.forEach((input, k) => (input.value = this.sizes[k]));
          this.at = 0;
          this.show();
        });
        return [b, `${duration(o.seconds)}${o.seconds === best ? ", the least" : ""}`, o.tasks, bytes(o.scratch)];
      }));
      all.append(make("p", { class: "dim" }, "Planned with other tiles; click to see them."), t);
    }
    all.append(make("details", {}, make("summary", {}, "its loops"), loops));
    return all;
  }

  // The plan of the sizes that are shown, where there is one.
  planned() {
    const step = this.app.data.steps[this.kernel], others = this.others(step);
    const own = step.tiles.length === this.sizes.length && this.sizes.every((n, k) => n === step.tiles[k]);
    const found = others.find((o) => o.tiles.length === this.sizes.length && this.sizes.every((n, k) => n === o.tiles[k]));
    const plan = own ? step : found;
    this.cost.textContent = plan ? `${this.sizes.join(" × ")}: ${plan.estimate}${own ? " (the plan's choice)" : ""}`
      : `${this.sizes.join(" × ")}: not planned in this page; tiling.plan(module, pins=[tiling.Pin(ops, (${this.sizes.join(", ")}))]) does`;
    this.section.querySelector("#tile-loops").textContent = plan ? plan.loops : "";
  }

  get counts() {
    const shape = this.app.data.values[this.root].shape;
    return shape.map((n, k) => Math.ceil(n / this.sizes[k]));
  }

  box(at) {
    const shape = this.app.data.values[this.root].shape, index = Shape.index(at, this.counts);
    return index.map((i, k) => [i * this.sizes[k], Math.min(shape[k], (i + 1) * this.sizes[k]) - 1]);
  }

  // value -> the box that a tile reads of it (a superset where maps are not affine).
  reads(at) {
    const { ops } = this.app.data;
    return this.app.follow.boxes(this.root, this.box(at), (k) => ops[k].step === this.kernel);
  }

  show() {
    if (this.root === undefined) return;
    const { values } = this.app.data, total = Shape.elems(this.counts), now = this.reads(this.at), before = this.at ? this.reads(this.at - 1) : new Map();
    let fresh = 0, kept = 0;
    const words = [];
    for (const [v, grid] of this.grids) {
      const v_ = values[v], each = v_.shape.length ? v_.bytes / Shape.elems(v_.shape) : v_.bytes;
      if (this.outputs.includes(v)) {
        const own = v === this.root ? this.box(this.at) : null;
        grid.layers = own ? [{ box: own, colour: "--mine" }] : [];
        if (own) { grid.show(Shape.flat(own.map(([low]) => low), v_.shape)); grid.say(`stored: ${volume(own)} elements`); }
        grid.draw();
        continue;
      }
      const box = now.get(v), old = before.get(v), both = box && old ? meet(box, old) : null;
      grid.layers = [];
      if (old) grid.layers.push({ box: old, colour: "--old" });
      if (box) grid.layers.push({ box, colour: "--lit" });
      if (both) grid.layers.push({ box: both, colour: "--kept" });
      const stays = both ? volume(both) : 0, loads = (box ? volume(box) : 0) - stays;
      fresh += loads * each;
      kept += stays * each;
      if (box) { grid.show(Shape.flat(box.map(([low]) => low), v_.shape)); words.push(`%${v_.name} ${sides(box)}`); }
      grid.say(box ? `${loads} loaded, ${stays} kept: ${sides(box)}` : "not read by this tile");
      grid.draw();
    }
    this.said.textContent = `Tile ${this.at + 1} of ${total}: stores %${values[this.root].name} ${sides(this.box(this.at))}; reads at most ${words.join(", ") || "nothing"}`;
    const most = Math.max(fresh + kept, 1);
    this.meter.replaceChildren(make("span", { class: "new", style: `width:${(100 * fresh) / most}%` }), make("span", { class: "kept", style: `width:${(100 * kept) / most}%` }));
    const said = `${bytes(fresh)} loaded, ${bytes(kept)} kept from the tile before; ${many(total, "tile")} of ${this.sizes.join(" × ") || "one element"}`;
    this.meter.setAttribute("aria-label", said);
    this.section.querySelector("#tile-bytes").textContent = said;
    this.planned();
  }

  move(by) {
    const total = Shape.elems(this.counts);
    this.at = (this.at + by + total) % total;
    this.show();
  }

  toggle() {
    if (this.timer) return this.stop();
    this.timer = setInterval(() => this.move(1), 400);
    this.play.textContent = "pause";
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.play) this.play.textContent = "play";
  }

  // Operations a byte against operations a second, under the machine's limits; both axes logarithmic.
  roofline() {
    const { steps, machine } = this.app.data, wide = 460, high = 220, [low, most] = [-2, 4];
    const x = (v) => 40 + ((Math.log10(v) - low) / (most - low)) * (wide - 60);
    const peak = machine.flops / 1e9, roof = (i) => Math.min(peak, (i * machine.bandwidth) / 1e9), floor = roof(10 ** low);
    const y = (v) => high - 30 - (Math.log10(Math.max(v, floor) / floor) / Math.log10(peak / floor)) * (high - 50);
    const svg = shape("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img" });
    const points = [];
    for (let e = low; e <= most; e += 0.1) points.push(`${x(10 ** e)},${y(roof(10 ** e))}`);
    svg.append(shape("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor" }));
    const label = (px, py, text, anchor = "start") => { const t = shape("text", { x: px, y: py, "text-anchor": anchor }); t.textContent = text; svg.append(t); };
    label(wide - 10, high - 6, "operations a byte", "end");
    label(4, 12, `GFLOP/s, at most ${peak.toFixed(0)}; ${(machine.bandwidth / 1e9).toFixed(0)} GB/s`);
    const words = [];
    for (const k of this.kernels) {
      const s = steps[k];
      if (!s.operations || !s.bytes || !(s.seconds > 0)) continue;
      const [i, speed] = [s.operations / s.bytes, s.operations / s.seconds / 1e9], mine = k === this.kernel;
      svg.append(shape("circle", { cx: x(Math.min(Math.max(i, 0.01), 1e4)), cy: y(speed), r: mine ? 6 : 3, fill: mine ? "var(--lit)" : "var(--mine)" }));
      if (mine) { label(x(i) + 9, y(speed) + 14, s.name); words.push(`${s.name}: ${i.toPrecision(2)} operations a byte, ${speed.toPrecision(2)} GFLOP/s predicted`); }
    }
    svg.setAttribute("aria-label", `Roofline. ${words.join("; ")}`);
    return make("div", {}, svg, make("p", { class: "dim" }, words.join("; ")));
  }
}

function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024 || unit === "GiB") return `${unit === "B" ? n : n.toPrecision(3)} ${unit}`;
    n /= 1024;
  }
}
