// Index maps in the page: formulas are numbers, names of variables, or [operation, ...]; data.py makes them.
"use strict";

const Maps = {
  // The value of a formula; "/" floors and "%" has the divisor's sign, as in Python.
  value(f, at) {
    if (typeof f === "number") return f;
    if (typeof f === "string") return at[f];
    const [kind] = f;
    if (kind === "+") {
      let sum = f[1];
      for (let k = 2; k < f.length; k++) sum += f[k][0] * Maps.value(f[k][1], at);
      return sum;
    }
    const parts = f.slice(1).map((x) => Maps.value(x, at));
    if (kind === "/") return Math.floor(parts[0] / parts[1]);
    if (kind === "%") return parts[0] - parts[1] * Math.floor(parts[0] / parts[1]);
    if (kind === "*") return parts.reduce((a, b) => a * b, 1);
    return kind === "min" ? Math.min(...parts) : Math.max(...parts);
  },

  holds(m, at) {
    return m.constraints.every(([f, low, high]) => {
      const v = Maps.value(f, at);
      return low <= v && v <= high;
    });
  },

  // [lowest, highest] of a formula where each variable has an interval.
  interval(f, at) {
    if (typeof f === "number") return [f, f];
    if (typeof f === "string") return at[f];
    const [kind] = f;
    if (kind === "+") {
      let [low, high] = [f[1], f[1]];
      for (const [k, atom] of f.slice(2)) {
        const [a, b] = Maps.interval(atom, at);
        [low, high] = k > 0 ? [low + k * a, high + k * b] : [low + k * b, high + k * a];
      }
      return [low, high];
    }
    const parts = f.slice(1).map((x) => Maps.interval(x, at));
    if (kind === "min") return [Math.min(...parts.map((p) => p[0])), Math.min(...parts.map((p) => p[1]))];
    if (kind === "max") return [Math.max(...parts.map((p) => p[0])), Math.max(...parts.map((p) => p[1]))];
    const [[a, b], [c, d]] = parts;
    const ends = (g) => { const all = [g(a, c), g(a, d), g(b, c), g(b, d)]; return [Math.min(...all), Math.max(...all)]; };
    if (kind === "*") return parts.length === 2 ? ends((x, y) => x * y) : [-Infinity, Infinity];
    if (c !== d || c <= 0) return kind === "%" ? [Math.min(0, c), Math.max(0, d)] : ends((x, y) => (y ? Math.floor(x / y) : 0));
    if (kind === "/") return [Math.floor(a / c), Math.floor(b / c)];
    return Math.floor(a / c) === Math.floor(b / c) ? [a - c * Math.floor(a / c), b - c * Math.floor(b / c)] : [0, c - 1];
  },

  // The interval of each variable where the indices are in a box; null where the map has nothing for it. `runtime` is what a
  // runtime variable is set to; without it, it may be all of its interval.
  ends(m, box, runtime = null) {
    if (m.unknown || m.empty) return null;
    const at = {};
    for (let k = 0; k < m.dims.length; k++) {
      const [name, low, high] = m.dims[k];
      at[name] = [Math.max(box[k][0], low), Math.min(box[k][1], high)];
      if (at[name][0] > at[name][1]) return null;
    }
    for (const [name, low, high] of m.ranges) {
      if (low > high) return null;
      at[name] = [low, high];
    }
    for (const [name, low, high] of m.runtimes) at[name] = runtime ? Array(2).fill(runtime(name, low, high)) : [low, high];
    return at;
  },

  // The smallest intervals around what a map has for a box of indices, within `shape`; null where there is nothing.
  box(m, box, shape, runtime = null) {
    const at = Maps.ends(m, box, runtime);
    if (!at) return null;
    const found = m.results.map((f, k) => {
      let [low, high] = Maps.interval(f, at);
      for (const [g, least, most] of m.constraints)
        if (JSON.stringify(g) === JSON.stringify(f)) [low, high] = [Math.max(low, least), Math.min(high, most)];
      return [Math.max(low, 0), Math.min(high, shape[k] - 1)];
    });
    return found.some(([low, high]) => low > high) ? null : found;
  },

  // How many combinations of its ranges a map has.
  count(m) {
    return m.ranges.reduce((n, [, low, high]) => n * Math.max(0, high - low + 1), 1);
  },

  // Calls visit(index) for each element that the map has for `index`; `runtime(name, low, high)` is a runtime variable's value.
  // Gives {left, outside}: how many of `budget` evaluations are left, and for how many combinations the constraints do not hold.
  each(m, index, runtime, visit, budget) {
    const none = { left: budget, outside: 0 };
    if (m.unknown || m.empty) return none;
    const at = {};
    for (let k = 0; k < m.dims.length; k++) {
      const [name, low, high] = m.dims[k];
      if (index[k] < low || index[k] > high) return none;
      at[name] = index[k];
    }
    for (const [name, low, high] of m.runtimes) at[name] = runtime(name, low, high);
    let outside = 0;
    const walk = (k) => {
      if (budget <= 0) return;
      if (k === m.ranges.length) {
        budget--;
        if (Maps.holds(m, at)) visit(m.results.map((f) => Maps.value(f, at)));
        else outside++;
        return;
      }
      const [name, low, high] = m.ranges[k];
      for (let i = low; i <= high && budget > 0; i++) {
        at[name] = i;
        walk(k + 1);
      }
    };
    walk(0);
    return { left: budget, outside };
  },
};

const Shape = {
  elems: (shape) => shape.reduce((a, b) => a * b, 1),
  flat: (index, shape) => index.reduce((at, i, k) => at * shape[k] + i, 0),
  index(at, shape) {
    const found = new Array(shape.length);
    for (let k = shape.length - 1; k >= 0; k--) {
      found[k] = at % shape[k];
      at = Math.floor(at / shape[k]);
    }
    return found;
  },
  inside: (index, shape) => index.every((i, k) => i >= 0 && i < shape[k]),
};

if (typeof module !== "undefined") module.exports = { Maps, Shape };
