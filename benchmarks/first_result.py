"""From a fresh process to a model's first result: a file, `tilewright.jit` with a warm cache, `jax.export`, ONNX Runtime.

    python -m benchmarks.first_result [--turns 5]

The model is Magika (examples/models/magika_file_types.py; the extras models and jax, and a linker). Each way is a process of its
own, in turns; a way's time begins before its imports and ends with the result as a NumPy array. All give the same classes.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from examples.models import magika_file_types

_START = "import time; began = time.perf_counter()\nimport numpy as np\nx = np.load('x.npy')\n"
_END = "\nprint(time.perf_counter() - began, int(np.asarray(y).argmax(-1).sum()))"
_WAYS = {
    "a file, tilewright.load": "import tilewright\n(y,) = (tilewright.load('magika.tw')(x),)",
    "tilewright.jit, warm cache": (
        "import functools, jax, tilewright\nfrom examples.models import magika_file_types as m\n"
        "w = jax.tree.map(jax.numpy.asarray, m.weights(open('path').read()))\n"
        "y = tilewright.jit(functools.partial(m.classify, w), output='numpy')(x)"
    ),
    "jax.export, deserialised and compiled": (
        "import jax\nfrom jax import export\n"
        "y = np.asarray(jax.jit(export.deserialize(bytearray(open('magika.jax', 'rb').read())).call)(x))"
    ),
    "an ONNX Runtime session": (
        "import onnxruntime\ns = onnxruntime.InferenceSession(open('path').read(), providers=['CPUExecutionProvider'])\n"
        "y = s.run(['target_label'], {'bytes': x})[0]"
    ),
    "import numba, nothing else": "import numba\ny = np.zeros(1)",
}


def prepare(folder: pathlib.Path) -> None:
    """Writes the model in every form."""
    import jax
    from jax import export

    import tilewright

    package = magika_file_types._package()
    classifier, _, data = magika_file_types.features(package, [pathlib.Path(__file__)])
    path = pathlib.Path(package.__file__).parent / "models" / classifier.get_model_name() / "model.onnx"
    weights = jax.tree.map(jax.numpy.asarray, magika_file_types.weights(str(path)))
    function = functools.partial(magika_file_types.classify, weights)
    np.save(folder / "x.npy", data)
    (folder / "path").write_text(str(path))
    tilewright.jit(function, output="numpy").save(folder / "magika.tw", data)
    (folder / "magika.jax").write_bytes(export.export(jax.jit(function))(data).serialize())


def main() -> None:
    """Prints the median milliseconds of each way, and the files' sizes."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--turns", type=int, default=5)
    turns = options.parse_args().turns
    root = pathlib.Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="tilewright-first-") as name:
        folder = pathlib.Path(name)
        prepare(folder)
        seconds: dict[str, list[float]] = {way: [] for way in _WAYS}
        classes: dict[str, str] = {}
        environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        for turn in range(turns + 1):
            for way, code in _WAYS.items():
                command = [sys.executable, "-P", "-c", _START + code + _END]
                done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
                time, classes[way] = done.stdout.split()
                if turn:  # the first one warms caches, the system's and ours
                    seconds[way].append(float(time))
        for way, found in seconds.items():
            print(f"{way:40s} {statistics.median(found) * 1e3:8.1f} ms")
        print("classes:", {way: c for way, c in classes.items() if "numba" not in way})
        for file in ("magika.tw", "magika.jax"):
            print(f"{file}: {(folder / file).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
