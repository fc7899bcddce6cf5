"""Magika: what kind of file is this? A small convolutional classifier over 2048 bytes, with 214 answers.

    python -m examples.models.magika_file_types [FILE …]

The weights are those of the package `magika` (Apache-2.0, 3 MB of ONNX). Without files, those of this repository are
classified. The package's own pass through ONNX Runtime is the reference, and its features are the input of both.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from examples.models.common import Array, MissingPackage, Report, onnx_weights, parser, run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES = 2048  # the first 1024 and the last 1024 of a file, each value 0 … 255, or 256 where the file is shorter


def _package() -> Any:
    try:
        import magika
        import onnx  # noqa: F401
    except ImportError as e:
        raise MissingPackage(e) from None
    return magika


def weights(path: str) -> dict[str, Array]:
    """The model's parameters under names of their own, from the file's long ones."""
    given = onnx_weights(path)

    def of(end: str) -> Array:
        (found,) = (a for name, a in given.items() if name.endswith(end))
        return found

    return {
        "embedding": of("get_logits_/Const:0"),  # [257, 64]
        "embedding_bias": of("Dense_0/Reshape:0").reshape(64),
        "norm0_scale": of("LayerNorm_0/Reshape_2:0").reshape(512, 1),
        "norm0_bias": of("LayerNorm_0/Reshape_3:0").reshape(512, 1),
        "convolution": of("Conv_0/transpose_3:0")[..., 0],  # [512, 256, 5]
        "convolution_bias": of("const_fold_opt__209").reshape(512),
        "norm1_scale": of("LayerNorm_1/Reshape_2:0").reshape(512),
        "norm1_bias": of("LayerNorm_1/Reshape_3:0").reshape(512),
        "classes": of("Const_24:0"),  # [512, 214]
        "classes_bias": of("Dense_1/Reshape:0").reshape(214),
    }


def classify(w: Mapping[str, Any], data: Any) -> Any:
    """Probabilities [batch, 214] of int32 [batch, 2048] bytes."""
    import jax
    import jax.numpy as jnp

    def norm(x: Any, scale: Any, bias: Any) -> Any:  # over axis 1
        mean = x.mean(1, keepdims=True)
        variance = jnp.maximum((x * x).mean(1, keepdims=True) - mean * mean, 0)
        return (x - mean) * (scale / jnp.sqrt(variance + 1e-6)) + bias

    x = jax.nn.gelu(w["embedding"][data] + w["embedding_bias"])  # [batch, 2048, 64]
    x = norm(x.reshape(-1, 512, 256), w["norm0_scale"], w["norm0_bias"])  # four bytes in a row are one place
    x = jax.lax.conv_general_dilated(x, w["convolution"], (1,), "VALID", dimension_numbers=("NWC", "OIW", "NWC"))
    x = jax.nn.gelu(x + w["convolution_bias"]).max(1)
    x = norm(x, w["norm1_scale"], w["norm1_bias"])
    return jax.nn.softmax(x @ w["classes"] + w["classes_bias"])


def features(package: Any, paths: Sequence[pathlib.Path]) -> tuple[Any, list[pathlib.Path], Array]:
    """(the package's classifier, the files that are long enough for the model, their features)."""
    classifier = package.Magika()
    kept, rows = [], []
    for path in paths:
        _, found = classifier._get_result_or_features_from_path(path)
        if found is not None:
            kept.append(path)
            rows.append(np.array([*found.beg, *found.end], np.int32))
    return classifier, kept, np.stack(rows)


def report(paths: Sequence[pathlib.Path], turns: int = 10) -> Report:
    """Classifies the files here, in JAX and in the package. Raises MissingPackage."""
    package = _package()
    classifier, kept, data = features(package, paths)
    path = pathlib.Path(package.__file__).parent / "models" / classifier.get_model_name() / "model.onnx"
    labels = classifier._model_config.target_labels_space
    session = classifier._onnx_session

    def own() -> Array:
        return np.asarray(session.run(["target_label"], {"bytes": data})[0])

    def lines(result: Array) -> list[str]:
        best = [(p.name, labels[int(r.argmax())], r.max()) for p, r in zip(kept, result, strict=True)]
        shown = [f"file       {name:<36} {label:<12} {chance:.1%}" for name, label, chance in best]
        return [*shown[:12], *([f"           … {len(shown) - 12} more"] if len(shown) > 12 else [])]

    title = f"Magika {classifier.get_model_name()}: {len(kept)} files, {BYTES} bytes of each, {len(labels)} kinds"
    return run(title, classify, (weights(str(path)), data), {"ONNX Runtime": (own, 1e-4)}, turns, lines)


def some_files() -> list[pathlib.Path]:
    """Files of this repository, of several kinds."""
    patterns = ("*.md", "*.py", "*.toml", "LICENSE", "examples/*.mlir", "notebooks/*.ipynb", ".ci/run")
    return [p for pattern in patterns for p in sorted(ROOT.glob(pattern))][:16]


def main(argv: Sequence[str] | None = None) -> int:
    p = parser(__doc__)
    p.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE", help="what to classify (default: files of this folder)")
    args = p.parse_args(argv)
    made = report(args.files or some_files(), args.turns)
    print(made)
    return made.exit_code


if __name__ == "__main__":
    sys.exit(main())
