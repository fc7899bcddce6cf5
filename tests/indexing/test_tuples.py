"""Maps of a tuple's elements, maps of tensors without elements, and the other signs for division and remainder."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.types import TensorType, element_type
from indexing import input_to_output, output_to_input, parse_map
from indexing.layout import bitcast_map, from_position, to_position
from indexing.notation import format_map
from indexing.program import maps_from

BEFORE = """f {
  a = f32[4,2] parameter(0)
  n = f32[4,2] negate(a)
  ROOT t = (f32[4,2], f32[4,2]) tuple(a, n)
}
g {
  a = f32[4,2] parameter(0)
  n = f32[4,2] exponential(a)
  ROOT t = (f32[4,2], f32[4,2]) tuple(n, a)
}
"""
TURNED = "(d0, d1) -> (d1, d0), domain: d0 in [0, 1], d1 in [0, 3]"


def test_an_element_is_read_index_by_index() -> None:
    module = hlo.parse(
        "HloModule m\nENTRY e {\np = (f32[4], (f32[4,2], s32[])) parameter(0)\n"
        "q = (f32[4,2], s32[]) get-tuple-element(p), index=1\n"
        "a = f32[4,2] get-tuple-element(q), index=0\nROOT r = f32[2,4] transpose(a), dimensions={1,0}\n}"
    )
    outer, inner = module.entry.body.ops[:2]
    same = "(d0, d1) -> (d0, d1), domain: d0 in [0, 3], d1 in [0, 1]"
    assert [str(m.only) for m in output_to_input(inner)] == [same] == [str(m.only) for m in input_to_output(inner)]
    assert output_to_input(outer)[0].only.is_unknown  # the element is a tuple itself
    assert str(maps_from(module.root.result)[inner.result].only) == TURNED


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("t = (f32[4,2], f32[4,2]) tuple(x, p)", {"p"}),
        ("t = (f32[4,2], f32[4,2]) call(p), to_apply=f", {"p"}),
        ("t = (f32[4,2], f32[4,2]) fusion(p), kind=kLoop, calls=f", {"p"}),
        ("t = (f32[4,2], f32[4,2]) conditional(c, p, x), true_computation=f, false_computation=g", {"p", "x", "c"}),
        ("n = (f32[4,2], (f32[4,2], f32[4,2])) tuple(x, u)\nt = (f32[4,2], f32[4,2]) get-tuple-element(n), index=1", {"p"}),
    ],
)
def test_maps_go_through_tuples(line: str, read: set[str]) -> None:
    text = (
        f"HloModule m\n{BEFORE}ENTRY e {{\nc = pred[] parameter(0)\np = f32[4,2] parameter(1)\nx = f32[4,2] exponential(p)\n"
        f"u = (f32[4,2], f32[4,2]) tuple(x, p)\n{line}\na = f32[4,2] get-tuple-element(t), index=1\n"
        "ROOT r = f32[2,4] transpose(a), dimensions={1,0}\n}"
    )
    module = hlo.parse(text)
    hlo.verify(module)
    maps = {v.name: m for v, m in maps_from(module.root.result, module=module).items()}
    for name in read - {"c"}:
        assert str(maps[name].only) == TURNED
    assert ("c" in maps) == ("c" in read)
    if "c" in read:
        assert str(maps["c"].only) == "(d0, d1) -> (), domain: d0 in [0, 1], d1 in [0, 3]"


def test_a_tuple_that_is_made_out_of_sight_is_unknown() -> None:
    text = (
        "HloModule m\nc {\n s = (s32[], f32[4]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " ROOT l = pred[] compare(i, i), direction=LT\n}\nb {\n ROOT s = (s32[], f32[4]) parameter(0)\n}\n"
        "ENTRY e {\nn = s32[] parameter(0)\np = f32[4] parameter(1)\nx = f32[4] negate(p)\nt = (s32[], f32[4]) tuple(n, x)\n"
        "w = (s32[], f32[4]) while(t), condition=c, body=b\na = f32[4] get-tuple-element(w), index=1\n"
        "ROOT r = f32[4] negate(a)\n}"
    )
    module = hlo.parse(text)
    hlo.verify(module)
    maps = {v.name: m for v, m in maps_from(module.root.result, module=module).items()}
    assert not maps["a"].only.is_unknown
    for name in ("n", "x", "p"):
        assert maps[name].only.is_unknown


@pytest.mark.parametrize(("source", "target"), [("1,0,0", "0"), ("0", "1,0,0"), ("2,0,3", "0,6"), ("0,0", "0"), ("0,7", "7,0,3")])
@pytest.mark.parametrize("opcode", ["reshape", "bitcast"])
def test_maps_of_nothing_are_known_empty(opcode: str, source: str, target: str) -> None:
    module = hlo.parse(f"HloModule m\nENTRY e {{ p=f32[{source}] parameter(0) ROOT r = f32[{target}] {opcode}(p) }}")
    hlo.verify(module)
    for maps in (output_to_input(module.root), input_to_output(module.root)):
        assert maps[0].only.is_known_empty and str(maps[0].only) == "KNOWN EMPTY"
    x = np.zeros([int(n) for n in source.split(",")], np.float32)
    shape = tuple(int(n) for n in target.split(","))
    assert codegen.compile(module)(x)[0].shape == interp.evaluate(module, x)[0].shape == shape


def test_positions_of_nothing() -> None:
    f32 = element_type("f32")
    for m in (from_position([2, 0, 3]), to_position([2, 0, 3]), bitcast_map(TensorType((2, 0, 3), f32), TensorType((0, 6), f32))):
        assert str(m) == "KNOWN EMPTY"


SIGNS = (
    "(d0, d1)[s0] -> ((d0 / 8) * 2 + d1 % 4, -(d0 / 3), (d0 + s0) % 5), "
    "domain: d0 in [0, 63], d1 in [0, 7], s0 in [0, 1], d0 % 2 in [0, 0]"
)


def test_signs_for_division_and_remainder() -> None:
    words = SIGNS.replace(" / ", " floordiv ").replace(" % ", " mod ")
    assert parse_map(SIGNS) == parse_map(words)
    assert str(parse_map(SIGNS)) == words
    assert format_map(parse_map(words), signs=True) == SIGNS
    assert parse_map(format_map(parse_map(words).simplify(), signs=True)) == parse_map(words)


def test_signs_bind_as_the_words_do() -> None:
    tail = ", domain: d0 in [0, 63], d1 in [1, 7]"
    for signs, words in [
        ("d0 * 3 / 2 % 5", "d0 * 3 floordiv 2 mod 5"),
        ("-d0 / 3", "-d0 floordiv 3"),
        ("-(d0 + 1) / 3", "-(d0 + 1) floordiv 3"),
        ("d0 % 8 / 2 + 7", "d0 mod 8 floordiv 2 + 7"),
        ("(d0/8)%d1", "(d0 floordiv 8) mod d1"),
    ]:
        one, other = parse_map(f"(d0, d1) -> ({signs}){tail}"), parse_map(f"(d0, d1) -> ({words}){tail}")
        assert one.results == other.results


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("(d0) -> (d0 / 0), domain: d0 in [0, 3]", 15, "floordiv by 0"),
        ("(d0) -> (d0 % 0), domain: d0 in [0, 3]", 15, "mod by 0"),
        ("(d0) -> (d0 / ), domain: d0 in [0, 3]", 15, "expected an expression, found ')'"),
        ("(d0) -> (/ d0), domain: d0 in [0, 3]", 10, "expected an expression, found '/'"),
        ("(d0) -> (d0 %% 2), domain: d0 in [0, 3]", 14, "expected an expression, found '%'"),
    ],
)
def test_signs_that_lack_something(text: str, column: int, message: str) -> None:
    with pytest.raises(hlo.ParseError) as caught:
        parse_map(text)
    assert message in str(caught.value)
    assert caught.value.location is not None and caught.value.location.column == column
    assert caught.value.render().splitlines()[-1].index("^") - 2 == column - 1
