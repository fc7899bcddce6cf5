"""The exit codes that a healthy installation does not reach: a wrong result, a refusal, an interruption, a bug."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.commands.command_line import SOFTMAX
from tilewright import cli
from tilewright.commands import programs


@pytest.fixture
def program(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "p.mlir"
    path.write_text(SOFTMAX)
    return str(path)


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(("factor", "code"), [(1.0 + 4e-6, cli.OK), (1.0 + 4e-5, cli.FAILED_CHECK)])
def test_a_result_beyond_the_tolerance_fails_the_check(
    command: str, factor: float, code: int, program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = interp.evaluate

    def off(module: Any, *arrays: np.ndarray, **options: Any) -> tuple[np.ndarray, ...]:
        return tuple((np.asarray(a) * np.float32(factor)).astype(a.dtype) for a in right(module, *arrays, **options))

    monkeypatch.setattr(interp, "evaluate", off)
    assert cli.main([command, program]) == code
    shown = capsys.readouterr().out
    if code:
        assert "output 0 float32[6, 10]: FAILED" in shown
        assert "elements differ; the worst at [" in shown
    else:
        assert "output 0 float32[6, 10]: ok" in shown


@pytest.mark.parametrize("command", ["run", "plan", "source"])
def test_a_declined_program_says_why(
    command: str, program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declined = lambda *a, **k: hlo.Declined("its loops are knots")  # noqa: E731
    monkeypatch.setattr(tiling, "plan", declined)
    monkeypatch.setattr(codegen, "remembered_plan", declined)
    assert cli.main([command, program]) == cli.DECLINED
    shown = capsys.readouterr()
    assert shown.err == f"{program}: declined: its loops are knots\n"
    assert shown.out == ""


def raising(error: BaseException) -> Any:
    def command(args: object) -> int:
        raise error

    return command


def test_an_interruption(program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(programs.COMMANDS, "plan", raising(KeyboardInterrupt()))
    assert cli.main(["plan", program]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_an_error_inside_shows_its_traceback(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(programs.COMMANDS, "plan", raising(ZeroDivisionError("oh")))
    assert cli.main(["plan", program]) == cli.INTERNAL_ERROR
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in shown
    assert "please report it" in shown


def test_too_little_memory_is_the_users_to_know(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(programs.COMMANDS, "plan", raising(MemoryError("7 TiB")))
    assert cli.main(["plan", program]) == cli.USAGE
    assert capsys.readouterr().err == f"{program}: error: not enough memory: 7 TiB\n"


DEFINES = """
import numpy as np
from hlo.ops.common import identity_access, tensor
from hlo.registry import Elementwise, OpDefinition, Operand, register
from interp.registry import rule
register(OpDefinition("example.squashed", "", (Operand("x"),), lambda op: (tensor(op, 0),), identity_access, Elementwise("tanh")))
rule("example.squashed")(lambda context, op, x: np.tanh(x))
"""


def test_an_op_of_another_package_is_imported_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line there was no way to one."""
    monkeypatch.setattr(hlo.registry, "_REGISTRY", dict(hlo.registry._REGISTRY))
    monkeypatch.setattr(interp.registry, "_RULES", dict(interp.registry._RULES))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ops_of_a_test", raising=False)
    (tmp_path / "ops_of_a_test.py").write_text(DEFINES)
    path = tmp_path / "squashed.mlir"
    path.write_text('func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = "example.squashed"(%x) : (tensor<4xf32>)'
                    " -> tensor<4xf32>\n  return %0 : tensor<4xf32> }")  # fmt: skip
    assert cli.main(["check", str(path)]) == cli.USAGE
    said = capsys.readouterr().err
    assert "unknown op 'example.squashed'" in said
    assert cli.main(["check", str(path), "--import", "ops_of_a_test"]) == cli.OK
    assert "(1 op): ok" in capsys.readouterr().out
