"""What `jax.jit` does on JAX's CPU, on the platform `tilewright`, and what `tilewright.jit` does: the same programs, in one run.

    python -m benchmarks.jax_platform            what differs, and what calls cost
    python -m benchmarks.jax_platform --calls    the costs alone

Each way runs in a process of its own (JAX chooses its platforms once for a process). What is observed of a behaviour is data that
is compared. Costs are taken in turns: every process is asked for each cost again and again, and the least counts.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WAYS = {"cpu": "JAX's CPU", "platform": "platform tilewright", "jit": "tilewright.jit"}
TURNS = 7
SHORT_TURNS = 15


def _outcome(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return f(*args)
    except Exception as e:  # noqa: BLE001 (which one it is is the observation)
        return f"raises {type(e).__name__}"


# ---------------------------------------------------------------- what is observed


def disable_jit(jax: Any, jit: Any) -> Any:
    seen: list[bool] = []

    def g(x: Any) -> Any:
        seen.append(isinstance(x, jax.core.Tracer))
        return x + 1

    f = jit(g)
    with jax.disable_jit():
        f(1.0)
    f(1.0)
    return seen


def transfer_guard(jax: Any, jit: Any) -> Any:
    x = jax.numpy.ones(3)
    f = jit(lambda x: x + 1)
    f(x)
    with jax.transfer_guard("disallow"):
        return [_outcome(lambda a: type(f(a)).__name__, a) for a in (x, np.ones(3, np.float32), 2.0)]


def debug_nans(jax: Any, jit: Any) -> Any:
    f = jit(jax.numpy.log)
    with jax.debug_nans(True):
        return [_outcome(lambda v: bool(f(v) <= 0), v) for v in (1.0, -1.0)]


def log_compiles(jax: Any, jit: Any) -> Any:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    with jax.log_compiles():
        jit(lambda x: x * 3 + 2)(jax.numpy.ones(5))
    logger.removeHandler(handler)
    return [any(word in line for line in lines) for word in ("Finished tracing", "Compiling", "Finished XLA compilation")]


def donate_argnums(jax: Any, jit: Any) -> Any:
    x, y = jax.numpy.ones(3), jax.numpy.ones(3)
    z = jit(lambda a, b: a + b, donate_argnums=0)(x, y)
    return [x.is_deleted(), y.is_deleted(), z.tolist(), _outcome(lambda: np.asarray(x))]


def static_arguments(jax: Any, jit: Any) -> Any:
    traced: list[Any] = []

    def g(n: int, x: Any, *, mode: str) -> Any:
        traced.append((n, mode))
        return x * n

    f = jit(g, static_argnums=0, static_argnames="mode")
    for n, mode in ((2, "a"), (2, "a"), (3, "a"), (3, "b")):
        f(n, 1.0, mode=mode)
    return [len(traced), _outcome(lambda: f([1], 1.0, mode="a"))]


def in_shardings(jax: Any, jit: Any) -> Any:
    device = jax.devices()[0]
    mesh = jax.sharding.Mesh(np.array([device]), ("i",))
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    single = jax.sharding.SingleDeviceSharding(device)

    def made(s: Any) -> str:
        return type(jit(lambda x: x + 1, in_shardings=s, out_shardings=s)(np.ones(4)).sharding).__name__

    return [_outcome(made, s) for s in (named, single)]


def keep_unused(jax: Any, jit: Any) -> Any:
    x = np.ones(3, np.float32)

    def made(keeps: bool) -> int:
        text = jit(lambda a, b: a + 1, keep_unused=keeps).lower(x, x).as_text()
        return str(text).count("%arg1")

    return [_outcome(made, k) for k in (False, True)]


def inline(jax: Any, jit: Any) -> Any:

    def made(inlines: bool) -> bool:
        inner = jit(lambda x: x + 1, inline=inlines)
        return "jit[" in str(jax.make_jaxpr(lambda x: inner(x))(1.0))

    return [_outcome(made, k) for k in (False, True)]


def ahead_of_time(jax: Any, jit: Any) -> Any:
    x = np.arange(4, dtype=np.float32)
    f = jit(lambda x: x * 2)
    compiled = f.lower(x).compile()
    wrong = _outcome(lambda: compiled(np.ones(5, np.float32)))
    return [np.asarray(compiled(x)).tolist(), wrong, str(f.trace(x).jaxpr), bool(f.lower(x).as_text())]


def serialized(jax: Any, jit: Any) -> Any:
    from jax.experimental import serialize_executable

    x = np.arange(4, dtype=np.float32)
    compiled = jit(lambda x: x * 2).lower(x).compile()
    return np.asarray(serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))(x)).tolist()


def exported(jax: Any, jit: Any) -> Any:
    import jax.export

    made = jax.export.export(jit(lambda x: x * 2))(np.ones(3, np.float32))
    return np.asarray(jax.export.deserialize(made.serialize()).call(np.ones(3, np.float32))).tolist()


def eval_shape(jax: Any, jit: Any) -> Any:
    f = jit(lambda x: {"a": x @ x, "b": x[0]})
    return [str(jax.eval_shape(f, np.ones((3, 3)))), str(f.eval_shape(np.ones((3, 3))))]


def clear_cache(jax: Any, jit: Any) -> Any:
    traced: list[int] = []

    def g(x: Any) -> Any:
        traced.append(1)
        return x

    f = jit(g)
    f(1.0)
    f(1.0)
    f.clear_cache()
    f(1.0)
    return len(traced)


def weak_types(jax: Any, jit: Any) -> Any:
    f = jit(lambda x: (x, x + 1, x * np.float32(2)))
    given = (2, 2.0, np.int8(3), jax.numpy.float16(1))
    return [[(str(r.dtype), r.weak_type, str((r + jax.numpy.int8(1)).dtype)) for r in f(v)] for v in given]


def extended_dtypes(jax: Any, jit: Any) -> Any:
    keys = jit(lambda k: jax.random.split(k, 3))(jax.random.key(0))
    slopes = jax.grad(lambda n: jit(lambda n: n * 1.0)(n), allow_int=True)(3)
    return [str(keys.dtype), keys.shape, np.asarray(jax.random.key_data(keys)).tolist(), str(slopes.dtype)]


def ordered_callbacks(jax: Any, jit: Any) -> Any:
    log: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: log.append(("a", float(v))), x[0], ordered=True)

        def turn(c: Any, r: Any) -> Any:
            jax.debug.callback(lambda v: log.append(float(v)), r, ordered=True)
            return c + r, r

        x, _ = jax.lax.scan(turn, x, x)
        jax.debug.callback(lambda v: log.append(("b", float(v))), x[0], ordered=True)
        return x

    jax.block_until_ready(jit(f)(jax.numpy.arange(3.0)))
    jax.effects_barrier()
    return log


def asynchronous(jax: Any, jit: Any) -> Any:
    x = jax.numpy.ones((1500, 1500))
    f = jit(lambda x: x @ x)
    jax.block_until_ready(f(x))
    found = []
    for _ in range(5):
        y = f(x)
        found.append(not y.is_ready())
        jax.block_until_ready(y)
    return sum(found) >= 3


def errors_of_callbacks(jax: Any, jit: Any) -> Any:
    def fails(v: Any) -> Any:
        raise ValueError("mine")

    f = jit(lambda x: jax.pure_callback(fails, x, x))
    logging.disable(logging.ERROR)
    try:
        return _outcome(lambda: jax.block_until_ready(f(jax.numpy.float32(1))))
    finally:
        logging.disable(logging.NOTSET)


def linear_algebra(jax: Any, jit: Any) -> Any:
    """Every routine of LAPACK that JAX's CPU lowers to: whether it gives what NumPy says it must."""
    linalg, scipy = jax.numpy.linalg, jax.scipy.linalg
    square = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    found: dict[str, Any] = {}
    for name, x in (("real", square), ("complex", (square + 1j * square.T).astype(np.complex64))):
        p = (x @ x.conj().T + 6 * np.eye(6)).astype(x.dtype)
        upper = np.triu(p)
        cases: dict[str, tuple[Callable[[Any], Any], Any, Callable[[Any], Any]]] = {
            "potrf": (linalg.cholesky, p, np.linalg.cholesky),
            "syevd": (linalg.eigvalsh, p, np.linalg.eigvalsh),
            "gesdd": (lambda x: linalg.svd(x, compute_uv=False), x, lambda x: np.linalg.svd(x, compute_uv=False)),
            "gesvd": (lambda x: _values_by_qr(jax, x), x, lambda x: np.linalg.svd(x, compute_uv=False)),
            "getrf": (lambda x: linalg.solve(x, x[0]), x, lambda x: np.linalg.solve(x, x[0])),
            "geqrf orgqr": (lambda x: _product(*linalg.qr(x)), x, lambda x: x),
            "ormqr": (lambda x: _through_ormqr(jax, x), x, lambda x: x),
            "geqp3": (lambda x: _unpivoted(*scipy.qr(x, pivoting=True)), x, lambda x: x),
            "geev": (lambda x: jax.numpy.sort(linalg.eigvals(x).real), x, lambda x: np.sort(np.linalg.eigvals(x).real)),
            "gees": (lambda x: _turned(*scipy.schur(x)), x, lambda x: x),
            "gehrd": (lambda x: _turned(*scipy.hessenberg(x, calc_q=True)), x, lambda x: x),
            "sytrd": (lambda p: _tridiagonal_values(jax, p), p, np.linalg.eigvalsh),
            "trsm": (lambda p: p @ scipy.solve_triangular(p, p), upper, lambda p: p),
            "gtsv": (lambda p: _tridiagonal_product(jax, p), p, lambda p: p[:, :2]),
        }
        for routine, (f, a, expected) in cases.items():
            made = _outcome(lambda f, a: np.asarray(jit(f)(a)), f, a)
            is_right = isinstance(made, np.ndarray) and bool(np.allclose(made, expected(a), rtol=2e-3, atol=2e-3))
            found[f"{name} {routine}"] = made if isinstance(made, str) else is_right
    return found


