// Arrays element by element: two dimensions of any number, the others on sliders.
"use strict";

const CELLS = 48; // in a row or column at most; of larger arrays a cell stands for a block of elements

class Grid {
  // `on` = {point(flat), choose(flat)}: the pointer is at an element; it was clicked, or reached by keys.
  constructor(app, value, on = {}) {
    this.app = app;
    this.value = value;
    this.shape = app.data.values[value].shape;
    this.on = on;
    const n = this.shape.length;
    this.rows = n > 1 ? n - 2 : -1;
    this.columns = n > 0 ? n - 1 : -1;
    this.others = this.shape.map(() => 0);
    this.layers = []; // [{elements: Set, colour} or {box: [[low, high]...], colour}]
    this.hatched = new Set();
    this.focus = null;
    this.build();
  }

  build() {
    const v = this.app.data.values[this.value];
    this.card = make("div", { class: "card" });
    this.head = make("h3", {}, `%${v.name} ${v.type.replace(/^tensor<(.*)>$/, "$1")}`);
    this.canvas = make("canvas", { tabindex: 0, role: "img" });
    this.note = make("p");
    this.card.append(this.head, this.canvas, this.note);
    if (this.shape.length > 2) this.card.append(this.choices());
    const at = (e) => this.elementAt(e);
    this.canvas.addEventListener("pointermove", (e) => this.on.point?.(at(e)));
    this.canvas.addEventListener("pointerleave", () => this.on.point?.(null));
    this.canvas.addEventListener("click", (e) => { const k = at(e); if (k !== null) this.on.choose?.(k); });
    this.canvas.addEventListener("keydown", (e) => this.key(e));
  }

  choices() {
    const all = make("div");
    const pick = (name, which) => {
      const select = make("select", { "aria-label": `${name} show dimension` });
      this.shape.forEach((n, k) => select.append(make("option", { value: k }, `d${k} (${n})`)));
      select.value = this[which];
      select.addEventListener("change", () => {
        const other = which === "rows" ? "columns" : "rows", before = this[which];
        this[which] = Number(select.value);
        if (this[other] === this[which]) this[other] = before;
        all.replaceWith(this.choices());
        this.draw();
      });
      return make("label", {}, `${name} `, select);
    };
    all.append(pick("rows", "rows"), pick("columns", "columns"));
    this.shape.forEach((n, k) => {
      if (k === this.rows || k === this.columns || n < 2) return;
      const slider = make("input", { type: "range", min: 0, max: n - 1, value: this.others[k], "aria-label": `d${k}` });
      const said = make("output", {}, ` ${this.others[k]}`);
      slider.addEventListener("input", () => {
        this.others[k] = Number(slider.value);
        said.textContent = ` ${slider.value}`;
        this.draw();
        this.on.slide?.(this);
      });
      all.append(make("label", {}, `d${k} `, slider, said));
    });
    this.sliders = all;
    return all;
  }

  // Shows the slice that an element lies in.
  show(flat) {
    const index = Shape.index(flat, this.shape);
    let moved = false;
    index.forEach((i, k) => {
      if (k === this.rows || k === this.columns || this.others[k] === i) return;
      this.others[k] = i;
      moved = true;
    });
    if (moved && this.sliders) this.sliders.replaceWith(this.choices());
  }

  get sizes() {
    const size = (k) => (k < 0 ? 1 : this.shape[k]);
    return [size(this.rows), size(this.columns)];
  }

  get blocks() {
    return this.sizes.map((n) => Math.max(1, Math.ceil(n / CELLS)));
  }

  flat(row, column) {
    const index = [...this.others];
    if (this.rows >= 0) index[this.rows] = row;
    if (this.columns >= 0) index[this.columns] = column;
    return Shape.flat(index, this.shape);
  }

  elementAt(e) {
    const box = this.canvas.getBoundingClientRect(), [rows, columns] = this.sizes, [high, wide] = this.blocks;
    const row = Math.floor((e.clientY - box.top - 1) / this.cell) * high;
    const column = Math.floor((e.clientX - box.left - 1) / this.cell) * wide;
    return row >= 0 && column >= 0 && row < rows && column < columns ? this.flat(row, column) : null;
  }

