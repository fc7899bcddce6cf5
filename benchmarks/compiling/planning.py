"""How long planning takes, and how it grows with the program: seconds against ops, in series of programs.

    python -m benchmarks.compiling.planning                                    # an encoder block stacked n times, no JAX needed
    python -m benchmarks.compiling.planning --series transformer --sizes 1,2,4,8,12,24,48
    python -m benchmarks.compiling.planning --series ssm --sizes 64,128,256,512,1024
    python -m benchmarks.compiling.planning --series resnet --sizes 50
    python -m benchmarks.compiling.planning --series nuts                      # needs blackjax
    python -m benchmarks.compiling.planning step.mlir ...                      # programs in files

`transformer` are n layers with loss, gradient, clipping and AdamW; `resnet` is a training step; `ssm` a state space model by
`associative_scan` over n steps, with its gradient. Printed are the ops of the flattened program and of its regions, the kernels,
how often a fusion was lowered, and the planner's CPU seconds, in all and for each op.
"""

from __future__ import annotations

import argparse
import importlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import codegen
import hlo
import tiling
from tiling.lower.fusion import Lowering

EXAMPLE = Path(__file__).parents[2] / "examples" / "encoder_block.mlir"


def stacked(layers: int) -> hlo.Module:
    """`layers` encoder blocks, each reading the one before, all with the same weights."""
    text = EXAMPLE.read_text(encoding="utf-8")
    found = re.search(r"func\.func public @main\((.*?)\) -> \(", text, re.DOTALL)
    assert found is not None
    arguments = found.group(1)
    names = re.findall(r"%arg\d+", arguments)
    types = re.findall(r"tensor<[^>]*>", arguments)
    calls, x = [], names[0]
    for k in range(layers):
        calls.append(f"    %l{k} = call @layer({', '.join([x, *names[1:]])}) : ({', '.join(types)}) -> {types[0]}")
        x = f"%l{k}"
    main = (
        f"func.func public @main({arguments}) -> {types[0]} {{\n"
        + "\n".join(calls)
        + f"\n    return {x} : {types[0]}\n  }}\n  "
    )
    text = text.replace("func.func public @main", "func.func private @layer")
    place = text.index("func.func private @layer")
    return hlo.parse(text[:place] + main + text[place:])


def _lowered(function: Callable[..., Any], *shapes: Any) -> hlo.Module:
    """What JAX makes of a function of arrays of these shapes."""
    jax = importlib.import_module("jax")
    return hlo.parse(jax.jit(function).lower(*shapes).as_text())


def _f32(*shape: int) -> Any:
    return importlib.import_module("jax").ShapeDtypeStruct(shape, "float32")