def _values_by_qr(jax: Any, x: Any) -> Any:
    return jax.lax.linalg.svd(x, compute_uv=False, algorithm=jax.lax.linalg.SvdAlgorithm.QR)


def _product(q: Any, r: Any) -> Any:
    return q @ r


def _turned(t: Any, z: Any) -> Any:
    return z @ t @ z.conj().T


def _unpivoted(q: Any, r: Any, p: Any) -> Any:
    return (q @ r)[:, p.argsort()]


def _through_ormqr(jax: Any, x: Any) -> Any:
    from jax._src.lax import linalg  # JAX lowers to it and does not show it

    a, taus = linalg.geqrf(x)
    return linalg.ormqr(a, taus, jax.numpy.triu(a), left=True, transpose=False)


def _tridiagonal_values(jax: Any, p: Any) -> Any:
    _, d, e, _ = jax.lax.linalg.tridiagonal(p)
    full = jax.numpy.diag(d) + jax.numpy.diag(e, 1) + jax.numpy.diag(e, -1)
    return jax.numpy.linalg.eigvalsh(full)


def _tridiagonal_product(jax: Any, p: Any) -> Any:
    jnp = jax.numpy
    zero = jnp.zeros(1, p.dtype)
    d, upper, lower = jnp.diag(p), jnp.concatenate([jnp.diag(p, 1), zero]), jnp.concatenate([zero, jnp.diag(p, -1)])
    full = jnp.diag(d) + jnp.diag(upper[:-1], 1) + jnp.diag(lower[1:], -1)
    return full @ jax.lax.linalg.tridiagonal_solve(lower, d, upper, p[:, :2])


