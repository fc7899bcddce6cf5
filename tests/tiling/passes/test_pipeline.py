"""One list of passes: it is what runs, each can be seen, and results are the same without those that are optional."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.remembered import plans
from codegen.supports import supports
from hlo.errors import SettingError
from indexing.expr import Const, Var
from tests.goldens.prints import MACHINES, printed
from tests.tiling.passes.pass_programs import EXAMPLES, FILES, random
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling import Buffer, FoldStep, Loop, Nest, Plan, Schedule
from tiling.loops.ir import LoopKind, Store
from tiling.loops.spec import RULES, faults
from tiling.passing import Pass, recorded, without
from tiling.pipeline import PIPELINE, finished, observed
from tiling.planning.costs.estimate import estimate
from tiling.program.as_module import as_module
from tiling.program.flatten import flatten
from tiling.show.stages import Stages, print_stages, stages_of

MACHINE = MACHINES["avx2"]
OPTIONAL = [p.name for p in PIPELINE if p.optional]
NAMES = [p.name for p in PIPELINE]
PLANNED = ("update_known_places", "run_in_strips", "mark_in_place")  # by the planner, which knows what may be written over
WALK = [p.name for p in PIPELINE if p.target == "program" and p.name not in PLANNED]
LARGE = ["causal_attention", "encoder_block", "resnet_block"]
SMALL = ["average_pooling", "cumulative_sum", "depthwise_separable", "group_norm", "lstm_body", "max_pooling", "rotary", "top_k"]


def planned(module: hlo.Module) -> Plan:
    return tiling.plan(module, machine=MACHINE, supports=supports)


def schedules(plan: Plan) -> Iterator[Schedule]:
    yield from (f.schedule for p in plan.nested() for f in p.fusions)


@functools.cache
def stages(name: str) -> Stages:
    """The stages of the example of a pass."""
    return stages_of(planned(EXAMPLES[name]()), supports)


# ---------------------------------------------------------------- the list


def test_every_pass_has_a_name_of_its_own_a_reason_and_an_example() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(EXAMPLES) == set(NAMES), "each pass has a row of EXAMPLES in pass_programs.py, a program that it changes"
    assert all(p.why and (not p.within or p.within in NAMES) for p in PIPELINE)


def test_what_runs_is_what_is_listed() -> None:
    with recorded() as ran:
        for name in dict.fromkeys(EXAMPLES):
            for s in schedules(planned(EXAMPLES[name]())):
                finished(s)
    assert set(ran) == set(NAMES)


def test_passes_from_loops_to_loops_run_in_the_order_of_the_list() -> None:
    found: list[str] = []
    plan = planned(EXAMPLES["inline"]())
    with observed(lambda p, s: found.append(p.name)):
        again = planned(plan.module)
        for s in schedules(again):
            finished(s)
    whole = [p.name for p in PIPELINE if p.source == p.target == "loops" and not p.within]
    first = found.index("split_borders")
    assert [*found[first - whole.index("split_borders") : first], *found[first : first + len(whole)]][: len(whole)] == whole


# ---------------------------------------------------------------- seen


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_is_seen_before_and_after(name: str) -> None:
    mine = stages(name)
    changed = [s for s in mine.after(name) if s.changes]
    assert changed, f"{name} changes nothing in its example"
    assert f"==== {changed[0].title}\n{changed[0].text}" in str(mine)


def test_stages_step_through_in_a_notebook() -> None:
    page = stages("merge_nests")._repr_html_()
    assert page.count("<input") == len(stages("merge_nests").changed)
    assert "<ins>" in page and "<del>" in page


def test_unknown_stages_are_named() -> None:
    with pytest.raises(KeyError, match="no pass merge ran; there are inline"):
        stages("merge_nests").after("merge")


@pytest.mark.parametrize(
    ("setting", "titles"),
    [
        ("after:merge_nests", ["k0_divide_1 after merge_nests"]),
        ("after:merge_nests,after:turn_tiles", ["k0_divide_1 after merge_nests", "k0_divide_1 after turn_tiles, unchanged"]),
        ("", []),
    ],
)
def test_printing_is_asked_for_from_outside(setting: str, titles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PRINT", setting)
    out: list[str] = []
    print_stages(planned(EXAMPLES["lower"]()), supports, out.append)
    assert [x.partition("\n")[0].removeprefix("==== ") for x in out] == titles


def test_all_and_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(EXAMPLES["lower"]())
    for setting, expected in (("all", stages_of(plan, supports).stages), ("changed", stages_of(plan, supports).changed)):
        monkeypatch.setenv("TILEWRIGHT_PRINT", setting)
        out: list[str] = []
        print_stages(plan, supports, out.append)
        assert [x.rstrip("\n") for x in out] == [f"==== {s.title}\n{s.text}".rstrip("\n") for s in expected]


@pytest.mark.parametrize("setting", ["after:merge", "merge_nests", "some"])
def test_what_cannot_be_printed_is_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PRINT", setting)
    with pytest.raises(SettingError, match=r"TILEWRIGHT_PRINT: expected all, changed or after:NAME .*merge_nests.* found"):
        print_stages(planned(EXAMPLES["lower"]()), supports)


# ---------------------------------------------------------------- switched


@pytest.mark.parametrize("setting", ["merge", "lower", "merge_nests,lower"])
def test_only_optional_passes_are_skipped(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_SKIP", setting)
    expected = f"TILEWRIGHT_SKIP: expected optional passes, of .*merge_nests.*; found .{setting[-5:]}"
    with pytest.raises(SettingError, match=expected):
        planned(EXAMPLES["lower"]())


def test_a_skipped_pass_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_SKIP", "merge_nests, read_rows_again")
    with recorded() as ran:
        for s in schedules(planned(EXAMPLES["lower"]())):
            finished(s)
    assert "turn_tiles" in ran and not {"merge_nests", "read_rows_again"} & set(ran)


def test_what_is_remembered_depends_on_what_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    module = EXAMPLES["lower"]()
    keys = set()
    for setting in ("", "merge_nests", "split_innermost"):
        monkeypatch.setenv("TILEWRIGHT_SKIP", setting)
        keys.add(plans._key(module, "main", MACHINE))
    assert len(keys) == 3
    (schedule,) = schedules(planned(module))
    with without("read_rows_again"):
        assert not any(f.looks_twice for s in finished(schedule).main.steps if isinstance(s, Nest) for f in s.folds)
    assert any(f.looks_twice for s in finished(schedule).main.steps if isinstance(s, Nest) for f in s.folds)


@functools.cache
def expected(name: str) -> tuple[hlo.Module, tuple[np.ndarray, ...], tuple[np.ndarray, ...], str]:
    """A program, arrays for it, what the evaluator makes of them, and the kernels with all passes."""
    module = hlo.load(str(FILES[name])) if name in FILES else EXAMPLES[name]()
    arrays = random_arrays(module.function(), 0)
    return module, arrays, tuple(map(np.asarray, interp.evaluate(module, *arrays))), printed(module).kernels


def same_without(name: str, skipped: str) -> bool:
    """Checks that results are the same without a pass; False where kernels are the same, too, and nothing need run."""
    module, arrays, results, kernels = expected(name)
    with without(skipped):
        if printed(module).kernels == kernels:
            return False
        found = codegen.compile(planned(module))(*arrays)
    for a, b in zip(found, results, strict=True):
        assert compare(np.asarray(a), b).passed, f"{name} without {skipped}"
    return True


@pytest.mark.parametrize("skipped", OPTIONAL)
def test_results_are_the_same_without_an_optional_pass(skipped: str) -> None:
    name = "cross_entropy" if skipped == "read_rows_again" else skipped  # its example is a large softmax
    assert same_without(name, skipped), "its example has the same kernels without it"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_results_of_shipped_programs_are_the_same_without_any_optional_pass(name: str) -> None:
    for skipped in OPTIONAL:
        same_without(name, skipped)


# ---------------------------------------------------------------- programs


def after_each(module: hlo.Module) -> Iterator[tuple[str, hlo.Module]]:
    """The module after each of the passes to a program, one after the other."""
    for k in range(1, len(WALK) + 1):
        yield WALK[k - 1], as_module(flatten(module, module.function().name, supports, only=WALK[:k]), module)
    yield ", ".join(PLANNED), as_module(planned(module).program, module)


def check_programs(module: hlo.Module) -> None:
    arrays = random_arrays(module.function(), 1)
    results = interp.evaluate(module, *arrays)
    seen = ""
    for name, after in after_each(module):
        if str(after) == seen:
            continue
        seen = str(after)
        hlo.verify(after)
        given = [a if str(a.dtype) == str(v.tensor.dtype) else a.view(v.tensor.dtype)
                 for a, v in zip(arrays, after.function().arguments, strict=True)]  # fmt: skip
        for a, b in zip(interp.evaluate(after, *given), results, strict=True):
            assert compare(np.asarray(a), np.asarray(b)).passed, name


@pytest.mark.parametrize("name", [p.name for p in PIPELINE if p.target == "program" and p.name not in ("inline",)])
def test_a_program_is_verified_and_evaluated_alike_after_each_pass(name: str) -> None:
    check_programs(EXAMPLES[name]())


@pytest.mark.parametrize("name", SMALL)
def test_shipped_programs_are_evaluated_alike_after_each_pass(name: str) -> None:
    check_programs(hlo.load(str(FILES[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FILES if n not in SMALL])
def test_all_shipped_programs_are_evaluated_alike_after_each_pass(name: str) -> None:
    check_programs(hlo.load(str(FILES[name])))


def test_functions_that_nothing_calls_any_more_are_gone() -> None:
    """They were printed once more after each pass."""
    module = hlo.parse("""func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
      %0 = func.call @outside(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %1 = "stablehlo.case"(%n) ({
        %2 = func.call @inside(%0) : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %2 : tensor<4xf32>
      }) : (tensor<i32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }
    func.func private @outside(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.tanh %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @inside(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @further(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @further(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.negate %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }""")
    made = as_module(flatten(module, "main", supports), module)
    assert set(made.functions) == {"main", "inside", "further"}


# ---------------------------------------------------------------- rules of loops


def check_loops(module: hlo.Module) -> int:
    """Checks the rules after every pass from loops to loops that runs while a module is planned; how many there were."""
    count = 0

    def check(p: Pass, s: Schedule) -> None:
        nonlocal count
        count += 1
        assert faults(s) == [], p.name

    with observed(check):
        for s in schedules(planned(module)):
            finished(s)
    return count


@pytest.mark.parametrize("name", [n for n in FILES if n not in LARGE])
def test_loops_keep_their_rules_after_every_pass(name: str) -> None:
    assert check_loops(hlo.load(str(FILES[name])))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_keep_the_rules(seed: int) -> None:
    check_loops(random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LARGE, *NAMES])
def test_all_loops_keep_the_rules(name: str) -> None:
    check_loops(hlo.load(str(FILES[name])) if name in FILES else EXAMPLES[name]())


def test_a_pass_that_breaks_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "check")
    (schedule,) = schedules(planned(EXAMPLES["order_loops"]()))
    finished(schedule)
    with pytest.raises(AssertionError, match="after split_borders the loops break a rule: buffers are listed"):
        finished(replace(schedule, buffers=schedule.buffers[:1]))


def other_loops(change: Callable[[Nest], Nest]) -> Schedule:
    (schedule,) = schedules(planned(EXAMPLES["order_loops"]()))
    steps = tuple(change(s) if isinstance(s, Nest) and s.folds else s for s in schedule.main.steps)
    phases = tuple(replace(p, steps=steps) if p is schedule.main else p for p in schedule.phases)
    return replace(schedule, phases=phases)


def with_last(nest: Nest, **changes: object) -> Nest:
    return replace(nest, loops=(*nest.loops[:-1], replace(nest.loops[-1], **changes)))  # type: ignore[arg-type]


def other_folds(nest: Nest, change: Callable[[FoldStep], FoldStep]) -> Nest:
    return replace(nest, folds=tuple(map(change, nest.folds)))


def as_f64(b: Buffer) -> Buffer:
    return replace(b, element=hlo.element_type("f64"))


def along(nest: Nest) -> Var:
    """A loop of a reduction."""
    return next(x.variable for x in nest.loops if x.kind is LoopKind.REDUCTION)


def stored_inside(nest: Nest) -> Nest:
    """A store in place of a reduction's fold."""
    (f,) = nest.folds
    return replace(nest, folds=(), stores=(Store(f.values[0], f.buffers[0], f.index, f.nodes[0]),))


UNKNOWN = Var("nobody")


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("bounds are closed", lambda n: with_last(n, upper=UNKNOWN + 3)),
        ("names are bound", lambda n: replace(n, loops=n.loops[:-1])),
        ("bound once", lambda n: replace(n, loops=(*n.loops, n.loops[0]))),
        ("ranges are known", lambda n: replace(n, loops=(*n.loops, Loop(UNKNOWN, Const(0), Const(3), 4)))),
        ("ranks agree", lambda n: other_folds(n, lambda f: replace(f, index=(*f.index, Const(0))))),
        ("elements fit", lambda n: other_folds(n, lambda f: replace(f, buffers=tuple(map(as_f64, f.buffers))))),
        ("parts fit", lambda n: other_folds(n, lambda f: replace(f, nodes=f.nodes * 2))),
        ("folds stay in place", lambda n: other_folds(n, lambda f: replace(f, index=(along(n), *f.index[1:])))),
        ("products are whole", lambda n: other_folds(n, lambda f: replace(f, products=2))),
        ("kinds of loops", stored_inside),
        ("marks hold", lambda n: with_last(n, together=4)),
        ("marks hold", lambda n: other_folds(n, lambda f: replace(f, looks_twice=True))),
        ("segments agree", lambda n: replace(n, segments=(replace(n.parts[0], folds=n.folds * 2),))),
    ],
)
def test_what_breaks_a_rule_is_found(rule: str, change: Callable[[Nest], Nest]) -> None:
    assert faults(other_loops(lambda n: n)) == []
    assert any(bad.startswith(f"{rule}: phase 0 step") for bad in faults(other_loops(change)))


def test_every_rule_is_tried() -> None:
    tried = {"bounds are closed", "names are bound", "bound once", "ranges are known", "buffers are listed", "ranks agree",
             "elements fit", "parts fit", "folds stay in place", "kinds of loops", "products are whole",
             "marks hold", "segments agree"}  # fmt: skip
    assert {r.name for r in RULES} == tried


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize("name", SMALL)
def test_the_cost_model_takes_final_loops(name: str) -> None:
    for s in schedules(planned(hlo.load(str(FILES[name])))):
        assert 0 < estimate(finished(s), MACHINE).seconds < 100 * estimate(s, MACHINE).seconds
