// The page: what is chosen, what lights up, keys, theme.
"use strict";

function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function shape(tag, attributes = {}) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

function table(head, rows) {
  const line = (tag, cells) => { const r = make("tr"); cells.forEach((c) => r.append(make(tag, {}, c))); return r; };
  const t = make("table");
  t.append(line("th", head), ...rows.map((r) => line("td", r)));
  return t;
}

const many = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

const colours = new Map();
const colour = (name) => {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colours.get(name);
};
const $ = (id) => document.getElementById(id);

class App {
  constructor(data) {
    this.whole = data; // the entry's program, and those of loops and branches in `regions`
    this.data = data;
    this.program = 0;
    this.follow = new Follow(data);
    this.op = null;
    this.value = null;
    this.element = null;
    this.grids = new Map();
    // The system's theme, or the notebook's: browsers tell a frame of it, some of them when the page is already there.
    const dark = matchMedia("(prefers-color-scheme: dark)"), follow = () => this.theme(dark.matches ? "dark" : "light");
    this.themeIsChosen = false;
    dark.addEventListener("change", () => { if (!this.themeIsChosen) follow(); });
    follow();
    this.graph = new Graph(this, $("drawing"));
    this.tiles = new Tiles(this, $("tiles"));
    this.plan = new PlanView(this, $("plan"));
    this.stages = new Stages(this, $("stages"));
    this.programs();
    this.wire();
    this.graph.draw();
    this.view("elements");
    this.chooseFirst();
  }

  // ---------------------------------------------------------------- which program

  // The choice of a program, where there are loops or branches: 0 is the entry's, k the k-th region.
  programs() {
    const { regions } = this.whole, select = $("program");
    const depth = (k) => (k ? 1 + depth(regions[k - 1].around) : 0);
    select.append(make("option", { value: 0 }, this.whole.name));
    // A region stands below the program that it is in.
    const below = (around) => regions.forEach((r, n) => {
      if (r.around !== around) return;
      select.append(make("option", { value: n + 1 }, `${"\u2003".repeat(depth(n + 1))}${r.name}`));
      below(n + 1);
    });
    below(0);
    $("programs").hidden = !regions.length;
    this.title();
  }

  title() {
    const { ops, steps } = this.data, within = this.program ? `, ${this.data.name}` : "";
    $("title").textContent = `${this.whole.title}${within}: ${many(ops.length, "op")}, ${many(steps.length, "step")}`;
  }

  // Shows another program: that of a loop's or branch's region, or the one around.
  enter(k, op = null) {
    this.program = k;
    this.data = k ? { ...this.whole, ...this.whole.regions[k - 1] } : this.whole;
    this.follow = new Follow(this.data);
    $("program").value = k;
    this.title();
    this.op = this.value = this.element = null;
    $("direction").value = "reads";
    this.graph.begin();
    this.tiles.begin();
    this.plan.built = this.stages.built = false;
    this.graph.draw();
    if (op === null) this.chooseFirst();
    else this.chooseOp(op);
    this.view(["elements", "tiles", "plan", "stages", "help"].find((id) => !$(id).hidden));
  }

  chooseFirst() {
    const last = this.data.results.map((v) => this.follow.makers[v]).find((k) => k >= 0);
    if (last !== undefined) this.chooseOp(last);
    else if (this.data.values.length) this.chooseValue(0);
  }

  // ---------------------------------------------------------------- what is chosen

  chooseOp(k, centre = true) {
    this.op = k;
    this.graph.chosen = k;
    const op = this.data.ops[k];
    this.tiles.choose(op.step);
    this.value = op.results.find((v) => this.data.values[v].shape) ?? null;
    this.element = this.value === null ? null : this.middle(this.value);
    this.maps();
    this.rebuild();
    this.graph.light();
    if (centre && this.stages.built && !$("stages").hidden) this.stages.markOp(k, true);
  }

