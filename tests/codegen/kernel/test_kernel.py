"""The kernel as data: prints round-trip, invariants hold for all that the emitter writes, rewrites act on the tree."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
from codegen.call.program.assembly import Assembly
from codegen.call.program.nodes import Compute, below
from codegen.call.program.whole_loops import with_whole_loops
from codegen.kernel.ir import Binary, Break, Call, For, Kernel, Load, Name, Number, Parameter, Store
from codegen.kernel.parse import NotAKernel, parse
from codegen.kernel.print_numba import print_numba, statement_lines
from codegen.kernel.rename import in_one_memory, substituted
from codegen.kernel.spec import INVARIANTS, faults
from codegen.lib import NAMESPACE, threads
from codegen.source import phase
from codegen.supports import supports
from indexing.expr import Const, Interval, Var
from tests.goldens.prints import MACHINES
from tests.goldens.programs import GROUPS
from tiling import Loop, Nest, plan, prove, with_schedule
from tiling.loops.element_ir import Renamer
from tiling.loops.variables import new_variable
from tiling.passes.each_nest import each_nest

FUNCTIONS = {*NAMESPACE, *threads.NAMESPACE} - {"inf", "nan"}
PROGRAMS = [*(("file", name) for name in GROUPS["file"]()), *(("seed", str(k)) for k in range(12))]


def test_sources_are_read_again_where_threads_have_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython raises SystemError then, whatever the source is; a wrong source is still one."""
    source, mixes = "def kernel(begin, end, y):\n    y[0] = 1\n", [True, False, True, True, False]
    read = ast.parse

    def mixed(text: str) -> ast.Module:
        if mixes.pop(0):
            raise SystemError("AST constructor recursion depth mismatch (before=36, after=33)")
        return read(text)

    monkeypatch.setattr(ast, "parse", mixed)
    assert parse(source) == parse(source) and not mixes
    mixes.append(False)
    with pytest.raises(SyntaxError):
        parse("def kernel(:")


def kernels(group: str, name: str) -> Iterator[Kernel]:
    """The kernels of a program of the goldens, before and after loops became kernels."""
    assembly = Assembly(plan(GROUPS[group]()[name](), "main", MACHINES["avx2"], supports))
    yield from (n.source.kernel for n in below(assembly.nodes) if isinstance(n, Compute))
    whole = with_whole_loops(assembly.nodes, assembly.sizes)
    yield from (n.source.kernel for n in below(whole) if isinstance(n, Compute))


@pytest.mark.parametrize(("group", "name"), PROGRAMS, ids=lambda x: x)
def test_prints_of_kernels_are_read_back(group: str, name: str) -> None:
    for kernel in kernels(group, name):
        source = print_numba(kernel)
        assert parse(source) == kernel
        assert print_numba(parse(source)) == source
        assert faults(kernel, FUNCTIONS) == []


LETTERS = "ckjiabdefghlmnopqrstuvwxyz"


@pytest.mark.parametrize("name", sorted(GROUPS["file"]()))
def test_values_may_be_called_as_the_loops_of_a_source(name: str) -> None:
    """An argument `%c` of masked attention was a loop's variable, too: compiling ended with a TypingError of numba."""
    text = str(GROUPS["file"]()[name]())
    letters = [x for x in LETTERS if not re.search(rf"%{x}\b", text)]
    text = re.sub(r"%arg([0-9]+)\b", lambda m: f"%{letters[int(m[1])]}", text)
    for node in below(Assembly(plan(hlo.parse(text), "main", MACHINES["avx2"], supports)).nodes):
        assert not isinstance(node, Compute) or faults(node.source.kernel, FUNCTIONS) == []


def source(body: str, head: str = "begin, end, x, y") -> str:
    return f"def kernel({head}):\n" + "".join(f"    {line}\n" for line in body.split("\n"))


BROKEN = {
    "arguments once": source("y[0] = x[0]", "begin, end, y, x, x"),
    "buffers stay": source("x = begin\ny[0] = x"),
    "assigned before read": source("for t in range(begin, end):\n    a = t\ny[0] = a"),
    "counters are loops' own": source("for t in range(begin, end):\n    for t in range(4):\n        y[t] = x[t]"),
    "jumps are inside loops": source("if begin < end:\n    continue"),
    "blocks hold something": source("for t in range(end):\n    pass"),
    "library not hidden": source("exp = 2\ny[0] = exp"),
    "functions are known": source("y[0] = no_function(x[0])"),
}


def test_each_invariant_has_a_kernel_that_breaks_it() -> None:
    assert set(BROKEN) == {i.name for i in INVARIANTS}


@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_that_breaks_an_invariant_is_told_which(name: str) -> None:
    if name == "arguments once":
        kernel = Kernel("", (Parameter("x", "", (), ""),) * 2, (Store("x", Number(0), Number(1)),), "")
    elif name == "blocks hold something":
        kernel = Kernel("", (), (For("t", None, Name("end"), None, ()),), "")
    else:
        kernel = parse(BROKEN[name])
    assert [f.split(":")[0] for f in faults(kernel, FUNCTIONS)] == [name]


