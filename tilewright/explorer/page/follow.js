// Elements followed through ops: what an element reads (backward), and what it feeds (forward).
"use strict";

class Follow {
  constructor(data, budget = 400000) {
    this.data = data;
    this.budget = budget;
    this.runtimes = new Map(); // "op:operand:name" -> the value that was chosen by hand
    this.users = data.values.map(() => []);
    this.makers = data.values.map(() => -1);
    this.captors = data.values.map(() => []); // the loops and branches that read a value inside of them
    data.ops.forEach((op, k) => {
      op.operands.forEach((v, n) => this.users[v].push([k, n]));
      op.results.forEach((v) => (this.makers[v] = k));
      op.captured.forEach((v) => this.captors[v].push(k));
    });
  }

  runtime(op, operand) {
    return (name, low) => this.runtimes.get(`${op}:${operand}:${name}`) ?? Math.max(low, 0);
  }

  // value -> {elements: Set of flat indices, depth, partial, outside} from some elements of a value, at most `depth` ops away.
  // `within`, where given, says which ops are walked through (those of one kernel).
  walk(start, elements, backward, depth = Infinity, within = null) {
    const { values, ops, maps } = this.data;
    const found = new Map([[start, { elements: new Set(elements), depth: 0, partial: false, outside: 0 }]]);
    let budget = this.budget;
    const order = [...ops.keys()];
    if (backward) order.reverse();
    const step = (op, from, to, rows, operand) => {
      const source = found.get(from);
      if (!source || source.depth >= depth || !values[from].shape || !values[to].shape) return;
      const shape = values[to].shape;
      let target = found.get(to);
      const before = target ? target.elements.size : 0;
      const hits = target ? target.elements : new Set();
      let outside = 0, partial = source.partial, unknown = "";
      for (const number of rows) {
        const m = maps[number];
        if (m.unknown) { unknown = m.unknown; continue; }
        for (const at of source.elements) {
          if (budget <= 0) { partial = true; break; }
          const done = Maps.each(m, Shape.index(at, values[from].shape), this.runtime(op, operand),
            (index) => { if (Shape.inside(index, shape)) hits.add(Shape.flat(index, shape)); }, budget);
          budget = done.left - 1;
          outside += done.outside;
        }
      }
      if (hits.size === before && !unknown && !outside && !target) return;
      if (!target) found.set(to, (target = { elements: hits, depth: source.depth + 1, partial: false, outside: 0 }));
      target.depth = Math.min(target.depth, source.depth + 1);
      target.partial = target.partial || partial || budget <= 0;
      target.outside += outside;
      if (unknown) target.unknown = unknown;
    };
    for (const k of order) {
      const op = ops[k];
      if (within && !within(k)) continue;
      op.results.forEach((r, i) => op.operands.forEach((v, n) => {
        if (backward) step(k, r, v, op.reads[i][n] || [], n);
        else step(k, v, r, (op.feeds[n] || [])[i] || [], n);
      }));
    }
    return found;
  }

  // value -> the smallest box around the elements that a box of a value reads, through the ops that `within` names.
  boxes(start, box, within) {
    const { values, ops, maps } = this.data;
    const found = new Map([[start, box]]);
    for (let k = ops.length - 1; k >= 0; k--) {
      if (!within(k)) continue;
      ops[k].results.forEach((r, i) => ops[k].operands.forEach((v, n) => {
        if (!found.has(r) || !values[v].shape) return;
        for (const number of ops[k].reads[i][n] || []) {
          const read = maps[number].unknown ? values[v].shape.map((size) => [0, size - 1]) : Maps.box(maps[number], found.get(r), values[v].shape);
          const old = found.get(v);
          if (read) found.set(v, old ? read.map(([low, high], d) => [Math.min(low, old[d][0]), Math.max(high, old[d][1])]) : read);
        }
      }));
    }
    return found;
  }

  // The elements of an op's result for which the operand is not read at all: padding, and the other side of a choice.
  unread(op, result, operand, limit = 65536) {
    const { values, ops, maps } = this.data;
    const shape = values[ops[op].results[result]].shape, rows = ops[op].reads[result][operand] || [];
    const blank = new Set();
    if (!shape || Shape.elems(shape) > limit || rows.some((n) => maps[n].unknown)) return blank;
    if (rows.length && rows.every((n) => !maps[n].constraints.length && !maps[n].empty && this.whole(maps[n], shape))) return blank;
    for (let at = 0; at < Shape.elems(shape); at++) {
      let hit = false;
      for (const n of rows) Maps.each(maps[n], Shape.index(at, shape), this.runtime(op, operand), () => (hit = true), 4096);
      if (!hit) blank.add(at);
    }
    return blank;
  }

  whole(m, shape) {
    return m.dims.every(([, low, high], k) => low <= 0 && high >= shape[k] - 1) && Maps.count(m) > 0;
  }
}

if (typeof module !== "undefined") {
  Object.assign(globalThis, require("./maps.js"));
  module.exports = { Follow, Maps, Shape };
}
