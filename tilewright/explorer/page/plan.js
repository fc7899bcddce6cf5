// The steps of a program in a table, and what lies between them: why two kernels are not one.
"use strict";

class PlanView {
  constructor(app, section) {
    this.app = app;
    this.section = section;
    this.by = "order";
    this.falling = true;
  }

  build() {
    this.built = true;
    const { steps, edges, decisions } = this.app.data;
    this.section.replaceChildren();
    const bytesOf = (s) => s.bytes || 0, secondsOf = (s) => s.seconds || 0;
    const total = steps.reduce((n, s) => n + bytesOf(s), 0), time = steps.reduce((n, s) => n + secondsOf(s), 0);
    const share = (n, of) => (of ? ` (${((100 * n) / of).toFixed(0)} %)` : "");
    this.columns = {
      order: ["step", (s, k) => -k, (s) => s.name],
      what: ["what it does", (s) => s.summary, (s) => s.summary || s.kind],
      ops: ["ops", (s) => s.ops.length, (s) => `${s.ops.length}`],
      bytes: ["bytes moved", bytesOf, (s) => (s.kind === "control" ? "see inside" : bytes(bytesOf(s)) + share(bytesOf(s), total))],
      operations: ["operations", (s) => s.operations || 0, (s) => (s.operations ? counted(s.operations) : "-")],
      tasks: ["tasks", (s) => s.tasks || 0, (s) => (s.tasks ? `${s.tasks} of ${s.tiles.join(" × ") || "1"}` : "-")],
      scratch: ["scratch", (s) => s.scratch || 0, (s) => (s.scratch ? bytes(s.scratch) : "-")],
      time: ["predicted", secondsOf, (s) => (s.seconds ? duration(s.seconds) + share(s.seconds, time) : "-")],
    };
    this.said = make("p", { role: "status", id: "plan-said" });
    const names = [...new Set([...edges.flatMap(([a, b]) => [a, b]), ...decisions.flatMap(([a, b]) => [a, b])])];
    const choice = (id, words) => {
      const select = make("select", { id }, make("option", { value: "" }, words));
      names.forEach((n) => select.append(make("option", { value: n }, n)));
      select.addEventListener("change", () => this.reasons());
      return select;
    };
    this.from = choice("plan-from", "any");
    this.to = choice("plan-to", "any");
    this.body = make("div");
    this.why = make("div", { id: "plan-why" });
    this.section.append(this.said, this.body, make("h2", {}, "Why are they not one kernel?"),
      make("p", { class: "dim" }, "What goes from one step to another through memory, with the reason; then what the planner tried, by the names of the ops."),
      make("div", { class: "bar" }, make("label", {}, "from ", this.from), make("label", {}, "to ", this.to)), this.why);
    this.sort();
    this.reasons();
  }

  // The table of steps by a column: numbers from the largest, words and steps from the first; or the other way round.
  sort(by = this.by, falling = this.falling) {
    Object.assign(this, { by, falling });
    const { steps } = this.app.data, key = this.columns[by][1], rows = steps.map((s, k) => k);
    const values = steps.map(key), words = typeof values[0] === "string", rises = (words || by === "order") === falling;
    const compare = (a, b) => (words ? values[a].localeCompare(values[b]) : values[b] - values[a]);
    rows.sort((a, b) => (falling ? 1 : -1) * compare(a, b) || a - b);
    const t = make("table", { id: "plan-steps" }), head = make("tr");
    for (const [name, [title]] of Object.entries(this.columns)) {
      const b = make("button", {}, title + (name === by ? (rises ? " ▴" : " ▾") : ""));
      b.addEventListener("click", () => { this.sort(name, name === this.by ? !this.falling : true); this.section.querySelector(`[data-column="${name}"] button`).focus(); });
      head.append(make("th", { "data-column": name, "aria-sort": name === by ? (rises ? "ascending" : "descending") : "none" }, b));
    }
    t.append(head);
    for (const k of rows) {
      const line = make("tr", { class: steps[k].kind });
      Object.entries(this.columns).forEach(([name, [, , text]], n) => {
        if (n) return line.append(make("td", {}, text(steps[k], k)));
        const b = make("button", {}, steps[k].name);
        b.addEventListener("click", () => this.choose(k));
        line.append(make("td", {}, b));
      });
      t.append(line);
    }
    this.body.replaceChildren(make("div", { class: "scrolled" }, t));
    const most = Math.max(...steps.map((s) => s.bytes || 0)), first = steps.find((s) => (s.bytes || 0) === most);
    const kernels = steps.filter((s) => s.kind === "kernel").length;
    this.said.textContent = `${kernels} kernel${kernels === 1 ? "" : "s"} of ${steps.length} step${steps.length === 1 ? "" : "s"}` + (first && most ? `; most bytes: ${first.name}, ${bytes(most)}` : "");
  }

  // A step: its ops are lit in the graph, and its tiles are chosen.
  choose(k) {
    const { app } = this, step = app.data.steps[k];
    app.chooseStep(k);
    app.graph.light(new Set(step.ops.flatMap((o) => app.data.ops[o].results)));
    if (step.ops.length && app.graph.homeOf.has(step.ops[0])) app.graph.centre(`op ${step.ops[0]}`);
    for (const [select, column] of [[this.to, 1], [this.from, 0]]) {
      const both = app.data.edges.some((e) => e[column] === step.name);
      select.value = both && column === 1 ? step.name : "";
    }
    this.said.textContent = `${step.name}: ${step.summary || step.kind}; ${step.estimate || ""}`;
    this.reasons();
  }

  reasons() {
    const fits = ([a, b]) => (!this.from.value || a === this.from.value) && (!this.to.value || b === this.to.value);
    const edges = this.app.data.edges.filter(fits), decisions = this.app.data.decisions.filter(fits);
    this.why.replaceChildren();
    if (edges.length)
      this.why.append(make("div", { class: "scrolled" }, table(["from", "to", "values", "bytes", "reason"],
        edges.map(([a, b, values, size, kind, reason, witness]) => [a, b, values, bytes(size), `${kind}: ${reason}${witness ? ` (${witness})` : ""}`]))));
    else this.why.append(make("p", { class: "dim" }, this.app.data.edges.length ? "Nothing goes through memory between these." : "Nothing goes through memory between two steps."));
    if (!decisions.length) return;
    const rows = decisions.map(([a, b, fused, reason]) => [a, b, fused ? "one kernel" : "apart", reason]);
    this.why.append(make("details", {}, make("summary", {}, `what the planner decided (${rows.length})`), make("div", { class: "scrolled" }, table(["producer", "reader", "", "reason"], rows))));
  }
}

const duration = (s) => (s < 1e-3 ? `${(s * 1e6).toPrecision(3)} µs` : s < 1 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`);
const counted = (n) => (n < 1000 ? `${n}` : n < 1e6 ? `${(n / 1e3).toPrecision(3)} k` : n < 1e9 ? `${(n / 1e6).toPrecision(3)} M` : `${(n / 1e9).toPrecision(3)} G`);
