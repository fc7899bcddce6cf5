"""Ten questions about an encoder block that was not seen before, answered by clicks in the explorer; Python answers, too."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hlo
import tilewright
from hlo.module import Module
from indexing import maps_from
from tests.explorer.browser import answers
from tiling import Plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HELPERS = """
    const text = (id) => document.getElementById(id).textContent.replace(/\\s+/g, " ");
    const set = (id, v) => { const e = document.getElementById(id); e.value = v; e.dispatchEvent(new Event("change")); };
    const find = (name) => set("find", name), key = (k) => document.dispatchEvent(new KeyboardEvent("keydown", { key: k }));
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return hlo.load("examples/encoder_block.mlir")


@pytest.fixture(scope="module")
def plan(module: Module) -> Plan:
    return tilewright.plan(module)


def asked(module: Module, clicks: str) -> Any:
    names = [f.name for f in tilewright.plan(module).fusions]
    return answers(tilewright.explore(module).html, f"const NAMES = {names};" + HELPERS + clicks)


def test_of_elements(module: Module, plan: Plan) -> None:
    last = plan.names.of(plan.program.results[0])
    reads, feeds, maps, again = asked(module, f"""
        find("{last}"); set("index", "3, 5"); const said = [text("said")];
        find("arg3"); set("direction", "feeds"); set("index", "7, 100"); said.push(text("said"));
        find("{last}"); set("direction", "reads"); said.push(text("maps"));
        find("add_2"); said.push(text("place"));
        return said
    """)  # fmt: skip
    # 1. Which elements of the arguments does the result's element [3, 5] depend on? All of its sequence: attention.
    assert "393216 of 393216: [0…511, 0…767]" in reads and "%arg12 1 of 768: [5]" in reads and "%arg10 3072 of 3072" in reads
    through = maps_from(plan.program.results[0])
    arguments = plan.program.arguments
    assert sorted(set(re.findall(r"%(arg\d+) ", reads))) == sorted(plan.names.of(v) for v in through if v in arguments)
    # 2. What changes with one weight of the projection to queries, keys and values?
    assert f"%{last} " in feeds
    # 3. What is the map from the result to its operands?
    assert maps.count("(d0, d1) -> (d0, d1), domain: d0 in [0, 511], d1 in [0, 767]") == 2
    # 4. In which kernel is an op, and with which others?
    home = next(f for f in plan.fusions if any(plan.names.of(op.result) == "add_2" for op in f.ops if op.results))
    assert f"In {home.name} with {len(home.ops) - 1} other ops" in again


def test_of_kernels(module: Module, plan: Plan) -> None:
    said, rows, apart, limit, first, second, scratch = asked(module, """
        key("4"); const said = [text("plan-said")];
        [...document.querySelectorAll("#plan-steps th button")].find((b) => b.textContent.includes("predicted")).click();
        said.push([...document.querySelectorAll("#plan-steps td:first-child button")].map((b) => b.textContent));
        set("plan-from", NAMES[0]); set("plan-to", NAMES[1]); said.push(text("plan-why"));
        key("2"); said.push(document.querySelector("#tiles svg").getAttribute("aria-label"));
        said.push(text("tile-bytes")); document.getElementById("tile-next").click(); said.push(text("tile-bytes"));
        said.push(text("tiles"));
        return said
    """)  # fmt: skip
    fusions = plan.fusions
    # 5. How many kernels are there, and which moves the most bytes?
    most = max(fusions, key=lambda f: f.estimate.memory_bytes)
    assert said.startswith(f"{len(fusions)} kernels of {len(plan.steps)} steps; most bytes: {most.name}")
    # 6. Which takes longest, by the cost model? The table sorted by that column begins with it.
    assert rows[0] == max(fusions, key=lambda f: f.estimate.seconds).name
    # 7. Why are the first two not one kernel?
    edge = next(e for e in plan.edges if (e.producer, e.consumer) == (fusions[0].name, fusions[1].name))
    assert edge.reason in apart
    # 8. Is the last kernel, which the page begins with, bound by memory or by arithmetic?
    assert f"{fusions[-1].name}: " in limit and "operations a byte" in limit
    # 9. What does a task load, and what does it keep from the one before?
    assert " loaded, 0 B kept" in first and "kept from the tile before" in second and not second.startswith(first[:8])
    # 10. How much memory lies between its loops, and where?
    assert all(b.name in scratch for b in fusions[-1].schedule.buffers)
