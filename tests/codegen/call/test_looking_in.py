"""Looking in: timelines by thread and step, what the logs say, progress on a terminal."""

from __future__ import annotations

import io
import json
import logging
import pathlib
import sys
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.call.tracing import Trace
from codegen.launcher import words
from codegen.progress import Progress
from hlo.errors import SettingError
from tests.ship.shipping import SCALED, WIDE, compiled


def test_a_timeline_has_every_task_once(tmp_path: pathlib.Path) -> None:
    executable = compiled(WIDE, threads=3)
    x = np.random.default_rng(0).standard_normal((512, 300), np.float32)
    (expected,) = executable(x)
    (found,) = executable.trace(tmp_path / "run.json", x)
    assert found.tobytes() == expected.tobytes()
    document = json.loads((tmp_path / "run.json").read_text())
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    (call,) = [e for e in events if e["cat"] == "call"]
    kernels = [e for e in events if e["cat"] == "kernel"]
    tasks = sorted(k for e in kernels for k in range(e["args"]["tasks"][0], e["args"]["tasks"][1] + 1))
    assert tasks == list(range(executable.kernels[0].tasks)) and {e["name"] for e in kernels} == {executable.kernels[0].name}
    assert {e["tid"] for e in kernels} <= {0, 1, 2} and document["otherData"] == {"lost_events": 0}
    for e in kernels:
        assert e["ts"] >= 0 and e["ts"] + e["dur"] <= call["dur"] + 1e-3
    assert {m["args"]["name"] for m in document["traceEvents"] if m["name"] == "thread_name"} >= {"caller"}
    assert executable(x)[0].tobytes() == expected.tobytes()  # what follows is not traced


def test_steps_of_the_evaluator_and_of_functions_are_in_it(tmp_path: pathlib.Path) -> None:
    text = (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  %z = stablehlo.tanh %y : tensor<4xf32>\n  return %z : tensor<4xf32>\n}"
    )
    executable = codegen.compile(hlo.parse(text), custom_calls={"mine": lambda op, x: x + 1})
    executable.trace(tmp_path / "run.json", np.ones(4, np.float32))
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert [(e["name"], e["cat"]) for e in events if e["ph"] == "X"] == [
        ("@main", "call"), (executable.kernels[0].name, "kernel"), ("y", "library"),
    ]  # fmt: skip


def test_events_beyond_the_room_are_counted() -> None:
    trace = Trace([("k", "kernel")], most=2)
    trace.events[0] = 5
    trace.events[words.EVENT_HEAD_WORDS :] = 0
    assert trace.lost == 3 and len(trace.document("t")["traceEvents"]) == 2 + 1 + 2


def test_logs_say_what_is_compiled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "compiles, plans,fallbacks")
    codegen.compile(hlo.parse(SCALED))
    codegen.compile(
        hlo.parse(
            "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
            "  %y = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %y : tensor<4xf32>\n}"
        ),
        custom_calls={"mine": lambda op, x: x},
    )
    said = capsys.readouterr().err
    assert "tilewright.plans: @main: " in said and " kernels for " in said
    assert "tilewright.compiles: @main(tensor<8x16xf32>): " in said and "kernels compiled, " in said
    assert "tilewright.fallbacks: @main: a library runs stablehlo.custom_call (%y): mine" in said
    monkeypatch.setenv("TILEWRIGHT_LOG", "weather")
    with pytest.raises(SettingError, match="TILEWRIGHT_LOG: expected some of compiles, plans, fallbacks, found 'weather'"):
        codegen.compile(hlo.parse(SCALED))
    monkeypatch.delenv("TILEWRIGHT_LOG")
    codegen.compile(hlo.parse(SCALED))
    assert capsys.readouterr().err == ""
    assert not logging.getLogger("tilewright.compiles").handlers


@pytest.mark.jax
def test_why_a_function_is_compiled_again(caplog: pytest.LogCaptureFixture) -> None:
    from tilewright.jax.jit import jit

    function = jit(lambda x, y: x + y, output="numpy")
    with caplog.at_level(logging.INFO, logger="tilewright.compiles"):
        for n in (3, 4, 3):
            function(np.ones(n, np.float32), np.float32(1))
    said = [r.getMessage() for r in caplog.records if "array" in r.getMessage() or "first time" in r.getMessage()]
    assert said == ["<lambda>: for the first time", "<lambda> again: array 0 is float32[4], was float32[3]"]


@pytest.mark.jax
def test_what_else_of_a_signature_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    import jax

    from tilewright.jax.jit import jit

    def scaled(x: Any, n: int, scale: int = 1) -> Any:
        return jax.tree.leaves(x)[0] * n * scale

    function = jit(scaled, static_argnums=1, static_argnames="scale", output="numpy")
    x = np.ones(3, np.float32)
    with caplog.at_level(logging.INFO, logger="tilewright.compiles"):
        function(x, 2)
        function(x, 3)
        function(x, 3, scale=4)
        function([x], 3, scale=4)
        function([x, x], 3, scale=4)
        with jax.numpy_dtype_promotion("strict"):
            function([x, x], 3, scale=4)
        function([2.0, x], 3, scale=4)
    said = [r.getMessage().partition(" again: ")[2] for r in caplog.records if " again: " in r.getMessage()]
    assert said[:2] == ["static argument 1 is 3, was 2", "static argument scale is 4, was not given"]
    assert said[2].startswith("the arguments are PyTreeDef(") and "[*]" in said[2]
    assert said[3].startswith("2 arrays, before 1; the arguments are ")
    assert said[4] == "jax_numpy_dtype_promotion is strict, was standard"
    assert said[5].startswith("array 0 is float32[] of weak type, was float32[3]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_is_for_long_compiles_on_a_terminal(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    out = stream()
    monkeypatch.setattr(sys, "stderr", out)
    now = [0.0]
    progress = Progress(4, clock=lambda: now[0])
    progress.done()
    progress.end()
    assert out.getvalue() == ""
    now[0] = 2.5
    progress.done()
    assert out.getvalue() == ("\r[############------------] 2 of 4 kernels" if stream is Terminal else "")
    progress.end()
    assert out.getvalue().endswith("\x1b[K") == (stream is Terminal)