def collectives(jax: Any, jit: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    lax, x = jax.lax, np.arange(4, dtype=np.float32)
    ops = {
        "psum": lambda x: lax.psum(x, "i"), "pmax": lambda x: lax.pmax(x, "i"), "axis_index": lambda x: x + lax.axis_index("i"),
        "all_gather": lambda x: lax.all_gather(x, "i")[0], "ppermute": lambda x: lax.ppermute(x, "i", [(0, 0)]),
        "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True),
        "psum_scatter": lambda x: lax.psum_scatter(x, "i", tiled=True),
    }  # fmt: skip

    def made(f: Any) -> Any:
        return np.asarray(jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))(x)).tolist()

    return {name: _outcome(made, f) for name, f in ops.items()}


def persistent_cache(jax: Any, jit: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        options = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0}
        was = {name: getattr(jax.config, name) for name in options}
        for name, value in options.items():
            jax.config.update(name, value)
        jit(lambda x: x * 7 + 5)(np.ones(7, np.float32))
        for name, value in was.items():
            jax.config.update(name, value)
        return any(os.listdir(folder))


def dlpack(jax: Any, jit: Any) -> Any:
    x = jit(lambda x: x + 1)(np.ones(3, np.float32))
    y = np.ones(3, np.float32)
    return [_outcome(lambda: np.from_dlpack(x).tolist()), _outcome(lambda: jax.dlpack.from_dlpack(y).tolist())]


