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

  // value -> {region, depth, outside, unknown} from some elements of a value, at most `depth` ops away. Boxes are followed as
  // boxes; other sets element by element while `budget` lasts, and then by a box around them, which the region says.
  // `within`, where given, says which ops are walked through (those of one kernel).
  walk(start, elements, backward, depth = Infinity, within = null) {
    const { values, ops } = this.data;
    const found = new Map([[start, { region: Region.of(values[start].shape, new Set(elements)), depth: 0, outside: 0 }]]);
    this.left = this.budget;
    const order = [...ops.keys()];
    if (backward) order.reverse();
    const step = (op, from, to, rows, operand) => {
      const source = found.get(from);
      if (!source || !source.region.size || source.depth >= depth || !values[to].shape) return;
      let target = found.get(to), region = new Region(values[to].shape, [], new Set()), outside = 0, unknown = "";
      for (const number of rows) {
        const m = this.data.maps[number];
        if (m.unknown) { unknown = m.unknown; continue; }
        const image = this.image(m, source.region, values[to].shape, this.runtime(op, operand));
        region = region.with(image.region, this.budget);
        outside += image.outside;
      }
      if (!region.size && !unknown && !outside && !target) return;
      if (!target) found.set(to, (target = { region, depth: source.depth + 1, outside: 0 }));
      else target.region = target.region.with(region, this.budget);
      target.depth = Math.min(target.depth, source.depth + 1);
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

  // What a map has for a set: {region, outside}, `outside` for how many combinations its constraints do not hold.
  image(m, source, shape, runtime) {
    const nothing = new Region(shape, [], new Set()), at = Maps.ends(m, source.box, runtime);
    if (!at) return { region: nothing, outside: 0 };
    const holds = m.constraints.every(([f, least, most]) => {
      const [low, high] = Maps.interval(f, at);
      return least <= low && high <= most;
    });
    const exact = source.sure && !source.elements && Boxes.exact(m, at, shape), evaluations = source.size * Maps.count(m);
    if (source.sure && !(exact && holds) && evaluations <= this.left) {
      const hits = new Set();
      let outside = 0;
      this.left -= evaluations;
      for (const k of source.each())
        outside += Maps.each(m, Shape.index(k, source.shape), runtime,
          (index) => { if (Shape.inside(index, shape)) hits.add(Shape.flat(index, shape)); }, evaluations).outside;
      return { region: Region.of(shape, hits), outside };
    }
    const box = Maps.box(m, source.box, shape, runtime);
    return { region: box ? new Region(shape, box, null, exact) : nothing, outside: 0 };
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
  Object.assign(globalThis, require("./maps.js"), require("./regions.js"));
  module.exports = { Follow, Maps, Shape };
}
