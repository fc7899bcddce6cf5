"""Models of timm and transformers, forward and training step, against double precision: as exact as eager mode is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.project.test_imports import ROOT

MODELS = "resnet18 mobilenetv3 efficientnet convnext vit swin mixer bert distilbert gpt2 llama unet lstm".split()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.torch_models
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    """Each in a process of its own: the tracer keeps what it has seen."""
    script = str(ROOT / "benchmarks" / "torch_models.py")
    command = [sys.executable, script, "--small", "--runs", "1", "--worker", name, "tilewright"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    row = json.loads(done.stdout.strip().splitlines()[-1])
    assert row["forward_error"] <= max(1e-5, 4 * row["eager_error"]), row
    assert row["step_error"] <= max(1e-4, 4 * row["eager_step_error"]), row