  chooseValue(v) {
    this.op = this.follow.makers[v] >= 0 ? this.follow.makers[v] : null;
    this.graph.chosen = this.op ?? `value ${v}`;
    this.value = v;
    this.element = this.data.values[v].shape ? this.middle(v) : null;
    if (this.op === null) $("direction").value = "feeds";
    this.maps();
    this.rebuild();
    this.graph.light();
  }

  chooseStep(k) {
    this.tiles.choose(k);
    if (!$("tiles").hidden && !this.tiles.built) this.tiles.build();
  }

  middle(v) {
    const shape = this.data.values[v].shape;
    return Shape.flat(shape.map((n) => Math.floor(n / 2)), shape);
  }

  // ---------------------------------------------------------------- maps

  maps() {
    const box = $("maps"), title = $("runtimes"), place = $("place");
    place.replaceChildren();
    box.replaceChildren();
    title.replaceChildren();
    if (this.op === null) {
      box.append(make("p", { class: "dim" }, this.data.values[this.value].kind === "constant" ? "A constant." : "An argument: nothing is read to have it."));
      return this.fromOutside(place);
    }
    const op = this.data.ops[this.op], name = (v) => `%${this.data.values[v].name}`;
    const sliders = new Map();
    this.placed(place, op);
    op.results.forEach((r, i) => op.operands.forEach((v, n) => {
      const numbers = op.reads[i][n] || [];
      const card = make("div", { class: "map" }, make("h3", {}, `${name(r)} reads ${name(v)}: ${this.data.values[v].type}`));
      const why = this.between(v, op);
      if (why) card.append(make("p", { class: "dim", "data-why": "" }, why));
      if (!numbers.length) card.append(make("p", { class: "dim" }, "Nothing."));
      for (const k of numbers) {
        const m = this.data.maps[k];
        if (m.unknown) { card.append(make("p", {}, `unknown: ${m.unknown}`)); continue; }
        const drawn = make("div");
        if (!m.empty) drawn.innerHTML = MathText.map(m) + `<p class="dim">${MathText.domain(m)}</p>`;
        const copy = make("button", {}, "copy LaTeX");
        copy.addEventListener("click", () => this.copy(m.latex, copy));
        const tex = make("details", {}, make("summary", {}, "LaTeX"), make("pre", {}, m.latex), copy);
        card.append(drawn, make("code", {}, m.text), tex);
        m.runtimes.forEach(([rt, low, high, label]) => sliders.set(`${this.op}:${n}:${rt}`, [rt, low, high, label, name(v)]));
      }
      box.append(card);
    }));
    if (sliders.size) title.append(make("h2", {}, "Runtime variables"));
    for (const [key, [rt, low, high, label, of]] of sliders) {
      const now = this.follow.runtimes.get(key) ?? Math.max(low, 0);
      const slider = make("input", { type: "range", min: low, max: high, value: now, "data-runtime": key });
      const said = make("output", {}, ` ${now}`);
      slider.addEventListener("input", () => {
        this.follow.runtimes.set(key, Number(slider.value));
        said.textContent = ` ${slider.value}`;
        this.relight();
      });
      title.append(make("label", {}, `${rt} of ${of}${label ? ` (the value of %${label})` : ""} in [${low}, ${high}] `, slider, said), make("br"));
    }
  }

  // Which kernel an op is in, and the programs inside it.
  placed(box, op) {
    const step = this.data.steps[op.step], again = this.data.steps.filter((s, k) => k !== op.step && s.ops.includes(this.op));
    const words = !step ? (op.operands.length ? "In no kernel." : "A constant: part of the kernels that read it.")
      : `In ${step.name}${step.ops.length > 1 ? ` with ${step.ops.length - 1} other op${step.ops.length > 2 ? "s" : ""}` : ""}${step.summary ? `: ${step.summary}` : ""}.`;
    const line = make("p", { class: "dim", id: "placed" }, words + (again.length ? ` Computed again in ${again.map((s) => s.name).join(", ")}.` : ""));
    box.append(line);
    if (!op.inside.length) return;
    const bar = make("p", { id: "inside" }, "Inside: ");
    for (const k of op.inside) {
      const r = this.whole.regions[k - 1], b = make("button", {}, `open ${r.name} (${many(r.ops.length, "op")})`);
      b.addEventListener("click", () => this.enter(k));
      bar.append(b, " ");
    }
    box.append(bar);
  }

