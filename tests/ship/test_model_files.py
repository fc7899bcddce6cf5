"""The real models as files: equal bit by bit in a process that has NumPy alone."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.ship.shipping import bare_packages, needs_linker

pytestmark = [pytest.mark.models, pytest.mark.slow, needs_linker]


def magika() -> tuple[Any, Any, Any]:
    from examples.models import magika_file_types as m

    package = m._package()
    classifier, _, data = m.features(package, [pathlib.Path(__file__)])
    path = pathlib.Path(package.__file__).parent / "models" / classifier.get_model_name() / "model.onnx"
    return m.classify, m.weights(str(path)), data


def minilm() -> tuple[Any, Any, Any]:
    from examples.models import minilm as m

    data, _ = m._package()
    tokens = np.arange(2 * 16, dtype=np.int32).reshape(2, 16) + 1000
    return lambda w, x: m.embed(w, x, np.ones((2, 16), np.int32)), m.weights(str(data.model_path()), "int8"), tokens


def silero() -> tuple[Any, Any, Any]:
    from examples.models import silero_vad as m

    (path,) = pathlib.Path(m._package().__file__).parent.glob("ggml-silero*.bin")
    return m.speech, m.weights(path), m.recording(1)


@pytest.mark.parametrize("make", [magika, minilm, silero], ids=lambda f: f.__name__)
def test_real_models_run_from_files(make: Any, tmp_path: pathlib.Path) -> None:
    import jax

    function, weights, x = make()
    weights = jax.tree.map(jax.numpy.asarray, weights)
    bound = tilewright.jit(functools.partial(function, weights), output="numpy")
    expected = bound(x)
    bound.save(tmp_path / "model.tw", x)
    np.save(tmp_path / "x.npy", np.asarray(x))
    packages = bare_packages(tmp_path, ["tilewright_runtime"])
    script = (
        f"import sys; sys.path.insert(0, {str(packages)!r})\n"
        "import time; began = time.perf_counter()\n"
        "import numpy as np, tilewright_runtime\n"
        f"y = tilewright_runtime.load({str(tmp_path / 'model.tw')!r})(np.load({str(tmp_path / 'x.npy')!r}))\n"
        "print(time.perf_counter() - began)\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, y)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"{make.__name__}: {(tmp_path / 'model.tw').stat().st_size} bytes, first result after {float(done.stdout):.3f} s")
    assert np.load(tmp_path / "y.npy").tobytes() == np.asarray(expected).tobytes()