def leaks(jax: Any, jit: Any) -> Any:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    with jax.checking_leaks():
        return _outcome(lambda: jit(keep)(1.0).tolist())


def device_arrays(jax: Any, jit: Any) -> Any:
    x = jit(lambda x: x + 1)(np.ones((2, 3), np.float32))
    shard = x.addressable_shards[0]
    whole = shard.index == (slice(None), slice(None))
    return [x.committed, x.is_fully_addressable, whole, len(x.devices()), x.nbytes, x.weak_type]


BEHAVIOUR: tuple[Callable[[Any, Any], Any], ...] = (
    disable_jit, transfer_guard, debug_nans, log_compiles, donate_argnums, static_arguments, in_shardings, keep_unused, inline,
    ahead_of_time, serialized, exported, eval_shape, clear_cache, weak_types, extended_dtypes, ordered_callbacks, asynchronous,
    errors_of_callbacks, linear_algebra, collectives, persistent_cache, dlpack, leaks, device_arrays,
)  # fmt: skip


# ---------------------------------------------------------------- what calls cost


def _calls(jax: Any, jit: Any) -> dict[str, Callable[[], Any]]:
    """Calls whose cost in the caller's thread and in all is measured."""
    jnp = jax.numpy
    x = jnp.ones(64)
    small = jit(lambda x: jnp.sin(x) * 2 + 1)
    calls: dict[str, Callable[[], Any]] = {"3 ops on 64 elements": lambda: small(x)}
    for leaves in (1, 20, 300, 1000):
        tree = [jnp.ones((16, 16)) for _ in range(leaves)]
        step = jit(lambda t: jax.tree.map(lambda x: x * 0.9 + 1, t))
        calls[f"{leaves} leaves of 16x16"] = functools.partial(step, tree)
    weights = {"a": jnp.full((64, 64), 0.1), "b": jnp.full((64, 64), 0.1)}

    def loss(w: Any, x: Any) -> Any:
        value = jnp.sum(jnp.tanh(jnp.tanh(x @ w["a"]) @ w["b"]))
        jax.debug.callback(lambda v: None, value, ordered=True)
        return value

    train = jit(lambda w, x: jax.tree.map(lambda w, g: w - 0.1 * g, w, jax.grad(loss)(w, x)))
    batch = jnp.ones((32, 64))
    calls["a perceptron's step with an ordered callback"] = lambda: train(weights, batch)
    return calls


