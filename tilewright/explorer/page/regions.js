// Sets of elements: a box as long as maps make boxes of boxes, else its elements, and where those are too many a box around them.
"use strict";

const volume = (box) => box.reduce((n, [low, high]) => n * (high - low + 1), 1);
const sides = (box) => `[${box.map(([low, high]) => (low === high ? low : `${low}…${high}`)).join(", ")}]`;
const hull = (a, b) => a.map(([low, high], k) => [Math.min(low, b[k][0]), Math.max(high, b[k][1])]);
const covers = (a, b) => a.every(([low, high], k) => low <= b[k][0] && b[k][1] <= high);

function meet(a, b) {
  const found = a.map(([low, high], k) => [Math.max(low, b[k][0]), Math.min(high, b[k][1])]);
  return found.every(([low, high]) => low <= high) ? found : null;
}

class Region {
  // `elements` (flat indices) is null where the set is all of `box`; `sure` says whether it is the set itself or only contains it.
  constructor(shape, box, elements = null, sure = true) {
    Object.assign(this, { shape, box, elements, sure });
  }

  static of(shape, elements) {
    const box = shape.map(() => [Infinity, -Infinity]);
    for (const at of elements) Shape.index(at, shape).forEach((i, k) => (box[k] = [Math.min(box[k][0], i), Math.max(box[k][1], i)]));
    return new Region(shape, box, elements.size && elements.size === volume(box) ? null : elements);
  }

  get size() {
    return this.elements ? this.elements.size : volume(this.box);
  }

  // Any element of it, or null.
  get first() {
    if (this.elements) return this.elements.size ? this.elements.values().next().value : null;
    return Shape.flat(this.box.map(([low]) => low), this.shape);
  }

  // Its elements as flat indices, those of a box in their order.
  *each() {
    if (this.elements) return yield* this.elements;
    const at = this.box.map(([low]) => low);
    for (;;) {
      yield Shape.flat(at, this.shape);
      let k = at.length - 1;
      while (k >= 0 && at[k] === this.box[k][1]) { at[k] = this.box[k][0]; k--; }
      if (k < 0) return;
      at[k]++;
    }
  }

  // Both sets together; of more than `most` elements that are no box, a box around them.
  with(other, most) {
    if (!this.size || !other.size) return this.size ? this : other;
    for (const [a, b] of [[this, other], [other, this]]) if (!a.elements && a.sure && covers(a.box, b.box)) return a;
    const around = hull(this.box, other.box), sure = this.sure && other.sure, both = meet(this.box, other.box);
    const together = volume(this.box) + volume(other.box) - (both ? volume(both) : 0);
    if (!sure || (!this.elements && !other.elements && together === volume(around))) return new Region(this.shape, around, null, sure);
    if (this.size + other.size > most) return new Region(this.shape, around, null, false);
    return Region.of(this.shape, new Set([...this.each(), ...other.each()]));
  }

  // How many, and the smallest box around them.
  words() {
    if (!this.size) return "no element";
    return `${this.sure ? "" : "at most "}${this.size} of ${Shape.elems(this.shape)}: ${sides(this.box)}${this.elements ? ", not all of them" : ""}`;
  }
}

// Whether a map makes a box of a box of indices, so that `Maps.box` is what it has and not only around it.
const Boxes = {
  // An affine formula as [[factor, variable]...]; null for others.
  affine(f) {
    if (typeof f === "number") return [];
    if (typeof f === "string") return [[1, f]];
    return f[0] === "+" && f.slice(2).every(([, atom]) => typeof atom === "string") ? f.slice(2) : null;
  },

  // A formula as floor(n / by) mod radix of an affine n, up to a shift and a sign: {n, by, radix}; null for others.
  digit(f) {
    if (Boxes.affine(f)) return { n: f, by: 1, radix: Infinity };
    const [kind, of, k] = f;
    if (kind === "+") return f.length === 3 && Math.abs(f[2][0]) === 1 ? Boxes.digit(f[2][1]) : null;
    if ((kind !== "/" && kind !== "%") || typeof k !== "number" || k <= 0) return null;
    const below = Boxes.digit(of);
    // A shift below a division is no digit of the same number.
    if (!below || below.radix !== Infinity || (of[0] === "+" && !Boxes.affine(of))) return null;
    return kind === "/" ? { ...below, by: below.by * k } : { ...below, radix: k };
  },

  // Whether an affine formula has every value between its ends when its variables have those of `at`.
  contiguous(n, at) {
    let reach = 0;
    const terms = Boxes.affine(n).map(([k, name]) => [Math.abs(k), at[name][1] - at[name][0]]).filter(([, extent]) => extent);
    return terms.sort(([a], [b]) => a - b).every(([k, extent]) => (k <= reach + 1 ? ((reach += k * extent), true) : false));
  },

  // `at` has the interval of each variable; `box` is what Maps.box has found.
  exact(m, at, shape) {
    const texts = m.results.map((f) => JSON.stringify(f)), cut = new Set();
    for (const [f, least, most] of m.constraints) {
      const [low, high] = Maps.interval(f, at);
      if (least <= low && high <= most) continue;
      const k = texts.indexOf(JSON.stringify(f));
      if (k < 0) return false;
      cut.add(k);
    }
    const groups = new Map(), owner = new Map();
    for (const [k, f] of m.results.entries()) {
      const digit = Boxes.digit(f), [low, high] = Maps.interval(f, at);
      if (low < 0 || high >= shape[k]) cut.add(k);
      if (!digit) return false;
      const key = JSON.stringify(digit.n), own = Boxes.affine(digit.n).filter(([, v]) => at[v][0] !== at[v][1]);
      if (!own.length) continue; // the same number for the whole box
      if (cut.has(k) && (digit.by !== 1 || digit.radix !== Infinity)) return false;
      for (const [, v] of own) if ((owner.get(v) ?? key) !== key) return false;
      own.forEach(([, v]) => owner.set(v, key));
      groups.set(key, [...(groups.get(key) || []), { ...digit, wide: high - low + 1 }]);
    }
    // The digits of one number are a box where there are as many of them as their intervals allow.
    for (const digits of groups.values()) {
      digits.sort((a, b) => a.by - b.by);
      if (!Boxes.contiguous(digits[0].n, at) || digits.some((d, k) => k && d.by !== digits[k - 1].by * digits[k - 1].radix)) return false;
      const [low, high] = Maps.interval(digits[0].n, at).map((i) => Math.floor(i / digits[0].by));
      const period = digits.reduce((n, d) => n * d.radix, 1);
      if (Math.min(high - low + 1, period) !== digits.reduce((n, d) => n * d.wide, 1)) return false;
    }
    return true;
  },
};

if (typeof module !== "undefined") module.exports = { Region, Boxes, volume, sides, hull, meet };