  key(e) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const [rows, columns] = this.sizes;
    const now = this.focus === null ? this.others.slice() : Shape.index(this.focus, this.shape);
    let row = this.rows < 0 ? 0 : now[this.rows], column = this.columns < 0 ? 0 : now[this.columns];
    if (steps[e.key]) [row, column] = [row + steps[e.key][0], column + steps[e.key][1]];
    else if (e.key === "Home") column = 0;
    else if (e.key === "End") column = columns - 1;
    else if (e.key !== "Enter") return;
    e.preventDefault();
    this.on.choose?.(this.flat(Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(column, 0), columns - 1)));
  }

  place(flat) {
    const index = Shape.index(flat, this.shape);
    if (index.some((i, k) => k !== this.rows && k !== this.columns && i !== this.others[k])) return null;
    const [high, wide] = this.blocks;
    return [Math.floor((this.rows < 0 ? 0 : index[this.rows]) / high), Math.floor((this.columns < 0 ? 0 : index[this.columns]) / wide)];
  }

  draw() {
    const [rows, columns] = this.sizes, [high, wide] = this.blocks;
    const across = Math.ceil(columns / wide), down = Math.ceil(rows / high);
    this.cell = Math.max(4, Math.min(22, Math.floor(288 / Math.max(across, down, 1))));
    const c = this.cell, sharp = window.devicePixelRatio || 1;
    this.canvas.width = across * c * sharp;
    this.canvas.height = down * c * sharp;
    this.canvas.style.width = `${across * c}px`;
    this.canvas.style.height = `${down * c}px`;
    const pen = this.canvas.getContext("2d"), gap = c > 6 ? 1 : 0;
    pen.scale(sharp, sharp);
    pen.fillStyle = colour("--back");
    pen.fillRect(0, 0, across * c, down * c);
    pen.fillStyle = colour("--cell");
    for (let i = 0; i < down; i++) for (let j = 0; j < across; j++) pen.fillRect(j * c, i * c, c - gap, c - gap);
    const fill = (place) => pen.fillRect(place[1] * c, place[0] * c, c - gap, c - gap);
    for (const layer of this.layers) {
      pen.fillStyle = colour(layer.colour);
      if (layer.box) {
        const inside = layer.box.every(([low, high], k) => k === this.rows || k === this.columns || (low <= this.others[k] && this.others[k] <= high));
        if (!inside) continue;
        const side = (k, block) => (k < 0 ? [0, 0] : layer.box[k].map((i) => Math.floor(i / block)));
        const [r0, r1] = side(this.rows, high), [c0, c1] = side(this.columns, wide);
        for (let i = r0; i <= r1; i++) for (let j = c0; j <= c1; j++) fill([i, j]);
      } else for (const k of layer.elements) { const place = this.place(k); if (place) fill(place); }
    }
    pen.strokeStyle = colour("--dim");
    pen.lineWidth = 1;
    for (const k of this.hatched) {
      const place = this.place(k);
      if (!place) continue;
      pen.beginPath();
      pen.moveTo(place[1] * c, (place[0] + 1) * c - gap);
      pen.lineTo((place[1] + 1) * c - gap, place[0] * c);
      pen.stroke();
    }
    const place = this.focus === null ? null : this.place(this.focus);
    if (place) {
      pen.strokeStyle = colour("--text");
      pen.lineWidth = 2;
      pen.strokeRect(place[1] * c + 1, place[0] * c + 1, c - gap - 2, c - gap - 2);
    }
    if (high * wide > 1) this.note.dataset.block = ` (a cell is ${high} × ${wide} elements)`;
    this.say(this.said || "");
  }

  say(text) {
    this.said = text;
    const hatched = this.hatched.size ? `; ${this.hatched.size} hatched` : "";
    this.note.textContent = text + hatched + (this.note.dataset.block || "");
    this.canvas.setAttribute("aria-label", `${this.head.textContent}: ${this.note.textContent}`);
  }
}
