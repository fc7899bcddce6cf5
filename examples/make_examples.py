#!/usr/bin/env python3
"""Lowers the example programs with JAX and writes them as StableHLO text.

    python examples/make_examples.py                       every example at its shipped size, beside this file
    python examples/make_examples.py causal_attention --set seq=2048 --out /tmp/programs
    python examples/make_examples.py --list

Each example is a plain JAX function; what is written is `jax.jit(f).lower(*shapes).as_text()`, untouched. The shipped
files were made with jax 0.10.2; another version may word the same program differently.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
Shapes = list[tuple[int, ...]]


# ---------------------------------------------------------------- the programs


def softmax(x: Array) -> Array:
    """y[i, j] = exp(x[i, j] - max_j x[i, j]) / sum_j exp(x[i, j] - max_j x[i, j])"""
    e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    """y = (x - mean(x)) / sqrt(var(x) + 1e-5) * scale + bias, over the last dimension."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


@jax.jit
def gelu(x: Array) -> Array:
    """x/2 erfc(-x/sqrt 2), the exact GELU: `chlo.erfc`, in a function of its own that the program calls."""
    y: Array = jax.nn.gelu(x, approximate=False)
    return y


def gelu_mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    """gelu(x w1 + b1) w2 + b2"""
    y: Array = gelu(x @ w1 + b1) @ w2 + b2
    return y


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """softmax(q k^T / sqrt(d), where position i sees the positions j <= i) v, for [batch, heads, seq, d]."""
    seq, width = q.shape[-2:]
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(width)
    visible = jnp.tril(jnp.ones((seq, seq), dtype=bool))
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def _gelu_by_erf(x: Array) -> Array:
    """x/2 (1 + erf(x/sqrt 2)): the same function as `gelu`, by `chlo.erf`."""
    return 0.5 * x * (1.0 + lax.erf(x * math.sqrt(0.5)))


def encoder_block(heads: int) -> Callable[..., Array]:
    """A whole pre-norm transformer encoder block on [seq, model]: attention and MLP, each with its residual."""

    def block(
        x: Array,
        scale1: Array,
        bias1: Array,
        w_qkv: Array,
        b_qkv: Array,
        w_out: Array,
        b_out: Array,
        scale2: Array,
        bias2: Array,
        w1: Array,
        b1: Array,
        w2: Array,
        b2: Array,
    ) -> Array:
        seq, model = x.shape
        h = layer_norm(x, scale1, bias1)
        qkv = (h @ w_qkv + b_qkv).reshape(seq, 3, heads, model // heads)
        q, k, v = (qkv[:, i].transpose(1, 0, 2) for i in range(3))
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(model // heads)
        mixed = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)
        x = x + mixed.transpose(1, 0, 2).reshape(seq, model) @ w_out + b_out
        h = layer_norm(x, scale2, bias2)
        return x + _gelu_by_erf(h @ w1 + b1) @ w2 + b2

    return block


# ---------------------------------------------------------------- sizes


@dataclass(frozen=True)
class Example:
    """A program: `sizes` are its shipped sizes; `shapes` and `function` follow from sizes."""

    name: str
    sizes: Mapping[str, int]
    shapes: Callable[[Mapping[str, int]], Shapes]
    function: Callable[[Mapping[str, int]], Callable[..., Array]]


def _encoder_shapes(s: Mapping[str, int]) -> Shapes:
    m, f = s["model"], s["hidden"]
    norm: Shapes = [(m,), (m,)]
    attention: Shapes = [(m, 3 * m), (3 * m,), (m, m), (m,)]
    return [(s["seq"], m), *norm, *attention, *norm, (m, f), (f,), (f, m), (m,)]


EXAMPLES: dict[str, Example] = {
    e.name: e
    for e in (
        Example(
            "softmax",
            {"rows": 4096, "columns": 4096},
            lambda s: [(s["rows"], s["columns"])],
            lambda s: softmax,
        ),
        Example(
            "layer_norm",
            {"rows": 8192, "columns": 1024},
            lambda s: [(s["rows"], s["columns"]), (s["columns"],), (s["columns"],)],
            lambda s: layer_norm,
        ),
        Example(
            "gelu_mlp",
            {"rows": 512, "model": 768, "hidden": 3072},
            lambda s: [
                (s["rows"], s["model"]),
                (s["model"], s["hidden"]),
                (s["hidden"],),
                (s["hidden"], s["model"]),
                (s["model"],),
            ],
            lambda s: gelu_mlp,
        ),
        Example(
            "causal_attention",
            {"batch": 1, "heads": 8, "seq": 1024, "width": 64},
            lambda s: [(s["batch"], s["heads"], s["seq"], s["width"])] * 3,
            lambda s: causal_attention,
        ),
        Example(
            "encoder_block",
            {"seq": 512, "model": 768, "heads": 12, "hidden": 3072},
            _encoder_shapes,
            lambda s: encoder_block(s["heads"]),
        ),
    )
}


def resolve(name: str, sizes: Mapping[str, int]) -> tuple[Callable[..., Array], Shapes]:
    """The JAX function of an example and the shapes of its arguments; `sizes` replace the shipped ones by name.

    Raises KeyError for an example or a size that does not exist.
    """
    example = EXAMPLES[name]
    unknown = sorted(set(sizes) - set(example.sizes))
    if unknown:
        raise KeyError(f"{name} has no size {', '.join(unknown)}; it has {', '.join(example.sizes)}")
    merged = {**example.sizes, **sizes}
    return example.function(merged), example.shapes(merged)


def lower(name: str, **sizes: int) -> str:
    """The StableHLO text of an example, f32 throughout."""
    function, shapes = resolve(name, sizes)
    arguments = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]  # type: ignore[no-untyped-call]
    text: str = jax.jit(function).lower(*arguments).as_text()
    return text


# ---------------------------------------------------------------- command line


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not value.isdecimal() or int(value) == 0:
        raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, found {text!r}")
    return name, int(value)


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description="Lower the example programs with JAX and write them as StableHLO text.")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all): {', '.join(EXAMPLES)}")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent, help="folder to write to")
    p.add_argument("--set", type=_size, action="append", default=[], metavar="SIZE=N", dest="sizes",
                   help="another size, for instance seq=2048; only with one NAME")  # fmt: skip
    p.add_argument("--list", action="store_true", help="list the examples with their sizes")
    args = p.parse_args(argv)
    if args.list:
        for e in EXAMPLES.values():
            print(f"{e.name:18}", *(f"{k}={v}" for k, v in e.sizes.items()))
        return 0
    unknown = [n for n in args.names if n not in EXAMPLES]
    if unknown:
        p.error(f"no example {', '.join(unknown)}; there is {', '.join(EXAMPLES)}")
    if args.sizes and len(args.names) != 1:
        p.error("--set needs exactly one NAME")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or EXAMPLES:
        try:
            text = lower(name, **dict(args.sizes))
        except KeyError as e:
            p.error(str(e.args[0]))
        path = args.out / f"{name}.mlir"
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