  // Why an operand comes through memory: the reason of the two kernels.
  between(v, op) {
    const from = this.data.steps[this.data.ops[this.follow.makers[v]]?.step], to = this.data.steps[op.step];
    if (!from || !to || from === to) return "";
    const edge = this.data.edges.find(([a, b]) => a === from.name && b === to.name);
    return edge ? `through memory, ${from.name} → ${to.name}: ${edge[5]}${edge[6] ? ` (${edge[6]})` : ""}` : `through memory, ${from.name} → ${to.name}`;
  }

  // What an argument of a loop's body is: a value of the program around, and what the turn before made.
  fromOutside(box) {
    if (!this.program) return;
    const region = this.data, outer = region.around ? this.whole.regions[region.around - 1] : this.whole;
    const name = this.data.values[this.value].name, pair = region.outside.find(([v]) => v === this.value);
    const carried = region.carries.find(([argument]) => argument === name);
    const words = [];
    const isSame = carried && carried[2] === "invariant"; // the loop hands it on as it is
    const when = !carried ? "It is" : isSame ? "In every turn it is" : "In the first turn it is";
    if (pair) words.push(`${when} %${outer.values[pair[1]].name} of ${outer.name}.`);
    if (carried && !isSame) words.push(`Later it is %${carried[1]} of the turn before (${carried[2]}).`);
    const out = make("button", {}, `go to ${outer.name}`);
    out.addEventListener("click", () => this.enter(region.around, region.op));
    box.append(make("p", { id: "outside" }, `${words.join(" ")} `, out));
  }

