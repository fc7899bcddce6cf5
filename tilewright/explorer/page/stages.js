// The way of a program side by side: its text, the ops of its normal form, the loops of its kernels, the source.
"use strict";

class Stages {
  constructor(app, section) {
    this.app = app;
    this.section = section;
  }

  build() {
    this.built = true;
    const { data } = this.app;
    this.byName = new Map();
    data.values.forEach((v, k) => this.byName.set(v.name, k));
    const ops = data.ops.map((op, k) => {
      const name = (v) => `%${data.values[v].name}`, type = op.results.map((v) => data.values[v].type).join(", ");
      return { text: `${op.results.map(name).join(", ")} = ${op.name.replace("stablehlo.", "")}(${op.operands.map(name).join(", ")}) : ${type}`, ops: [k] };
    });
    const loops = [], source = [];
    data.steps.forEach((s, k) => {
      loops.push({ text: `# ${s.name}: ${s.kind}${s.loops ? "" : ", " + s.summary}`, ops: [], step: k });
      (s.loops || "").split("\n").filter(Boolean).forEach((text) => loops.push({ text, ops: this.stored(text, k), step: k }));
      source.push({ text: `# ${s.name}`, ops: [], step: k });
      (s.source || "").split("\n").filter(Boolean).forEach((text) => source.push({ text, ops: this.stored(text, k), step: k }));
    });
    const lines = new Map(); // of the text -> ops
    data.ops.forEach((op, k) => { if (op.line) lines.set(op.line, [...(lines.get(op.line) || []), k]); });
    const text = data.text.split("\n").map((t, n) => ({ text: t, ops: lines.get(n + 1) || [] }));
    this.columns = [["Text", text], ["Ops", ops], ["Loops", loops], ["Source", source]];
    const all = make("div", { class: "columns" });
    this.columns.forEach(([title, rows]) => {
      const column = make("div", { class: "column", tabindex: 0, role: "group", "aria-label": title }, make("h3", {}, title));
      rows.forEach((row) => {
        row.node = make("span", { class: "line" });
        row.node.innerHTML = coloured(row.text);
        row.node.addEventListener("pointerenter", () => this.mark(row));
        row.node.addEventListener("click", () => { this.mark(row, true); if (row.ops.length) this.app.chooseOp(row.ops[0], false); });
        column.append(row.node);
      });
      all.append(column);
    });
    this.section.replaceChildren(make("p", { id: "stage-said", role: "status", class: "dim" }, "Point at a line to see where it comes from and where it went; click to scroll there."), all);
    if (this.app.op !== null) this.markOp(this.app.op, true);
  }

  // The ops of a step whose value a line of loops or source stores to (their names are those of memories there).
  stored(text, step) {
    const target = /^\s*([A-Za-z_]\w*)\[[^\]]*\]\s*[^\s=]{0,10}=(?!=)/.exec(text)?.[1];
    if (!target) return [];
    const name = this.byName.has(target) ? target : target.replace(/_(tile|lanes|part|rows)[0-9]*$/, "");
    const v = this.byName.get(name);
    const op = v === undefined ? -1 : this.app.follow.makers[v];
    return op >= 0 && this.app.data.ops[op].step === step ? [op] : [];
  }

  // An op's line of loops: its own, or that of the op which it is computed in.
  within(op) {
    const { ops } = this.app.data, own = new Set(this.columns[2][1].flatMap((r) => r.ops)), seen = new Set();
    let front = [op];
    while (front.length) {
      const hit = front.filter((k) => own.has(k));
      if (hit.length) return hit;
      front.forEach((k) => seen.add(k));
      front = [...new Set(front.flatMap((k) => ops[k].results.flatMap((v) => this.app.follow.users[v].map(([u]) => u))))]
        .filter((u) => ops[u].step === ops[op].step && !seen.has(u));
    }
    return [];
  }

  markOp(op, scroll) {
    this.mark({ ops: [op] }, scroll);
  }

  mark(row, scroll = false) {
    const ops = new Set(row.ops), homes = new Set(row.ops.flatMap((k) => this.within(k)));
    // From loops and source also the ops that are computed within the line.
    const back = new Set(row.step !== undefined ? this.app.data.ops.map((o, k) => k).filter((k) => this.within(k).some((h) => ops.has(h))) : row.ops);
    this.columns.forEach(([, rows], n) => {
      let first = null;
      rows.forEach((r) => {
        const exact = r === row || r.ops.some((k) => ops.has(k)), near = n < 2 ? r.ops.some((k) => back.has(k)) : r.ops.some((k) => homes.has(k));
        r.node.classList.toggle("marked", exact);
        r.node.classList.toggle("near", !exact && near);
        if ((exact || near) && !first) first = r.node;
      });
      if (scroll && first && first !== row.node) first.parentNode.scrollTop = first.offsetTop - first.parentNode.offsetTop - 60;
    });
    const name = (k) => `%${this.app.data.values[this.app.data.ops[k].results[0]]?.name}`;
    const said = this.section.querySelector("#stage-said");
    const own = row.ops.map(name).join(", "), homesSaid = [...homes].filter((k) => !ops.has(k)).map(name).join(", ");
    if (own) said.textContent = `${own}${homesSaid ? `, computed where ${homesSaid} is stored` : ""}, in ${this.app.data.steps[this.app.data.ops[row.ops[0]].step]?.name ?? "no kernel"}`;
  }
}

// A line with numbers, words of loops and names of values in colours.
function coloured(text) {
  return MathText.esc(text)
    .replace(/\b(for|in|range|def|phase|reduction|if|else|return|func|while)\b|(%[A-Za-z0-9_]+|stablehlo\.\w+)|(?<![\w%#.])(-?\d+(?:\.\d+)?(?:e-?\d+)?)\b/g,
      (all, word, op, number) => (word ? `<span class="word-key">${word}</span>` : op ? `<span class="word-op">${op}</span>` : `<span class="word-number">${number}</span>`));
}
