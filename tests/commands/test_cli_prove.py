"""`tilewright check --prove`: the table, the witness of a refuted schedule, and the exit code."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest

import tiling
from tests.commands.command_line import SOFTMAX
from tilewright import cli
from tiling import Obligation, Proof
from tiling.proving.proof import Verdict


@pytest.fixture
def program(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "p.mlir"
    path.write_text(SOFTMAX)
    return str(path)


def test_the_table_follows_the_check(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--prove", program]) == cli.OK
    shown = capsys.readouterr().out.splitlines()
    start = next(k for k, line in enumerate(shown) if line.startswith("obligation"))
    rest = [line for line in shown[start + 1 :] if not line.startswith("assumed: ")]
    assert len(rest) < len(shown) - start - 1, "what is taken for granted stands below the table"
    rows = {line[:18].strip(): line[18:].split() for line in rest}
    assert "written once" in rows and "in bounds" in rows
    assert shown[start].split() == ["obligation", *(v.value for v in Verdict)]
    assert all(refuted == assumed == undecided == "0" for _, refuted, assumed, undecided in rows.values())


def test_without_the_option_nothing_is_proved(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", program]) == cli.OK
    assert "obligation" not in capsys.readouterr().out


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.REFUTED, cli.FAILED_CHECK), (Verdict.UNDECIDED, cli.OK)])
def test_what_is_not_proved_is_shown_with_its_witness(
    verdict: Verdict, code: int, program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = tiling.prove

    def spoiled(subject: Any) -> Proof:
        made = right(subject)
        return replace(made, obligations=(*made.obligations, Obligation("in bounds", "y", verdict, "t0 = 3")))

    monkeypatch.setattr(tiling, "prove", spoiled)
    assert cli.main(["check", "--prove", program]) == code
    assert f"in bounds: y: {verdict.value}: t0 = 3" in capsys.readouterr().out
    assert cli.main(["check", "--prove", "--json", program]) == code
    document = json.loads(capsys.readouterr().out)["proof"]
    assert not document["holds"]
    assert document["open"] == [{"obligation": "in bounds", "subject": "y", "verdict": verdict.value, "witness": "t0 = 3"}]
    assert sum(r[verdict.value] for r in document["obligations"]) == 1