  copy(text, button) {
    const done = () => { button.textContent = "copied"; setTimeout(() => (button.textContent = "copy LaTeX"), 1200); };
    const byHand = () => {
      const area = make("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      done();
    };
    if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(done, byHand);
    else byHand();
  }

  // ---------------------------------------------------------------- elements

  get depth() {
    return $("depth").value === "all" ? Infinity : Number($("depth").value);
  }

  rebuild() {
    this.grids.clear();
    $("grids").replaceChildren();
    this.relight();
  }

  relight(pointed = null) {
    const v = this.value, element = pointed ?? this.element, values = this.data.values;
    if (v === null || element === null) {
      $("said").textContent = "This op has no array of a fixed shape.";
      return;
    }
    const shape = values[v].shape, backward = $("direction").value === "reads";
    const found = Shape.elems(shape) ? this.follow.walk(v, [element], backward, this.depth) : new Map();
    const order = [...found.keys()].sort((a, b) => found.get(a).depth - found.get(b).depth);
    // Where it ends through all ops, arguments or results, is always shown and said first: that is what one asks for.
    const isEnd = (w) => w !== v && this.depth === Infinity && (backward ? values[w].kind === "argument" : this.data.results.includes(w));
    const some = new Set([v, ...order.filter(isEnd), ...order].filter((w) => values[w].shape).slice(0, 24));
    const shown = order.filter((w) => some.has(w));
    for (const w of [...this.grids.keys()]) if (!shown.includes(w)) { this.grids.get(w).card.remove(); this.grids.delete(w); }
    const words = [], between = [];
    let isAround = false;
    for (const w of shown) {
      const { region, outside, unknown } = found.get(w);
      if (!this.grids.has(w)) this.add(w);
      const grid = this.grids.get(w), own = w === v;
      grid.layers = own ? [] : [{ elements: region.elements, box: region.elements ? null : region.box, colour: "--lit" }];
      grid.focus = own ? element : null;
      if (own) { grid.layers = [{ elements: new Set([element]), colour: "--mine" }]; grid.show(element); }
      else if (region.size) grid.show(region.first);
      const text = own ? `element [${Shape.index(element, shape).join(", ")}]` : unknown ? `unknown: ${unknown}` : region.words();
      const notes = (region.sure ? "" : "; a box around them, too many to follow one by one") + (outside ? `; ${outside} time${outside === 1 ? "" : "s"} a condition does not hold: padding, or another side` : "");
      grid.say(text + notes);
      grid.draw();
      isAround = isAround || !region.sure;
      if (!own) (isEnd(w) ? words : between).push(`%${values[w].name} ${unknown ? "(unknown)" : region.words()}`);
    }
    $("grids").append(...shown.map((w) => this.grids.get(w).card));
    const verb = backward ? "reads" : "feeds";
    // Where it ends without an argument: what a loop reads is known inside of it alone.
    const ends = backward ? [...new Set(order.filter((w) => found.get(w).depth < this.depth && this.data.ops[this.follow.makers[w]]?.inside.length).map((w) => this.data.steps[this.data.ops[this.follow.makers[w]].step]?.name ?? `%${values[w].name}`))] : [];
    if (!backward) for (const k of this.follow.captors[v]) words.push(`what is inside %${values[this.data.ops[k].results[0]]?.name ?? "a loop"}`);
    const told = [...words, ...between.slice(0, Math.max(0, 8 - words.length))], more = order.length - 1 - told.length;
    $("said").textContent = `%${values[v].name}[${Shape.index(element, shape).join(", ")}] ${verb} ${told.join("; ") || "nothing"}`
      + (ends.length ? `; it ends at ${ends.join(", ")}: open what is inside to go on` : "")
      + `${more > 0 ? `; and ${many(more, "more array")} on the way` : ""}${isAround ? ". “At most”: a box around what cannot be followed one by one" : ""}`;
    if (pointed === null && document.activeElement !== $("index")) $("index").value = Shape.index(element, shape).join(", ");
    this.graph.light(new Set(order.filter((w) => found.get(w).region.size || w === v)));
  }

  add(w) {
    const own = w === this.value;
    const grid = new Grid(this, w, {
      point: (k) => { if (w === this.value) this.relight(k); },
      choose: (k) => {
        if (w !== this.value) { this.value = w; this.op = this.follow.makers[w] >= 0 ? this.follow.makers[w] : null; this.graph.chosen = this.op ?? `value ${w}`; this.maps(); }
        this.element = k;
        this.relight();
        this.grids.get(w)?.canvas.focus();
      },
      slide: (g) => { if (g.value === this.value) { this.element = g.flat(...this.row(g)); this.relight(); } },
    });
    if (own && this.op !== null) {
      const op = this.data.ops[this.op], i = op.results.indexOf(w);
      if (i >= 0 && op.operands.length) grid.hatched = this.follow.unread(this.op, i, 0);
    }
    this.grids.set(w, grid);
  }

  row(grid) {
    const index = Shape.index(this.element, grid.shape);
    return [grid.rows < 0 ? 0 : index[grid.rows], grid.columns < 0 ? 0 : index[grid.columns]];
  }

  // ---------------------------------------------------------------- views, theme, keys

  view(name) {
    for (const id of ["elements", "tiles", "plan", "stages", "help"]) {
      $(id).hidden = id !== name;
      $(`tab-${id}`).setAttribute("aria-selected", id === name);
    }
    document.body.classList.toggle("wide", name === "stages");
    if (name === "tiles" && !this.tiles.built) this.tiles.build();
    else if (name === "tiles") this.tiles.show();
    if (name !== "tiles") this.tiles.stop();
    if (name === "plan") this.plan.build();
    if (name === "stages" && !this.stages.built) this.stages.build();
    if (name === "elements" && this.value !== null) this.relight();
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    colours.clear();
    for (const grid of [...this.grids.values(), ...(this.tiles?.grids?.values() ?? [])]) grid.draw();
  }

  wire() {
    for (const id of ["elements", "tiles", "plan", "stages", "help"]) $(`tab-${id}`).addEventListener("click", () => this.view(id));
    $("theme").addEventListener("click", () => {
      this.themeIsChosen = true;
      this.theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    });
    $("direction").addEventListener("change", () => this.rebuild());
    $("depth").addEventListener("change", () => this.rebuild());
    $("index").addEventListener("change", () => this.write());
    $("grouping").addEventListener("change", () => {
      Object.assign(this.graph, { grouping: $("grouping").value, view: null });
      this.graph.group();
      this.graph.draw();
    });
    $("program").addEventListener("change", () => this.enter(Number($("program").value)));
    $("fold").addEventListener("click", () => { this.graph.groups.forEach((g) => this.graph.closed.add(g.key)); this.graph.view = null; this.graph.draw(); });
    $("unfold").addEventListener("click", () => { this.graph.closed.clear(); this.graph.view = null; this.graph.draw(); });
    $("constants").addEventListener("change", () => {
      Object.assign(this.graph, { constants: $("constants").checked, view: null });
      this.graph.group();
      this.graph.draw();
    });
    $("nearer").addEventListener("click", () => this.graph.zoom(0.8));
    $("farther").addEventListener("click", () => this.graph.zoom(1.25));
    $("fit").addEventListener("click", () => this.graph.fit());
    $("find").addEventListener("change", () => this.find($("find").value.trim().replace(/^%/, "")));
    document.addEventListener("keydown", (e) => {
      if (["INPUT", "SELECT", "TEXTAREA"].includes(e.target.tagName) || e.ctrlKey || e.metaKey || e.altKey) return;
      const views = { 1: "elements", 2: "tiles", 3: "stages", 4: "plan", 5: "help" };
      if (views[e.key]) this.view(views[e.key]);
      else if (e.key === "t") $("theme").click();
      else if (e.key === "+") this.graph.zoom(0.8);
      else if (e.key === "-") this.graph.zoom(1.25);
      else if (e.key === "0") this.graph.fit();
      else if (e.key === " " && !$("tiles").hidden && e.target.tagName !== "BUTTON") { e.preventDefault(); this.tiles.toggle(); }
    });
  }

  // An index that was written: `3, 5`.
  write() {
    const shape = this.value === null ? null : this.data.values[this.value].shape, text = $("index").value.trim();
    const index = text === "" ? [] : text.split(/[\s,]+/).map(Number);
    if (!shape || index.length !== shape.length || !index.every(Number.isInteger) || !Shape.inside(index, shape)) {
      $("said").textContent = `expected an index into [${shape}], found ${text}`;
      return;
    }
    this.element = Shape.flat(index, shape);
    this.relight();
  }

  // By its whole name in this program, then in another, then by a part of it: {op} or, for an argument or a constant, {value}.
  find(text) {
    const among = ({ ops, values }, fits) => {
      const op = ops.findIndex((o) => o.results.some((v) => fits(values[v].name)));
      const value = op < 0 ? values.findIndex((v) => v.kind !== "value" && fits(v.name)) : -1;
      return op >= 0 ? { op } : value >= 0 ? { value } : null;
    };
    const partly = (program) => {
      const op = program.ops.findIndex((o) => o.name.includes(text));
      return among(program, (name) => name.includes(text)) || (op >= 0 ? { op } : null);
    };
    const programs = [this.whole, ...this.whole.regions], order = [this.program, ...programs.keys()];
    for (const look of [(p) => among(p, (name) => name === text), partly]) {
      const k = text === "" ? undefined : order.find((k) => look(programs[k]));
      if (k === undefined) continue;
      const { op, value } = look(programs[k]);
      if (k !== this.program) this.enter(k, op ?? null);
      if (op !== undefined) {
        if (this.graph.homeOf.has(op)) this.graph.centre(`op ${op}`);
        return this.chooseOp(op);
      }
      this.graph.centre(`value ${value}`);
      return this.chooseValue(value);
    }
    $("said").textContent = `no op or value called ${text}`;
  }
}

if (typeof document !== "undefined") window.app = new App(JSON.parse($("data").textContent));
