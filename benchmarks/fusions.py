#!/usr/bin/env python3
"""Fusions that people write by hand, as the planner derives them: memory between kernels and CPU time against JAX and PyTorch.

    python benchmarks/fusions.py                      Tilewright and JAX, in turns
    python benchmarks/fusions.py --only 'attention*'
    python benchmarks/fusions.py --torch              PyTorch (with its fused attention) and its compiler, if torch is installed

Results are compared with JAX's before anything is timed. Times are those of the processor, all threads together, medians of
calls in turns: on a shared machine they move less than the clock's. Memory is what lies between kernels: all scratch here, XLA's
own figure for its temporaries there, and for PyTorch by how much a first call raises the process's peak beyond its results.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.compare_jax import peak_rss_growth_bytes  # noqa: E402

Arrays = tuple[np.ndarray, ...]
LIMIT = 2e-4
HEADS = (1, 8, 2048, 64)


def arrays(*shapes: tuple[int, ...], labels: tuple[int, int] | None = None) -> Arrays:
    """Normal numbers of these shapes, weights (those of later shapes) small; and labels (how many, of how many classes)."""
    rng = np.random.default_rng(7)
    made = [(rng.standard_normal(s) * (0.05 if k and len(s) == 2 else 1.0)).astype(np.float32) for k, s in enumerate(shapes)]
    return (*made, rng.integers(0, labels[1], labels[0]).astype(np.int32)) if labels else tuple(made)


def jax_cases() -> Iterator[tuple[str, Callable[..., Any], Callable[[], Arrays]]]:
    """(name, function, its arrays)."""
    import jax
    import jax.numpy as jnp

    def loss(x: Any, w: Any, y: Any) -> Any:
        z = x @ w
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()

    def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        s = s if mask is None else jnp.where(mask, s, -1e30)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, -1), v)

    def causal(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, jnp.tril(jnp.ones((q.shape[2], k.shape[2]), bool)))

    def with_gradients(f: Callable[..., Any]) -> Callable[..., Any]:
        def both(q: Any, k: Any, v: Any, g: Any) -> Any:
            out, back = jax.vjp(f, q, k, v)
            return (out, *back(g))

        return both

    small, large = ((512, 512), (512, 8192)), ((2048, 1024), (1024, 32000))
    yield "cross-entropy of a linear layer", loss, lambda: arrays(*small, labels=(512, 8192))
    yield "cross-entropy, gradients", jax.value_and_grad(loss, (0, 1)), lambda: arrays(*small, labels=(512, 8192))
    yield "cross-entropy, 32000 classes", loss, lambda: arrays(*large, labels=(2048, 32000))
    yield "cross-entropy, 32000, gradients", jax.value_and_grad(loss, (0, 1)), lambda: arrays(*large, labels=(2048, 32000))
    yield "attention with gradients", with_gradients(attend), lambda: arrays(*[HEADS] * 4)
    yield "attention, causal, with gradients", with_gradients(causal), lambda: arrays(*[HEADS] * 4)
    yield (
        "two gates, one epilogue", lambda x, a, b: jax.nn.silu(x @ a) * (x @ b),
        lambda: arrays((256, 1024), (1024, 4096), (1024, 4096)),
    )  # fmt: skip


def torch_cases() -> Iterator[tuple[str, Callable[..., Any], Callable[[], Arrays]]]:
    """The same in PyTorch, as its users write it."""
    import torch
    from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

    def with_gradients(f: Callable[..., Any], seeded: bool) -> Callable[..., Any]:
        def both(*given: Any) -> Any:
            leaves = [a.detach().requires_grad_() for a in given if a.is_floating_point()]
            inputs = leaves[:-1] if seeded else leaves
            out = f(*inputs, *([] if seeded else [given[-1]]))
            return (out, *torch.autograd.grad(out, inputs, given[-1] if seeded else None))

        return both

    def loss(x: Any, w: Any, y: Any) -> Any:
        return cross_entropy(x @ w, y.long())

    def causal(q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    small, large = ((512, 512), (512, 8192)), ((2048, 1024), (1024, 32000))
    yield "cross-entropy of a linear layer", loss, lambda: arrays(*small, labels=(512, 8192))
    yield "cross-entropy, gradients", with_gradients(loss, False), lambda: arrays(*small, labels=(512, 8192))
    yield "cross-entropy, 32000 classes", loss, lambda: arrays(*large, labels=(2048, 32000))
    yield "cross-entropy, 32000, gradients", with_gradients(loss, False), lambda: arrays(*large, labels=(2048, 32000))
    yield "attention with gradients", with_gradients(scaled_dot_product_attention, True), lambda: arrays(*[HEADS] * 4)
    yield "attention, causal, with gradients", with_gradients(causal, True), lambda: arrays(*[HEADS] * 4)
    yield (
        "two gates, one epilogue", lambda x, a, b: silu(x @ a) * (x @ b), lambda: arrays((256, 1024), (1024, 4096), (1024, 4096))
    )


def cpu_ms(calls: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Milliseconds of the processor that each call takes, medians over turns; a first call of each does not count."""
    spent: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 1):
        for call, mine in zip(calls, spent, strict=True):
            start = time.process_time()
            call()
            if turn:
                mine.append((time.process_time() - start) * 1e3)
    return [statistics.median(x) for x in spent]


