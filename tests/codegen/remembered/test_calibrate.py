"""The measured machine: plausible rates, remembered, ignored when damaged."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from codegen import calibrated_machine
from codegen.native import object_cache
from codegen.remembered.machine import _key
from codegen.target import default_target
from codegen.tune.calibrate import ROWS_AT_A_TIME, calibrate
from tiling import Machine


def test_calibration_is_plausible_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE", raising=False)
    nothing_measured = calibrated_machine()
    target = default_target()  # may be narrower than the CPU is
    registers = {"vector_bytes": target.vector_bytes, "vector_registers": target.vector_registers}
    assert nothing_measured == replace(Machine.detect(), **registers)
    found = calibrate(budget_seconds=0.06)
    assert calibrated_machine() == found
    # What another process does at the same time makes any of them slower, by no factor that a test could know
    assert 0 < found.hertz < 1e11
    assert 0 < found.memory_bytes_per_second < 1e13
    assert 0 < found.l3_bytes_per_second < 1e14
    assert 0 < found.l1_bytes_per_second < 1e14
    assert 0 < found.launch_seconds < math.inf
    assert found.rows_at_a_time in ROWS_AT_A_TIME
    object_cache.write(_key(), b'{"cores": "many"}')
    assert calibrated_machine() == nothing_measured
