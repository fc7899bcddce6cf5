"""Loops and branches in the explorer: the programs inside them, how to get there and back; the table of steps, and reasons."""

from __future__ import annotations

from typing import Any

import pytest

import hlo
import tilewright
from hlo.module import Module
from tests.explorer.browser import answers
from tests.explorer.test_data import encoder

TEXT = """
func.func @main(%x: tensor<8x8xf32>, %n: tensor<i32>) -> tensor<8x8xf32> {
  %w = stablehlo.constant dense<0.5> : tensor<8x8xf32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %y = stablehlo.add %x, %x : tensor<8x8xf32>
  %r:2 = stablehlo.while(%a = %y, %i = %c0) : tensor<8x8xf32>, tensor<i32>
   cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %d = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %q = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %t = "stablehlo.if"(%q) ({
      %h = stablehlo.tanh %d : tensor<8x8xf32>
      stablehlo.return %h : tensor<8x8xf32>
    }, {
      stablehlo.return %d : tensor<8x8xf32>
    }) : (tensor<i1>) -> tensor<8x8xf32>
    %i2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %t, %i2 : tensor<8x8xf32>, tensor<i32>
  }
  %e = stablehlo.negate %r#0 : tensor<8x8xf32>
  return %e : tensor<8x8xf32>
}"""


def looped() -> Module:
    return hlo.parse(TEXT, "looped.mlir")


def named(data: dict[str, Any], program: dict[str, Any], op: str) -> int:
    (found,) = [k for k, row in enumerate(program["ops"]) if row["name"] == f"stablehlo.{op}"]
    return found


def test_programs_inside_of_loops_and_branches() -> None:
    """Each region is a program with ops, maps and steps of its own; it says what its arguments are outside of it."""
    data = tilewright.explore(looped()).data
    by_name = {r["name"].rpartition("_")[2]: r for r in data["regions"]}
    assert set(by_name) == {"cond", "body", "true", "false"}
    loop = named(data, data, "while")
    numbers = {r["name"]: k for k, r in enumerate(data["regions"], 1)}
    cond, body, true = by_name["cond"], by_name["body"], by_name["true"]
    assert data["ops"][loop]["inside"] == [numbers[cond["name"]], numbers[body["name"]]]
    assert [(r["around"], r["op"]) for r in (cond, body)] == [(0, loop)] * 2
    assert true["around"] == numbers[body["name"]] and true["op"] == named(data, body, "if")

    def pairs(region: dict[str, Any], around: dict[str, Any]) -> dict[str, str]:
        return {region["values"][a]["name"]: around["values"][v]["name"] for a, v in region["outside"]}

    assert pairs(body, data)["a"].startswith("y") and pairs(cond, data)["n"] == "n" and pairs(true, body) == {"d": "d"}
    assert [(a, how) for a, _, how in body["carries"]] == [("a", "copied"), ("i", "in place")] and cond["carries"] == []
    captured = [data["values"][v]["name"] for v in data["ops"][loop]["captured"]]
    assert captured == ["n"]
    product = body["ops"][named(data, body, "dot_general")]
    assert data["maps"][product["reads"][0][0][0]]["text"].startswith("(d0, d1)[s0] -> (d0, s0)")
    steps = {s["name"]: s for s in body["steps"]}
    assert steps[body["steps"][product["step"]]["name"]]["source"], "the body's kernels have their source"


def test_reasons_are_the_plans() -> None:
    plan = encoder()
    data = tilewright.explore(plan).data
    expected = [(e.producer, e.consumer, e.reason, e.witness) for e in plan.edges]
    assert [(e[0], e[1], e[5], e[6]) for e in data["edges"]] == expected
    assert len(data["edges"]) >= 4 and len(data["decisions"]) == len(plan.decisions)
    assert [s["ops"] != [] for s in data["steps"]] == [True] * 5
    tasks = [f.schedule.main.tasks for f in plan.fusions]
    assert [s["tasks"] for s in data["steps"]] == tasks and all(n > 0 for n in tasks)


