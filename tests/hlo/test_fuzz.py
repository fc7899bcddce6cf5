"""Whatever the text, only ParseError and VerificationError come out; and what is accepted prints and reads back.

Mutants of the programs below; each found failure becomes one of `REGRESSIONS`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import hlo
from tests.hlo import constraint_cases_structured as _structured  # noqa: F401 (adds its cases)
from tests.hlo.constraint_cases import CASES
from tests.hlo.test_constraints import program
from tests.hlo.test_hlo_text import PROGRAM

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.mlir"))
CORPUS = [*(program(text) for text, _ in CASES.values()), PROGRAM, *(p.read_text()[:6000] for p in EXAMPLES)]
TOKEN = re.compile(r"[A-Za-z_][\w.]*|%[\w#]+|\d+|\s+|.", re.DOTALL)

REGRESSIONS = [
    "HloModule m\nENTRY e { ROOT c = f32[2]{\n} constant(1) }",
    "HloModule m\nENTRY e { ROOT c = f32[2,\n3] constant(1) }",
    "func.func private @f()",
    'func.func @f() { "stablehlo.reduce"() ({}) : () -> () return }',
    'func.func @f() { "stablehlo.while"() ({}, {}) : () -> () return }',
    "func.func @f() { %0 = stablehlo.constant dense<> : tensor<0x99999999999999xf32> return }",
    "func.func @f(%a: tensor<0x5xf32>) { %0 = stablehlo.reshape %a : (tensor<0x5xf32>) -> tensor<7x0xf32> return }",
    "\ufeff module {}",
    "%",
    '"',
    "#",
    "!",
    "func.func @f() attributes {a = 1e999 : f32}",
    "func.func private @f() attributes {a = 1.0 : f32x2xf32}",
]


def survives(text: str) -> bool:
    """Reads, verifies and prints; anything but the two errors is a failure. True when the text is a valid program."""
    rejection: hlo.TilewrightError | None = None
    try:
        module = hlo.parse(text)
        hlo.verify(module)
    except (hlo.ParseError, hlo.VerificationError) as e:
        rejection = e
    if rejection is not None:
        rejection.render()
        cause = rejection.__cause__
        assert cause is None, f"a check met something that it was not written for: {rejection!r} from {cause!r}"
        return False
    printed = str(module)
    again = hlo.parse(printed)
    hlo.verify(again)
    assert str(again) == printed
    hlo.to_hlo_text(module)
    return True


def mutant(rng: random.Random, tokens: list[list[str]]) -> str:
    """One of the corpus with one to three changes."""
    text = list(rng.choice(tokens))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(text)) if text else 0
        kind = rng.randrange(7)
        if not text or kind == 0:
            other = rng.choice(tokens)
            start = rng.randrange(len(other))
            text[at:at] = other[start : start + rng.randrange(1, 25)]
        elif kind == 1:
            del text[at : at + rng.randrange(1, 8)]
        elif kind == 2:
            text[at] = rng.choice(text)
        elif kind == 3:
            to = rng.randrange(len(text))
            text[at], text[to] = text[to], text[at]
        elif kind == 4:
            digits = [i for i, t in enumerate(text) if t.isdigit()]
            if digits:
                text[rng.choice(digits)] = rng.choice(("0", "1", "3", "-1", "?", "99999999999", "18446744073709551616"))
        elif kind == 5:
            text[at] = chr(rng.randrange(1, 400))
        else:
            text.insert(at, rng.choice(text))
    return "".join(text)


@pytest.mark.parametrize("text", REGRESSIONS)
def test_regressions(text: str) -> None:
    survives(text)


@pytest.mark.parametrize(
    ("seed", "count"), [*((k, 5000) for k in range(4)), *(pytest.param(k, 100_000, marks=pytest.mark.slow) for k in (4, 5))]
)
def test_mutants(seed: int, count: int) -> None:
    """A number of them, not a time: what is found does not depend on what else the machine does."""
    rng = random.Random(seed)
    tokens = [TOKEN.findall(text) for text in CORPUS]
    valid = 0
    for _ in range(count):
        text = mutant(rng, tokens)
        try:
            valid += survives(text)
        except Exception:
            print(text)
            raise
    assert 0 < valid < count


@pytest.mark.parametrize("seed", range(3))
def test_bytes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        data = bytearray(rng.choice(CORPUS).encode())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            hlo.verify(hlo.parse(bytes(data)))
        except (hlo.ParseError, hlo.VerificationError):
            continue
