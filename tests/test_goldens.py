"""What the compiler makes of the programs of `tests/goldens` is what is kept there, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.goldens import prints, programs, store

FAST_SEEDS = 20


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--renew-goldens"))


def check(group: str, names: list[str], renew: bool) -> None:
    """Compares the rows of some programs of a group with those that are kept, or keeps them."""
    makers = programs.GROUPS[group]()
    machine = programs.machine_of(group)
    made = {name: prints.printed(makers[name](), machine).row for name in names}
    if renew:
        store.write_rows(group, made)
    problems = store.differences(store.read_rows(group), made)
    assert not problems, "\n".join([*problems, "python -m tests.goldens NAME --against REVISION shows both sides"])


@pytest.mark.parametrize("name", programs.FILES)
def test_shipped_programs_as_text(name: str, renew: bool) -> None:
    text = prints.printed(programs.GROUPS["file"]()[name]()).text
    path = store.text_path(name)
    if renew:
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_some_random_programs(renew: bool) -> None:
    check("seed", [str(k) for k in range(FAST_SEEDS)], renew)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["file-avx512", "seed"])
def test_all_of_a_group(group: str, renew: bool) -> None:
    check(group, list(programs.GROUPS[group]()), renew)


@pytest.mark.slow
@pytest.mark.jax
@pytest.mark.parametrize("group", programs.TRACED)
def test_all_of_a_group_that_jax_traces(group: str, renew: bool) -> None:
    """Another JAX may trace other programs: kept is what one version makes."""
    import jax

    version = store.traced_by(renew)
    if version != jax.__version__:
        pytest.skip(f"kept for the programs of JAX {version}; renew them with {jax.__version__}")
    names = list(programs.GROUPS[group]())
    check(group, names, renew)
    assert list(store.read_rows(group)) == sorted(names)


@pytest.mark.parametrize("group", ["file-avx512", "seed"])
def test_nothing_else_is_kept(group: str) -> None:
    assert list(store.read_rows(group)) == sorted(programs.GROUPS[group]())
    assert {p.stem for p in store.text_path("x").parent.glob("*.txt")} == set(programs.FILES)


def test_a_difference_is_named() -> None:
    kept = {"a": "1 kernels; plan x, kernels y, program z", "b": "same"}
    made = {"a": "1 kernels; plan x, kernels w, program z", "b": "same", "c": "new"}
    (first, second) = store.differences(kept, made)
    assert "a" in first and "kernels y" in first and "kernels w" in first
    assert second == "c is not kept"
    assert store.differences(kept, {"b": "same"}) == []


def test_prints_depend_on_no_setting_and_no_order_of_hashes() -> None:
    """Another process, another target, another seed of hashes: the same text."""
    command = [sys.executable, "-m", "tests.goldens", "file/gelu_mlp"]
    texts = {
        subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=programs.ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "TILEWRIGHT_TARGET": target, "TILEWRIGHT_NUM_THREADS": threads},
        ).stdout
        for seed, target, threads in (("1", "host", "1"), ("2", "baseline", "3"))
    }  # fmt: skip
    assert texts == {store.text_path("gelu_mlp").read_text("utf-8") + "\n"}
