"""What docs/platforms.md says of Pythons, wheels and targets is what the project's metadata and tests have."""

from __future__ import annotations

import re
import tomllib

from tests.commands.command_line import ROOT
from tests.machines import MACHINES

PAGE = (ROOT / "docs" / "platforms.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ROWS = dict(re.findall(r"^\| (?!platform|---)(.+?) \| (.+?) \|$", PAGE, re.M))


def pythons(state: str) -> set[str]:
    """The versions of Python in rows of the table that begin so."""
    return {v for row, said in ROWS.items() if said.startswith(state) for v in re.findall(r"\b3\.\d+\b", row)}


def test_pythons_are_those_of_the_classifiers() -> None:
    assert pythons("tested") == {"3.11"} and not pythons("cannot")
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert sorted(pythons("tested") | pythons("should work")) == sorted(classified)
    assert PROJECT["requires-python"] == f">={min(classified, key=lambda v: int(v[2:]))}"


def test_what_has_no_wheel_is_a_dependency() -> None:
    """Whoever drops one of them, or takes another that is compiled, looks at the page."""
    names = {re.split(r"[<>=~]", d)[0] for d in PROJECT["dependencies"]}
    assert names == {"islpy", "ml_dtypes", "numba", "numpy", "rich", "sympy"}
    assert "islpy has no wheel" in ROWS["Windows"] and "numba and llvmlite" in ROWS["Linux with musl (Alpine)"]
    for name in ("islpy", "numba"):
        assert any(re.fullmatch(rf"{name}>=[\d.]+,<[\d.]+", d) for d in PROJECT["dependencies"]), name


def test_targets_are_those_that_the_tests_run() -> None:
    named = set(re.findall(r"`(?:TILEWRIGHT_TARGET=)?(\w+)`", PAGE[PAGE.index("Wider vectors") :].split("\n\n")[0]))
    assert named == {*MACHINES} - {"avx512"}  # `every_target` runs tests on each that is narrower than the host's
    assert "(AVX-512, AVX2, else SSE2)" in PAGE