def _adamw(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of AdamW on clipped gradients; parameters and moments are trees alike."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def step(p: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, x, y)
        norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
        g = jax.tree.map(lambda a: a * jnp.minimum(1.0, 1.0 / norm), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        c, d = 1 - 0.9**t, 1 - 0.999**t
        p = jax.tree.map(lambda w, a, b: w - 1e-3 * (a / c / (jnp.sqrt(b / d) + 1e-8) + 0.1 * w), p, m, v)
        return p, m, v, value

    return step


def transformer(layers: int, width: int = 128, heads: int = 4, words: int = 500, steps: int = 64) -> hlo.Module:
    """A training step of a transformer."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale + bias

    def loss(p: Any, x: Any, y: Any) -> Any:
        h = p["embedding"][x] + p["places"]
        mask = jnp.tril(jnp.ones((steps, steps), bool))
        for a in p["layers"]:
            z = norm(h, a["s1"], a["b1"])
            q, k, v = (jnp.einsum("bld,dhe->bhle", z, a[n]) for n in ("q", "k", "v"))
            s = jnp.einsum("bhle,bhme->bhlm", q, k) / (width // heads) ** 0.5
            s = jax.nn.softmax(jnp.where(mask, s, -1e9), -1)
            h = h + jnp.einsum("bhlm,bhme,hed->bld", s, v, a["o"])
            z = norm(h, a["s2"], a["b2"])
            h = h + jax.nn.gelu(z @ a["w1"] + a["c1"]) @ a["w2"] + a["c2"]
        scores = jax.nn.log_softmax(h @ p["embedding"].T)
        return -jnp.take_along_axis(scores, y[..., None], -1).mean()

    d, e = width, width // heads
    layer = {
        "s1": _f32(d), "b1": _f32(d), "s2": _f32(d), "b2": _f32(d), "q": _f32(d, heads, e), "k": _f32(d, heads, e),
        "v": _f32(d, heads, e), "o": _f32(heads, e, d), "w1": _f32(d, 4 * d), "c1": _f32(4 * d), "w2": _f32(4 * d, d),
        "c2": _f32(d),
    }  # fmt: skip
    p = {"embedding": _f32(words, d), "places": _f32(steps, d), "layers": [layer] * layers}
    x = jax.ShapeDtypeStruct((4, steps), "int32")
    return _lowered(_adamw(loss), p, p, p, _f32(), x, x)


def resnet(depth: int, batch: int = 4, pixels: int = 64) -> hlo.Module:
    """A training step of a ResNet of 26 or 50 layers with bottlenecks."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    counts = {26: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]

    def convolution(x: Any, w: Any, stride: int = 1) -> Any:
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(x: Any, p: Any) -> Any:
        x = x - x.mean((0, 1, 2))
        return x / jnp.sqrt((x * x).mean((0, 1, 2)) + 1e-5) * p[0] + p[1]

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = jax.nn.relu(norm(convolution(x, p["first"], 2), p["n"]))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for b, stride in zip(p["blocks"], strides, strict=True):
            z = jax.nn.relu(norm(convolution(x, b["w1"]), b["n1"]))
            z = jax.nn.relu(norm(convolution(z, b["w2"], stride), b["n2"]))
            z = norm(convolution(z, b["w3"]), b["n3"])
            x = jax.nn.relu(z + (norm(convolution(x, b["w4"], stride), b["n4"]) if "w4" in b else x))
        scores = jax.nn.log_softmax(x.mean((1, 2)) @ p["last"])
        return -jnp.take_along_axis(scores, y[:, None], -1).mean()

    blocks: list[Any] = []
    strides: list[int] = []
    n = 64
    for k, (count, width) in enumerate(zip(counts, (64, 128, 256, 512), strict=True)):
        for i in range(count):
            strides.append(2 if k and not i else 1)
            b = {"w1": _f32(1, 1, n, width), "n1": _f32(2, width), "w2": _f32(3, 3, width, width), "n2": _f32(2, width),
                 "w3": _f32(1, 1, width, 4 * width), "n3": _f32(2, 4 * width)}  # fmt: skip
            if not i:
                b |= {"w4": _f32(1, 1, n, 4 * width), "n4": _f32(2, 4 * width)}
            blocks.append(b)
            n = 4 * width
    p = {"first": _f32(7, 7, 3, 64), "n": _f32(2, 64), "blocks": blocks, "last": _f32(n, 10)}
    y = jax.ShapeDtypeStruct((batch,), "int32")
    return _lowered(_adamw(loss), p, p, p, _f32(), _f32(batch, pixels, pixels, 3), y)


def ssm(steps: int) -> hlo.Module:
    """The gradient of a state space model with a selective scan over `steps` steps."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def loss(a: Any, b: Any, c: Any, x: Any) -> Any:
        dt = jax.nn.softplus(x)
        decay = jnp.exp(dt[..., None] * -jnp.exp(a))
        inputs = (dt * x)[..., None] * jnp.einsum("bld,dn->bln", x, b)[:, :, None]

        def join(p: Any, q: Any) -> Any:
            return p[0] * q[0], q[0] * p[1] + q[1]

        states = jax.lax.associative_scan(join, (decay, inputs), axis=1)[1]
        return jnp.sum(jnp.einsum("bldn,bln->bld", states, jnp.einsum("bld,dn->bln", x, c)) ** 2)

    return _lowered(jax.grad(loss, (0, 1, 2)), _f32(16, 8), _f32(16, 8), _f32(16, 8), _f32(2, steps, 16))


def nuts(dimensions: int) -> hlo.Module:
    """Ten steps of the no-U-turn sampler of blackjax, on a logistic regression."""
    jax = importlib.import_module("jax")
    blackjax = importlib.import_module("blackjax")

    def sample(x: Any, y: Any, key: Any) -> Any:
        def log_density(w: Any) -> Any:
            return -jax.numpy.logaddexp(0.0, -y * (x @ w)).sum() - (w * w).sum()

        kernel = blackjax.nuts(log_density, 0.1, jax.numpy.ones(dimensions))
        state = kernel.init(jax.numpy.zeros(dimensions))
        return jax.lax.scan(lambda s, k: (kernel.step(k, s)[0], s.position), state, jax.random.split(key, 10))[1]

    return _lowered(sample, _f32(100, dimensions), _f32(100), jax.ShapeDtypeStruct((2,), "uint32"))


SERIES: dict[str, tuple[Callable[[int], hlo.Module], str]] = {
    "encoder": (stacked, "1,3,12,48"),
    "transformer": (transformer, "1,2,4,8,12,24,48"),
    "resnet": (resnet, "26,50"),
    "ssm": (ssm, "64,128,256,512,1024"),
    "nuts": (nuts, "4,16"),
}


class _Counted:
    """How often fusions are lowered while this is entered."""

    def __enter__(self) -> _Counted:
        self.count, self._run = 0, Lowering.run

        def run(lowering: Lowering) -> Any:
            self.count += 1
            return self._run(lowering)

        setattr(Lowering, "run", run)  # noqa: B010
        return self

    def __exit__(self, *_: object) -> None:
        setattr(Lowering, "run", self._run)  # noqa: B010


def report(name: str, module: hlo.Module) -> None:
    """Plans a program and prints its line."""
    with _Counted() as lowerings:
        start = time.process_time()
        plan = tiling.plan(module, supports=codegen.supports)
        spent = time.process_time() - start
    nested = list(plan.nested())
    ops, kernels = sum(len(p.program.ops) for p in nested), sum(len(p.fusions) for p in nested)
    print(
        f"{name:28} {ops:6d} ops {kernels:5d} kernels {lowerings.count:6d} lowerings"
        f" {spent:7.2f} s {spent / ops * 1e3:6.2f} ms an op",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="programs to plan in place of a series")
    parser.add_argument("--series", choices=sorted(SERIES), default="encoder", help="which series (default: encoder)")
    parser.add_argument("--sizes", help="its sizes, separated by commas")
    given = parser.parse_args()
    tiling.plan(stacked(1))  # modules are loaded and tables made
    for path in given.files:
        report(path.stem, hlo.parse(path.read_text(encoding="utf-8"), str(path)))
    make, sizes = SERIES[given.series]
    for n in map(int, (given.sizes or sizes).split(",") if not given.files else ()):
        report(f"{given.series} {n}", make(n))


if __name__ == "__main__":
    main()
