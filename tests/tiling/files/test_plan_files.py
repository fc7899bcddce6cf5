"""Plans as files: read back equal, on another machine, edited ones too; others are refused with the difference."""

from __future__ import annotations

import copy
import json
import pathlib
import pickle
import re
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import indexing
import tiling
from hlo.errors import Declined
from tests.goldens.programs import FILES
from tests.ship.shipping import needs_linker
from tests.shipped_plans import MACHINE, planned
from tilewright.inputs import random_arrays
from tiling import Machine, PlanFileError, load_plan
from tiling.files.plan_file import plan_from_text, plan_text
from tiling.files.record import parsed_record, record_of

FAST = ("lstm_body", "layer_norm", "mlp_gradient")
SOFTMAX = FILES["softmax"]


def same(a: tiling.Plan, b: tiling.Plan) -> None:
    assert a.to_json() == b.to_json()
    assert a.pins() == b.pins() and a.machine == b.machine and str(a.module) == str(b.module)
    reused, again = ([(r.shared, r.reason) for p in x.nested() for r in p.reuses] for x in (a, b))
    assert reused == again


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in FILES])
@pytest.mark.parametrize("kernels", [False, True])
def test_plans_are_read_back_equal(name: str, kernels: bool, tmp_path: pathlib.Path) -> None:
    made = planned(FILES[name], MACHINE, kernels)
    made.save(tmp_path / "plan.json")
    same(load_plan(tmp_path / "plan.json"), made)


def test_a_plan_of_another_machine_compiles_here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Machine(cores=7, vector_bytes=16, vector_registers=32, l1_bytes=64 << 10, l2_bytes=3 << 20, hertz=2.25e9)
    made = planned(FILES["top_k"], far, kernels=True)
    made.save(tmp_path / "plan.json")
    monkeypatch.setenv("TILEWRIGHT_MACHINE", "cores=3,l2_bytes=262144")
    read = load_plan(tmp_path / "plan.json")
    same(read, made)
    arrays = random_arrays(read.module.entry, 0)
    for a, b in zip(codegen.compile(read)(*arrays), codegen.compile(made)(*arrays), strict=True):
        assert a.tobytes() == b.tobytes()


def test_records_are_of_programs_and_not_of_names() -> None:
    """What one program leaves serves another one that is alike but for its values' names."""
    text = SOFTMAX.read_text("utf-8")
    module = hlo.parse(text)
    other = hlo.parse(re.sub(r"%(\w+)", r"%other_\1", text))
    made = tiling.plan(module, machine=MACHINE)
    record = parsed_record(json.loads(json.dumps(record_of(made))))
    again = record.applied_to(tiling.plan(other, machine=MACHINE, pins=record.all_pins()))
    assert [f.estimate for f in again.fusions] == [f.estimate for f in made.fusions]
    assert again.fusions[0].name != made.fusions[0].name


def test_orders_that_a_person_chose_are_kept(tmp_path: pathlib.Path) -> None:
    plan = planned(SOFTMAX)
    made = tiling.with_loop_order(plan, plan.names.of(plan.fusions[0].outputs[0]), ("i1", "i0"))
    assert made.to_json() != plan.to_json()
    made.save(tmp_path / "plan.json")
    same(load_plan(tmp_path / "plan.json"), made)


class Launches:
    """A cost model: as few kernels as there can be."""

    def estimate(self, schedule: Any, machine: Machine) -> tiling.Estimate:
        return tiling.Estimate(1.0, 0.0, 0.0, 0, unit="launches")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Launches)

    def __hash__(self) -> int:
        return 0


def test_what_is_not_data_is_refused(tmp_path: pathlib.Path) -> None:
    module = hlo.load(SOFTMAX)
    weighed = tiling.plan(module, machine=MACHINE, cost_model=Launches())
    weighed.save(tmp_path / "plan.json")
    with pytest.raises(PlanFileError, match="json: it cannot be read without the cost model that it was weighed with"):
        load_plan(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json", Launches()).to_json() == weighed.to_json()
    mine = tiling.plan(module, machine=MACHINE, supports=lambda op: Declined("no") if "exp" in op.name else None)
    with pytest.raises(PlanFileError, match="rules that have no name"):
        mine.save(tmp_path / "mine.json")
    plan = planned(SOFTMAX)
    fusion = plan.fusions[0]
    edited = tiling.with_schedule(plan, fusion.name, planned(SOFTMAX, Machine(l1_bytes=4 << 10)).fusions[0].schedule)
    with pytest.raises(PlanFileError, match="edited in a way that a file does not say"):
        edited.save(tmp_path / "edited.json")
    assert not (tmp_path / "edited.json").exists()


def test_other_files_are_refused_with_what_differs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = plan_text(planned(SOFTMAX))

    def changed(**fields: Any) -> str:
        return json.dumps({**json.loads(text), **fields})

    document = json.loads(text)
    document["plan"]["steps"][0]["tile_sizes"] = [1, 1]
    record = json.loads(text)["record"]
    record["pins"][0][1][0] = 7
    for content, message in (
        ("", "no plan: Expecting value"),
        ("[]", "it has no schema"),
        (changed(schema="tilewright.plan_file/1"), "its form is tilewright.plan_file/1, this version reads"),
        (changed(rules="mine"), "made with the rules 'mine'; there is all, kernels"),
        (changed(machine={"cores": 1}), "a machine has the fields cores, vector_bytes"),
        (changed(machine={**document["machine"], "cores": "many"}), "the machine's cores: expected int, found 'many'"),
        (changed(module="nothing"), "unknown module item"),
        (changed(record={}), "no plan: KeyError"),
        (json.dumps(document), r"this version makes another plan of it; expected \(-\) and found \(\+\):\n- +1"),
        (changed(record=record), "this version makes another plan of it"),
        (text[:200], "no plan: "),
    ):
        with pytest.raises(PlanFileError, match=message):
            plan_from_text(content)
    monkeypatch.setenv("TILEWRIGHT_SKIP", "split_innermost")
    with pytest.raises(PlanFileError, match=r"left out \(TILEWRIGHT_SKIP\): then \[\], now \['split_innermost'\]"):
        plan_from_text(text)
    (tmp_path / "plan.json").write_bytes(b"\xff")
    with pytest.raises(PlanFileError, match=r"plan.json: no text"):
        load_plan(tmp_path / "plan.json")


@needs_linker
def test_pickles_and_copies() -> None:
    module = hlo.load(FILES["top_k"])
    assert copy.copy(module).functions is module.functions
    module.entry_name = "main"
    for other in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert other.entry_name == module.entry_name
        assert str(other) == str(module) and other is not module
        hlo.verify(other)
    plan = planned(FILES["top_k"], MACHINE, kernels=True)
    same(pickle.loads(pickle.dumps(plan)), plan)
    assert copy.deepcopy(plan) is plan
    for op in module.functions["main"].body.ops:
        maps = indexing.output_to_input(op)
        for index_map in () if isinstance(maps, Declined) else [m for row in maps for m in row]:
            assert str(pickle.loads(pickle.dumps(index_map))) == str(copy.deepcopy(index_map)) == str(index_map)
    executable = codegen.compile(module)
    assert copy.deepcopy(executable) is executable
    program = pickle.loads(pickle.dumps(executable))
    arrays = random_arrays(module.entry, 0)
    again = pickle.loads(pickle.dumps(program))
    for a, b, c in zip(executable(*arrays), program(*arrays), again(*arrays), strict=True):
        assert np.asarray(a).tobytes() == b.tobytes() == c.tobytes()