def against_jax(only: str, turns: int) -> int:
    import jax

    import codegen
    import hlo

    print(f"{'':36}{'MB':>8}{'JAX':>8}{'CPU ms':>10}{'JAX':>10}  error    strips")
    failed = 0
    for name, function, make in jax_cases():
        if not fnmatch.fnmatch(name, only):
            continue
        given = make()
        lowered = jax.jit(function, keep_unused=True).lower(*given)
        compiled = lowered.compile()
        executable = codegen.compile(hlo.parse(lowered.as_text()))
        on_device = [jax.device_put(a) for a in given]
        expected = [np.asarray(x) for x in jax.tree.leaves(compiled(*on_device))]
        found = [np.asarray(x) for x in executable(*given)]
        error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(found, expected, strict=True))
        if not error <= LIMIT:
            print(f"{name:36} differs by {error:.1e}")
            failed += 1
            continue
        ours, theirs = cpu_ms(
            [lambda: executable(*given), lambda: jax.block_until_ready(compiled(*on_device))], turns,  # type: ignore[no-untyped-call]  # noqa: B023
        )  # fmt: skip
        memory = compiled.memory_analysis()
        temporaries = float("nan") if memory is None else memory.temp_size_in_bytes / 1e6
        strips = ", ".join(f"{p.strips[2]} of dimension {p.strips[1]}" for p in executable.plan.strips) or "none"
        scratch = executable.stats.scratch_bytes / 1e6
        print(f"{name:36}{scratch:8.1f}{temporaries:8.1f}{ours:10.1f}{theirs:10.1f}  {error:.0e}  {strips}", flush=True)
    return 1 if failed else 0


def torch_alone(only: str, turns: int, threads: int) -> int:
    import torch

    torch.set_num_threads(threads)
    print(f"{'':36}{'MB':>10}{'eager':>10}{'inductor':>10}  CPU ms")
    for name, function, make in torch_cases():
        if not fnmatch.fnmatch(name, only):
            continue
        given = [torch.from_numpy(a) for a in make()]
        kept: list[Any] = []  # a first call's growth: later ones find memory that PyTorch kept
        peak = peak_rss_growth_bytes(lambda: kept.append(function(*given)))  # noqa: B023
        results = sum(t.numel() * t.element_size() for t in (kept[0] if isinstance(kept[0], tuple) else (kept[0],)))
        kept.clear()
        compiled = torch.compile(function)
        eager, inductor = cpu_ms([lambda: function(*given), lambda: compiled(*given)], turns)  # noqa: B023
        taken = "-" if peak is None else format(max(0.0, (peak - results) / 1e6), ".1f")
        print(f"{name:36}{taken:>10}{eager:10.1f}{inductor:10.1f}", flush=True)
    return 0


def main() -> int:
    p = argparse.ArgumentParser(description="Fusions that people write by hand: memory and CPU time.")
    p.add_argument("--only", default="*", help="a pattern of names")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--torch", action="store_true", help="PyTorch by itself, in an interpreter that has it")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    return torch_alone(args.only, args.turns, args.threads) if args.torch else against_jax(args.only, args.turns)


if __name__ == "__main__":
    sys.exit(main())
