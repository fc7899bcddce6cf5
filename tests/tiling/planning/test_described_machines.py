"""Machines that are described in the environment: plans are made for them, in whole or in part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import codegen
from codegen.remembered.machine import remember_machine
from hlo.errors import SettingError
from tests.machines import MACHINES
from tiling import Machine


def test_what_is_named_is_so_and_the_rest_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    here = Machine.detect()
    monkeypatch.setenv("TILEWRIGHT_MACHINE", "cores=64, l2_bytes=262144,hertz=2.5e9")
    assert Machine.detect() == replace(here, cores=64, l2_bytes=262144, hertz=2.5e9)


@pytest.mark.parametrize("name", MACHINES)
def test_a_description_says_everything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MACHINE", MACHINES[name].description)
    assert Machine.detect() == codegen.calibrated_machine() == MACHINES[name]


def test_it_stands_above_what_was_measured(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("TILEWRIGHT_MACHINE", MACHINES["avx2"].description)
    remember_machine(replace(MACHINES["avx512"], hertz=1e9))
    assert codegen.calibrated_machine() == MACHINES["avx2"]


@pytest.mark.machine("avx2")
def test_a_mark_names_the_machine() -> None:
    assert Machine.detect() == MACHINES["avx2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("core=2", "expected NAME=VALUE of cores, vector_bytes, .*, found 'core=2'"),
        ("cores", "cores: expected a positive int, found ''"),
        ("cores=0", "cores: expected a positive int, found '0'"),
        ("cores=two", "cores: expected a positive int, found 'two'"),
        ("hertz=inf", "hertz: expected a positive float, found 'inf'"),
        ("hertz=nan", "hertz: expected a positive float, found 'nan'"),
        ("cores=2,,", "expected NAME=VALUE of .*, found ''"),
    ],
)
def test_descriptions_that_mean_nothing(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MACHINE", text)
    with pytest.raises(SettingError, match=f"TILEWRIGHT_MACHINE: {message}"):
        Machine.detect()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cores", 0, "a whole number from 1 on"), ("cores", -2, "a whole number from 1 on"), ("cores", 1.5, "a whole number"),
        ("vector_bytes", 3, "a power of two"), ("vector_registers", 0, "a whole number from 5 on"),
        ("hertz", float("nan"), "a positive finite number"), ("excess_precision", 1, "True or False"),
    ],
)  # fmt: skip
def test_a_machine_is_one(name: str, value: Any, expected: str) -> None:
    """No cores ended in a ZeroDivisionError of the planner, the others were planned for."""
    with pytest.raises(ValueError, match=f"Machine: {name}: expected {expected}.*, found {value}"):
        Machine(**{name: value})


@pytest.mark.parametrize(
    ("told", "cpus", "bytes_"), [(480 << 20, 2, 128 << 20), (32 << 20, 2, 32 << 20), (504 << 20, 128, 504 << 20)]
)
def test_a_guest_counts_on_a_share_of_the_cache_that_it_is_told_of(
    told: int, cpus: int, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of 200 MB went through the caches on a virtual machine of two CPUs that was told of 480 MiB."""
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    monkeypatch.setattr("tiling.machine._caches", lambda: {1: 48 << 10, 2: 2 << 20, 3: told})
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    assert Machine.detect().l3_bytes == bytes_


@pytest.mark.parametrize(("vendor", "ahead"), [("GenuineIntel", 2048), ("AuthenticAMD", 8192), ("", 8192)])
def test_inputs_are_asked_for_less_far_ahead_where_the_hardware_foresees_pages(
    vendor: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row maxima of 8192 x 4096, asked for two pages ahead, took 1.18 times as long on a CPU of Intel's."""
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    monkeypatch.setattr("tiling.machine._of_cpu", lambda what: vendor if what == "vendor_id" else "fpu avx2")
    assert Machine.detect().ahead_bytes == ahead


@pytest.mark.parametrize(
    ("vendor", "family", "model", "rows"),
    [
        ("AuthenticAMD", "25", "1", 4), ("AuthenticAMD", "25", "33", 4), ("AuthenticAMD", "25", "80", 4),  # Zen 3
        ("AuthenticAMD", "25", "17", 1), ("AuthenticAMD", "25", "97", 1),  # Zen 4
        ("AuthenticAMD", "23", "49", 1), ("GenuineIntel", "25", "1", 1), ("", "", "", 1),
    ],
)  # fmt: skip
def test_long_rows_are_read_side_by_side_where_that_was_measured(
    vendor: str, family: str, model: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"vendor_id": vendor, "cpu family": family, "model": model}
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    monkeypatch.setattr("tiling.machine._of_cpu", lambda what: told.get(what, "fpu avx2"))
    assert Machine.detect().rows_at_a_time == rows


@pytest.mark.parametrize(("features", "products"), [("fp asimd aes asimdhp asimddp", 4), ("fp asimd aes", 1), ("avx_vnni", 1)])
def test_arm_tells_its_dot_products_under_another_word(features: str, products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("tiling.machine._of_cpu", lambda what: features if what == "Features" else "")
    found = Machine.detect()
    assert (found.byte_products, found.vector_bytes, found.vector_registers) == (products, 16, 32)


def test_macos_tells_dot_products_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr("sys.platform", "darwin")
    known = {"hw.optional.arm.FEAT_DotProd": 1}
    monkeypatch.setattr("tiling.machine._sysctl", known.get)
    assert Machine.detect().byte_products == 4
    known.clear()
    assert Machine.detect().byte_products == 1
