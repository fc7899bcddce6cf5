"""From a fresh process to a model's first result: a file, `tilewright.jit` with a warm cache, `jax.export`, ONNX Runtime.

    python -m benchmarks.first_result [--turns 5] [--model magika] [--model minilm] [--model silero]

The models are those of examples/models (the extras models and jax, and a linker). Each way is a process of its own, in turns; a
way's time begins before its imports and ends with the result as a NumPy array. How far results are apart is shown. Silero's
package ships no ONNX file, so ONNX Runtime does not take part there.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from examples.models import magika_file_types, minilm, silero_vad

_START = "import time; began = time.perf_counter()\nimport numpy as np\nx = np.load('x.npy')\n"
_END = "\nseconds = time.perf_counter() - began\nnp.save('y.npy', y)\nprint(seconds)"
_SESSION = (
    "import onnxruntime\ns = onnxruntime.InferenceSession(open('path').read(), providers=['CPUExecutionProvider'])\n"
)
_WAYS = {
    "a file, tilewright.load": "import tilewright\ny = tilewright.load('model.tw')(x)",
    "tilewright.jit, warm cache": (
        "import functools, pickle, jax, tilewright\nfrom benchmarks.first_result import FUNCTIONS\n"
        "w = jax.tree.map(jax.numpy.asarray, pickle.load(open('weights', 'rb')))\n"
        "y = tilewright.jit(functools.partial(FUNCTIONS['MODEL'], w), output='numpy')(x)"
    ),
    "jax.export, deserialised and compiled": (
        "import jax\nfrom jax import export\n"
        "y = np.asarray(jax.jit(export.deserialize(bytearray(open('model.jax', 'rb').read())).call)(x))"
    ),
    "an ONNX Runtime session": "",  # (each model's own: `_ONNX`)
    "import numba, nothing else": "import numba\ny = np.zeros(1)",
}
_ONNX = {
    "magika": f"{_SESSION}y = s.run(['target_label'], {{'bytes': x}})[0]",
    "minilm": (
        f"{_SESSION}ones = np.ones(x.shape, np.int64)\n"
        "given = {'input_ids': x.astype(np.int64), 'attention_mask': ones, 'token_type_ids': 0 * ones}\n"
        "y = s.run(['last_hidden_state'], given)[0].mean(1)\ny = y / np.linalg.norm(y, axis=1, keepdims=True)"
    ),
}
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "magika": magika_file_types.classify,
    "minilm": lambda w, tokens: minilm.embed(w, tokens, np.ones(tokens.shape, np.int32)),
    "silero": silero_vad.speech,
}


def parts(model: str) -> tuple[pathlib.Path, Any, np.ndarray]:
    """The path of what a model's package ships, the weights, an input. Raises MissingPackage."""
    if model == "magika":
        package = magika_file_types._package()
        classifier, _, data = magika_file_types.features(package, [pathlib.Path(__file__)])
        path = pathlib.Path(package.__file__).parent / "models" / classifier.get_model_name() / "model.onnx"
        return path, magika_file_types.weights(str(path)), data
    if model == "minilm":
        path = pathlib.Path(minilm._package()[0].model_path())
        return path, minilm.weights(str(path), "int8"), np.arange(8 * 16, dtype=np.int32).reshape(8, 16) + 1000
    (path,) = pathlib.Path(silero_vad._package().__file__).parent.glob("ggml-silero*.bin")
    return path, silero_vad.weights(path), silero_vad.recording(1)


def prepare(model: str, folder: pathlib.Path) -> None:
    """Writes the model in every form."""
    import jax
    from jax import export

    import tilewright

    path, weights, x = parts(model)
    function = functools.partial(FUNCTIONS[model], jax.tree.map(jax.numpy.asarray, weights))
    np.save(folder / "x.npy", x)
    (folder / "path").write_text(str(path))
    (folder / "weights").write_bytes(pickle.dumps(jax.tree.map(np.asarray, weights)))
    tilewright.jit(function, output="numpy").save(folder / "model.tw", x)
    (folder / "model.jax").write_bytes(export.export(jax.jit(function))(x).serialize())


def measure(model: str, turns: int) -> None:
    """Prints the median milliseconds of each way, how far results are apart, and the files' sizes."""
    root = pathlib.Path(__file__).resolve().parents[1]
    ways = {way: code.replace("MODEL", model) or _ONNX.get(model, "") for way, code in _WAYS.items()}
    with tempfile.TemporaryDirectory(prefix="tilewright-first-") as name:
        folder = pathlib.Path(name)
        prepare(model, folder)
        seconds: dict[str, list[float]] = {way: [] for way, code in ways.items() if code}
        results: dict[str, np.ndarray] = {}
        environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        for turn in range(turns + 1):
            for way in seconds:
                command = [sys.executable, "-P", "-c", _START + ways[way] + _END]
                done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
                results[way] = np.load(folder / "y.npy")
                if turn:  # the first one warms caches, the system's and ours
                    seconds[way].append(float(done.stdout))
        sizes = {file: (folder / file).stat().st_size for file in ("model.tw", "model.jax")}
        print(f"{model}: {', '.join(f'{file} {size} bytes' for file, size in sizes.items())}")
        first = results["tilewright.jit, warm cache"]
        for way, found in seconds.items():
            apart = np.max(np.abs(results[way] - first)) if results[way].shape == first.shape else None
            shown = "" if apart is None else f", results apart by {apart:.1e}"
            print(f"  {way:40s} {statistics.median(found) * 1e3:8.1f} ms{shown}")


def main() -> None:
    """Measures each model."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--model", action="append", choices=list(FUNCTIONS))
    given = options.parse_args()
    for model in given.model or FUNCTIONS:
        measure(model, given.turns)


if __name__ == "__main__":
    main()