def test_branches_that_leave_assign_nothing_to_what_follows() -> None:
    body = "for t in range(begin, end):\n    if t < 3:\n        continue\n    else:\n        a = t\n    y[t] = a"
    assert faults(parse(source(body)), FUNCTIONS) == []
    assert faults(parse(source(body.replace("continue", "pass"))), FUNCTIONS) == ["assigned before read: y[t] = a"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("y[0] = [1]", "line 2: expected an expression of a kernel, found List"),
        ("y[0] = x[0]\nwith x:\n    pass", "line 3: expected a statement of a kernel, found With"),
        ("for t in x:\n    pass", "line 2: expected a loop over a range"),
        ("y[0] = 'a'", "line 2: expected a number, found Constant"),
        ("y[0] = f(a=1)", "line 2: expected a call of a function by its place"),
        ("return 3", "line 2: expected a return without a value"),
        ("a, b = 1, 2", "line 2: expected one variable or element to assign to"),
        ("y[0] = 1 if 0 in x else 2", "line 2: expected an expression of a kernel, found IfExp"),
        ("y[0] = x[0] ** 2", "line 2: expected a binary operator of a kernel"),
    ],
)
def test_what_no_kernel_holds_is_named_with_its_line(text: str, found: str) -> None:
    with pytest.raises(NotAKernel, match=found):
        parse(source(text))


def test_parentheses_and_spaces_are_kept() -> None:
    for text in ("y[0] = (x[0])", "y[4*(end)] = ((x[0] + 1) * 2)", "y[0] = -(x[0] * -2)", "if not (x[0] <= 2.5):\n    pass",
                 "y[0] = max((begin), ((end) + 1))", "if (begin < end) and (end) < 3:\n    pass", "y[(0)] += (1)"):  # fmt: skip
        assert print_numba(parse(source(text))) == source(text)


def test_numbers_of_one_value_differ_by_their_type() -> None:
    assert len({Number(1), Number(1.0), Number(True), Number(0.0), Number(-0.0)}) == 5


def test_names_become_names_or_values() -> None:
    kernel = parse(source("for t in range(begin, end):\n    y[t] = x[t + end]"))
    lines = statement_lines(substituted(kernel.body, {"begin": Number(0), "end": Number(8), "t": Name("u"), "y": Name("z")}))
    assert lines == ["for u in range(0, 8):", "    z[u] = x[u + 8]"]
    with pytest.raises(ValueError, match="'t' is assigned or is a buffer: expected a name"):
        substituted(kernel.body, {"t": Number(0)})
    body = kernel.body
    for names in ({"t": "u", "x": "a"}, {"u": "t", "a": "x"}):
        body = substituted(body, {old: Name(new) for old, new in names.items()})
    assert body == kernel.body
    (added,) = parse(source("a += x[0]")).body
    assert statement_lines(substituted([added], {"a": Name("b"), "x": Name("y")})) == ["b += y[0]"]
    with pytest.raises(ValueError, match="'a' is assigned or is a buffer: expected a name"):
        substituted([added], {"a": Number(0)})


def test_buffers_of_one_memory_are_one_argument() -> None:
    body = (For("t", Name("begin"), Name("end"), None, (Store("y", Name("t"), Load("x", Name("t"))), Break())),)
    kernel = Kernel("k", (Parameter("x", "f32", (8,), "argument"), Parameter("y", "f32", (2, 4), "result")), body)
    joined = in_one_memory(kernel, {"x": "y"})
    assert [p.name for p in joined.arguments] == ["y"]
    assert print_numba(joined).split("\n") == [
        "def kernel(begin, end, y):", '    """k', "", "    y: argument f32[8]", "    y: result f32[2, 4]", '    """',
        "    for t in range(begin, end):", "        y[t] = y[t]", "        break", "",
    ]  # fmt: skip
    assert parse(print_numba(joined)) == joined
    assert dataclasses.replace(joined, body=kernel.body) != joined


def test_an_address_is_printed_tight() -> None:
    tight = Binary("+", Binary("*", Number(4), Name("t"), tight=True), Call("min", (Name("t"), Number(3))))
    assert statement_lines([Store("y", tight, Number(0.5))]) == ["y[4*t + min(t, 3)] = 0.5"]


def test_loops_whose_variables_begin_alike_count_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass called two loops i0_strip and i0_in, and both were `i0` in the source: a kernel that was proved, and wrong."""
    text = """func.func @main(%x: tensor<64x48xf32>) -> tensor<64xf32> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [1] : (tensor<64x48xf32>, tensor<f32>) -> tensor<64xf32>
      return %1 : tensor<64xf32> }"""  # noqa: E501
    made = plan(hlo.parse(text), "main", MACHINES["avx2"], supports)
    (fusion,) = made.fusions

    def strips(nest: Nest, ranges: dict[Var, Interval]) -> list[Nest]:
        first, *others = nest.loops
        v = first.variable
        strip, inner = (new_variable(f"{v}_{n}", Interval(0, k - 1), ranges) for n, k in (("strip", 16), ("in", 4)))
        new = Renamer({v: strip * 4 + inner}, ranges, {})
        folds = [replace(f, index=new.index(f.index), nodes=tuple(map(new.node, f.nodes))) for f in nest.folds]
        loops = (Loop(strip, Const(0), Const(15), 16), Loop(inner, Const(0), Const(3), 4), *others)
        return [replace(nest, loops=loops, folds=tuple(folds))]

    changed = with_schedule(made, fusion.name, each_nest(fusion.schedule, lambda n, around: strips(n, around.ranges)))
    assert prove(changed).holds
    monkeypatch.setenv("TILEWRIGHT_SKIP", "collapse_loops")  # it makes one loop of the two again
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "check")
    with monkeypatch.context() as patch:
        patch.setattr(phase, "_short_names", lambda *_: {})  # as it was
        with pytest.raises(AssertionError, match="k0_reduce_1 breaks an invariant: counters are loops' own: for i0 in"):
            codegen.compile(changed)
    executable = codegen.compile(changed)
    (kernel,) = [k.statements for k in executable.kernels]
    assert faults(kernel, FUNCTIONS) == []
    x = np.random.default_rng(0).standard_normal((64, 48), np.float32)
    np.testing.assert_allclose(executable(x)[0], x.sum(1), rtol=1e-4, atol=1e-5)
