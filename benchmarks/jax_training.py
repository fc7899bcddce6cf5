"""A training on JAX's CPU and on the platform `tilewright`, from the same lines, and their loss curves in one picture.

    python -m benchmarks.jax_training                      two times 400 steps, then a table
    python -m benchmarks.jax_training --picture FILE.svg   and the picture

A small convolutional network of flax's with layer normalisation and dropout, trained by optax's AdamW with a schedule and clipped
gradients, on pictures that threads make while steps run. Halfway everything is written to disk by orbax, forgotten, read back and
trained on. Each backend has a process of its own, told apart by JAX_PLATFORMS alone; they take turns. Needs flax, optax and
orbax-checkpoint beside the `jax` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

BACKENDS = {"cpu": "JAX's CPU", "tilewright": "platform tilewright"}
BATCH, SIDE, CLASSES = 64, 12, 10


# ---------------------------------------------------------------- the training, which knows of no platform


def batches(steps: int) -> Iterator[tuple[Any, Any]]:
    """(pictures, classes): threads draw them ahead, in the order of the steps, and put them on the device."""
    import jax

    patterns = np.random.default_rng(0).normal(size=(CLASSES, SIDE, SIDE, 1)).astype(np.float32)

    def batch(step: int) -> tuple[Any, Any]:
        rng = np.random.default_rng((1, step))
        labels = rng.integers(0, CLASSES, BATCH).astype(np.int32)
        pictures = 0.6 * patterns[labels] + rng.normal(size=(BATCH, SIDE, SIDE, 1)).astype(np.float32)
        return jax.device_put(pictures), jax.device_put(labels)

    with ThreadPoolExecutor(2) as pool:
        ahead = [pool.submit(batch, k) for k in range(4)]
        for step in range(steps):
            ahead.append(pool.submit(batch, step + 4))
            yield ahead.pop(0).result()


def trained(steps: int, folder: str) -> dict[str, Any]:
    """The losses of every step, and what it took."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax
    import orbax.checkpoint as ocp

    class Network(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any, is_training: bool) -> Any:
            for features in (16, 32):
                x = nn.Conv(features, (3, 3), strides=2)(x)
                x = nn.gelu(nn.LayerNorm()(x))
            x = nn.Dense(64)(x.reshape(len(x), -1))
            x = nn.Dropout(0.25, deterministic=not is_training)(nn.relu(x))
            return nn.Dense(CLASSES)(x)

    network = Network()
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, steps // 10, steps)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))

    def start() -> dict[str, Any]:
        weights = network.init(jax.random.key(0), jnp.zeros((1, SIDE, SIDE, 1)), False)
        return {"weights": weights, "optimizer": optimizer.init(weights), "step": jnp.int32(0)}

    def step(state: dict[str, Any], pictures: Any, labels: Any) -> tuple[dict[str, Any], Any]:
        noise = {"dropout": jax.random.fold_in(jax.random.key(1), state["step"])}

        def loss(weights: Any) -> Any:
            logits = network.apply(weights, pictures, True, rngs=noise)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, slopes = jax.value_and_grad(loss)(state["weights"])
        changes, moments = optimizer.update(slopes, state["optimizer"], state["weights"])
        return {
            "weights": optax.apply_updates(state["weights"], changes), "optimizer": moments, "step": state["step"] + 1,
        }, value  # fmt: skip

    jitted = jax.jit(step, donate_argnums=0)
    state, losses, seconds = start(), [], []
    with ocp.StandardCheckpointer() as checkpointer:
        for number, (pictures, labels) in enumerate(batches(steps)):
            if number == steps // 2:
                path = pathlib.Path(folder).resolve() / "halfway"
                checkpointer.save(path, state)
                checkpointer.wait_until_finished()
                state = checkpointer.restore(path, start())
            began = time.perf_counter()
            state, value = jitted(state, pictures, labels)
            losses.append(float(value))
            seconds.append(time.perf_counter() - began)
    right = jax.jit(lambda w, x: network.apply(w, x, False).argmax(-1))
    tests = list(batches(steps + 4))[-4:]
    hits = [float((right(state["weights"], x) == y).mean()) for x, y in tests]
    return {
        "device": str(jax.devices()[0]), "losses": losses, "first_s": seconds[0], "step_ms": 1e3 * float(np.median(seconds[1:])),
        "right": sum(hits) / len(hits),
    }  # fmt: skip


# ---------------------------------------------------------------- both of them


def measured(steps: int) -> dict[str, dict[str, Any]]:
    """What came of each backend."""
    found = {}
    for backend in BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-P", "-m", "benchmarks.jax_training", "--steps", str(steps), "--worker", folder]
            root = str(pathlib.Path(__file__).resolve().parent.parent)
            paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, "JAX_PLATFORMS": backend, "PYTHONPATH": paths}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[backend] = json.loads(done.stdout.splitlines()[-1])
    return found


def picture(found: dict[str, dict[str, Any]]) -> str:
    """The losses over the steps, as SVG: JAX's as a broad line, this platform's as a thin one on top of it."""
    width, height, left, bottom = 640, 300, 50, 40
    rows = [np.array(r["losses"]) for r in found.values()]
    top = float(max(r.max() for r in rows))

    def line(losses: np.ndarray, style: str) -> str:
        x = left + (width - left - 10) * np.arange(losses.size) / max(1, losses.size - 1)
        y = height - bottom - (height - bottom - 10) * losses / top
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        return f'<polyline points="{points}" fill="none" {style}/>'

    styles = ('stroke="#f0a030" stroke-width="5" stroke-opacity="0.6"', 'stroke="#1f4e79" stroke-width="1.2"')
    fonts = 'font-family="sans-serif" font-size="12"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {fonts}>']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for k in range(5):
        y = height - bottom - (height - bottom - 10) * k / 4
        parts.append(f'<path d="M{left} {y:.1f}H{width - 10}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{top * k / 4:.2f}</text>')
    for k in range(5):
        x = left + (width - left - 10) * k / 4
        parts.append(f'<text x="{x:.1f}" y="{height - bottom + 16}" text-anchor="middle">{len(rows[0]) * k // 4}</text>')
    for k, ((backend, _), losses, style) in enumerate(zip(found.items(), rows, styles, strict=True)):
        parts.append(line(losses, style))
        parts.append(f'<path d="M{width - 190} {24 + 18 * k}h30" {style}/>')
        parts.append(f'<text x="{width - 152}" y="{28 + 18 * k}">{BACKENDS[backend]}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">step</text>')
    parts.append(f'<text x="12" y="{height / 2}" transform="rotate(-90 12 {height / 2})" text-anchor="middle">loss</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--picture")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(trained(options.steps, options.worker)))
        return
    found = measured(options.steps)
    print("| | first step, s | a step, ms | loss at the end | right of 256 new pictures |\n|---|---|---|---|---|")
    for backend, r in found.items():
        end = float(np.mean(r["losses"][-20:]))
        print(f"| {BACKENDS[backend]} | {r['first_s']:.2f} | {r['step_ms']:.2f} | {end:.4f} | {100 * r['right']:.1f} % |")
    a, b = (np.array(r["losses"]) for r in found.values())
    print(f"\nlargest difference of the losses: {np.abs(a - b).max():.1e}")
    if options.picture:
        pathlib.Path(options.picture).write_text(picture(found), "utf-8")


if __name__ == "__main__":
    main()