def _cost(jax: Any, call: Callable[[], Any]) -> tuple[float, float]:
    """(seconds of the caller, seconds of the process) of one call that is waited for: of processor time.

    The least of turns so short that most are over before another process has the core, and its caches.
    """
    jax.block_until_ready(call())
    began = time.perf_counter()
    jax.block_until_ready(call())
    number = max(3, int(0.002 / (time.perf_counter() - began + 1e-9)))
    turns = []
    for _ in range(SHORT_TURNS):
        caller, process = time.thread_time(), time.process_time()
        for _ in range(number):
            jax.block_until_ready(call())
        turns.append(((time.thread_time() - caller) / number, (time.process_time() - process) / number))
    return min(t for t, _ in turns), min(t for _, t in turns)


# ---------------------------------------------------------------- the processes


def _serve(way: str) -> None:
    """Answers lines of names with lines of JSON."""
    import jax

    import tilewright

    jit: Any = tilewright.jit if way == "jit" else jax.jit
    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        kind, _, name = line.strip().partition(" ")
        if kind == "behaviour":
            function = next(f for f in BEHAVIOUR if f.__name__ == name)
            answer = _outcome(lambda function=function: function(jax, jit))
        else:
            calls = calls or _calls(jax, jit)
            answer = _cost(jax, calls[name]) if kind == "cost" else list(calls)
        print("ANSWER " + json.dumps(answer), flush=True)


class _Way:
    def __init__(self, way: str) -> None:
        platforms = "tilewright" if way == "platform" else "cpu"
        environment = {**os.environ, "JAX_PLATFORMS": platforms, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        start = "import tilewright.pjrt; tilewright.pjrt.register(); " if way == "platform" else ""
        program = f"{start}from benchmarks.jax_platform import _serve; _serve({way!r})"
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, "-P", "-c", program], env=environment, text=True, **pipes)

    def ask(self, question: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(question, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        return f"the process ended ({self.process.wait()})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--only", help="one behaviour, with what was observed")
    options = parser.parse_args()
    ways = {way: _Way(way) for way in WAYS}
    if not options.calls:
        print(f"| `jax.jit` | {' | '.join(list(WAYS.values())[1:])} |\n|---|---|---|")
        for f in BEHAVIOUR:
            if options.only in (None, f.__name__):
                found = {way: process.ask(f"behaviour {f.__name__}") for way, process in ways.items()}
                print(f"| {f.__name__} | {' | '.join(_told(found[way], found['cpu']) for way in list(WAYS)[1:])} |", flush=True)
                if options.only:
                    print(json.dumps(found, indent=1))
    if options.only:
        return
    names = [way.ask("names") for way in ways.values()][-1]
    costs: dict[tuple[str, str], list[Any]] = collections.defaultdict(list)
    for _ in range(TURNS):
        for name in names:
            for way, process in ways.items():
                costs[name, way].append(process.ask(f"cost {name}"))
    print("\nMicroseconds of processor time of a call that is waited for, the caller's and (all threads')\n")
    print(f"| | {' | '.join(WAYS.values())} |\n|---|---|---|---|")
    for name in names:
        cells = [[1e6 * min(c[k] for c in costs[name, way]) for k in (0, 1)] for way in WAYS]
        print(f"| {name} | {' | '.join(f'{a:.1f} ({b:.1f})' for a, b in cells)} |")


def _told(found: Any, expected: Any) -> str:
    if found == expected:
        return "the same"
    if isinstance(found, dict) and isinstance(expected, dict):
        return "; ".join(f"{k}: {found[k]} for {v}" for k, v in expected.items() if found.get(k) != v)
    return f"{found} for {expected}".replace("|", "\\|").replace("\n", " ")[:200]


if __name__ == "__main__":
    main()
