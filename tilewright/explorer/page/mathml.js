// Maps as MathML, which browsers draw themselves.
"use strict";

const MathText = {
  esc: (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]),

  variable(name) {
    const [, letters, number] = /^([^0-9]*)([0-9]*)$/.exec(name) || [null, name, ""];
    const mi = `<mi>${MathText.esc(letters)}</mi>`;
    return number ? `<msub>${mi}<mn>${number}</mn></msub>` : mi;
  },

  of(f, inner = false) {
    if (typeof f === "number") return `<mn>${f < 0 ? "−" + -f : f}</mn>`;
    if (typeof f === "string") return MathText.variable(f);
    const [kind] = f, args = f.slice(1);
    if (kind === "+") {
      const parts = [];
      for (const [k, atom] of f.slice(2)) {
        const factor = Math.abs(k) === 1 ? "" : `<mn>${Math.abs(k)}</mn><mo>&#x2062;</mo>`;
        parts.push((k < 0 ? "<mo>−</mo>" : parts.length ? "<mo>+</mo>" : "") + factor + MathText.of(atom, true));
      }
      if (f[1]) parts.push(`<mo>${f[1] < 0 ? "−" : "+"}</mo><mn>${Math.abs(f[1])}</mn>`);
      const body = `<mrow>${parts.join("")}</mrow>`;
      return inner ? `<mrow><mo>(</mo>${body}<mo>)</mo></mrow>` : body;
    }
    if (kind === "/") return `<mrow><mo>⌊</mo><mfrac>${MathText.of(args[0])}${MathText.of(args[1])}</mfrac><mo>⌋</mo></mrow>`;
    const join = (sign) => args.map((a) => MathText.of(a, true)).join(`<mo>${sign}</mo>`);
    if (kind === "%") return `<mrow>${inner ? "<mo>(</mo>" : ""}${join("mod")}${inner ? "<mo>)</mo>" : ""}</mrow>`;
    if (kind === "*") return `<mrow>${join("·")}</mrow>`;
    return `<mrow><mo>${kind}</mo><mo>(</mo>${args.map((a) => MathText.of(a)).join("<mo>,</mo>")}<mo>)</mo></mrow>`;
  },

  map(m) {
    const list = (vs) => vs.map(([name]) => MathText.variable(name)).join("<mo>,</mo>");
    const group = (vs, open, close) => (vs.length ? `<mo>${open}</mo>${list(vs)}<mo>${close}</mo>` : "");
    const results = m.results.map((f) => MathText.of(f)).join("<mo>,</mo>");
    const head = `<mo>(</mo>${list(m.dims)}<mo>)</mo>${group(m.ranges, "[", "]")}${group(m.runtimes, "{", "}")}`;
    return `<math display="block"><mrow>${head}<mo>↦</mo><mo>(</mo>${results}<mo>)</mo></mrow></math>`;
  },

  domain(m) {
    const within = (v, low, high) => `<math><mrow><mn>${low}</mn><mo>≤</mo>${v}<mo>≤</mo><mn>${high}</mn></mrow></math>`;
    return [
      ...[...m.dims, ...m.ranges, ...m.runtimes].map(([name, low, high]) => within(MathText.variable(name), low, high)),
      ...m.constraints.map(([f, low, high]) => within(MathText.of(f), low, high)),
    ].join(", ");
  },
};