@pytest.mark.browser
def test_into_a_loop_and_back() -> None:
    """By a button, by the choice of programs, by `find`, and back to its op; what is inside has maps to follow."""
    found = answers(tilewright.explore(looped()).html, """
        const $ = (id) => document.getElementById(id), said = [];
        const title = () => $("title").textContent;
        const op = (name) => app.data.ops.findIndex((o) => o.name.endsWith(name));
        app.chooseValue(app.data.values.findIndex((v) => v.name === "n")); said.push($("said").textContent);
        app.chooseOp(op("while")); const buttons = [...document.querySelectorAll("#inside button")];
        said.push(buttons.map((b) => b.textContent).join("; "));
        buttons[1].click(); said.push(title());
        app.chooseOp(op("dot_general")); said.push($("said").textContent);
        app.chooseValue(0); said.push($("outside").textContent);
        $("find").value = "tanh"; $("find").dispatchEvent(new Event("change")); said.push(title(), app.data.ops[app.op].name);
        $("program").value = "0"; $("program").dispatchEvent(new Event("change")); said.push(title());
        app.enter(2); app.chooseValue(0); document.querySelector("#outside button").click();
        said.push(app.program, app.data.ops[app.op].name);
        said.push([...$("program").options].map((o) => o.textContent.trim()).length);
        for (const [view, text] of [["tiles", "stores %d"], ["stages", "= dot_general(%a"], ["plan", "dot_general"]]) {
          app.enter(2); app.view(view); said.push($(view).textContent.includes(text)); }
        return said
    """)  # fmt: skip
    feeds, inside, body, reads, outside, branch, op, main, program, back, count, *views = found
    assert feeds.startswith("%n[] feeds what is inside %r_0")
    assert "_cond (1 op)" in inside and "_body (" in inside
    assert "_body: 6 ops" in body and reads.startswith("%d[4, 4] reads %a 8 of 64: [4, 0…7]")
    assert outside.startswith("In the first turn it is %y") and "Later it is %t of the turn before (copied)." in outside
    assert "_true: 1 op" in branch and op == "stablehlo.tanh" and main.startswith("looped.mlir: 5 ops")
    assert (program, back, count) == (0, "stablehlo.while", 5) and views == [True] * 3


@pytest.mark.browser
def test_what_ends_at_a_loop_says_so() -> None:
    """Following an element stopped there in silence; and a value that never changes was called "of the turn before"."""
    kept = TEXT.replace("%i = %c0) :", "%k = %w, %i = %c0) : tensor<8x8xf32>,").replace("%r:2", "%r:3")
    kept = kept.replace("%a, %w, contract", "%a, %k, contract")
    kept = kept.replace("return %t, %i2 : tensor<8x8xf32>,", "return %t, %k, %i2 : tensor<8x8xf32>, tensor<8x8xf32>,")
    said, one, same = answers(tilewright.explore(hlo.parse(kept)).html, """
        const $ = (id) => document.getElementById(id), said = [];
        app.chooseOp(app.data.ops.findIndex((o) => o.name.endsWith("negate"))); said.push($("said").textContent);
        $("depth").value = "1"; $("depth").dispatchEvent(new Event("change")); said.push($("said").textContent);
        app.enter(2); app.chooseValue(app.data.values.findIndex((v) => v.name === "k")); said.push($("outside").textContent);
        return said
    """)  # fmt: skip
    assert "; it ends at " in said and "open what is inside to go on" in said
    assert one == "%e[4, 4] reads %r_0_1 1 of 64: [4, 4]"
    assert same.startswith("In every turn it is %constant_1 of main. ") and "turn before" not in same


@pytest.mark.browser
@pytest.mark.slow
def test_the_table_of_steps() -> None:
    """By any column, the largest first; a step that is chosen tells what comes to it through memory, and why."""
    page = tilewright.explore(encoder())
    found = answers(page.html, """
        document.dispatchEvent(new KeyboardEvent("keydown", { key: "4" }));
        const names = () => [...document.querySelectorAll("#plan-steps td:first-child button")].map((b) => b.textContent);
        const head = (c) => document.querySelector(`#plan-steps [data-column="${c}"] button`), said = [names()];
        head("bytes").click(); said.push(names());
        head("bytes").click(); said.push(names(), document.querySelector('[data-column="bytes"]').getAttribute("aria-sort"));
        head("what").click(); head("order").click(); said.push(names());
        said.push(document.getElementById("plan-said").textContent);
        [...document.querySelectorAll("#plan-steps td button")].at(-1).click();
        const why = () => [...document.querySelectorAll("#plan-why > div tr")].slice(1).map((r) =>
          r.children[0].textContent + ">" + r.children[1].textContent);
        said.push(why(), document.getElementById("plan-said").textContent);
        document.getElementById("plan-to").value = ""; document.getElementById("plan-to").dispatchEvent(new Event("change"));
        said.push(why().length, document.documentElement.scrollWidth - innerWidth);
        app.view("elements"); app.chooseOp(app.data.steps[1].ops.at(-1));
        const first = app.data.steps[1].ops.find((k) => app.data.ops[k].operands.some((v) =>
          app.data.ops[app.follow.makers[v]]?.step === 0));
        app.chooseOp(first); said.push(document.querySelector("[data-why]").textContent,
          document.getElementById("placed").textContent);
        return said
    """, (390, 844))  # fmt: skip
    order, most, least, sorts, again, said, why, chosen, all_edges, beyond, through, placed = found
    sizes = {s["name"]: s["bytes"] for s in page.data["steps"]}
    assert order == again == list(sizes) and len(order) == 5
    assert most == sorted(order, key=lambda n: -sizes[n]) and least == most[::-1] and sorts == "ascending"
    assert said.startswith(f"5 kernels of 5 steps; most bytes: {most[0]}")
    assert why and all(line.endswith(f">{order[-1]}") for line in why) and chosen.startswith(order[-1])
    assert all_edges == len(page.data["edges"]) and beyond <= 0
    assert through.startswith(f"through memory, {order[0]} → {order[1]}: ") and placed.startswith(f"In {order[1]} with")
