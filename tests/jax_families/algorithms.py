"""Models, optimisers, simulations and algorithms of some twenty lines."""

from __future__ import annotations

from typing import Any

import jax
import jax.experimental.sparse
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from tests.jax_families.common import Table, values

PROGRAMS = Table()
add = PROGRAMS.add


def f32(*shape: int, seed: str = "", scale: float = 1.0) -> np.ndarray:
    return values("float32", *shape, seed=seed, low=-scale, high=scale)


def _key(bits: Any) -> Any:
    return random.wrap_key_data(bits)


KEY = np.array([1, 2], np.uint32)

# ---------------------------------------------------------------- optimisers

_params = {"w1": f32(6, 8, scale=0.5), "b1": f32(8), "w2": f32(8, 3, scale=0.5), "b2": f32(3)}
_batch = (f32(10, 6), values("int32", 10, low=0, high=2))


def _loss(p: Any, batch: Any) -> Any:
    x, y = batch
    logits = jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(x.shape[0]), y])


def _adam(p: Any, m: Any, v: Any, t: Any, batch: Any) -> Any:
    g = jax.grad(_loss)(p, batch)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    p = jax.tree.map(lambda p, m, v: p - 1e-2 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), p, m, v)
    return p, m, v


_zeros = jax.tree.map(np.zeros_like, _params)
add(
    "adam step",
    _adam,
    _params,
    jax.tree.map(lambda p: p * 0.1, _params),
    jax.tree.map(lambda p: p * p, _params),
    np.float32(3),
    _batch,
)
add(
    "adam training",
    lambda p, batch: lax.fori_loop(
        1,
        6,
        lambda t, s: _adam(*s, t.astype(jnp.float32), batch),
        (p, jax.tree.map(lambda x: x * 0.1, p), jax.tree.map(lambda x: x * x, p)),
    ),
    _params,
    _batch,
    bound=1e-3,
    slow=True,
)
add(
    "sgd with momentum, scanned",
    lambda p, x, y: lax.scan(
        lambda s, b: (
            lambda l, g: (
                (
                    jax.tree.map(lambda p, v, g: p - 0.1 * (0.9 * v + g), s[0], s[1], g),
                    jax.tree.map(lambda v, g: 0.9 * v + g, s[1], g),
                ),
                l,
            )
        )(*jax.value_and_grad(_loss)(s[0], b)),
        (p, jax.tree.map(jnp.zeros_like, p)),
        (x, y),
    ),
    _params,
    f32(3, 5, 6),
    values("int32", 3, 5, low=0, high=2),
    bound=1e-4,
    slow=True,
)


def _lamb(p: Any, batch: Any) -> Any:
    g = jax.grad(_loss)(p, batch)
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x / jnp.maximum(norm, 1.0), g)

    def one(p: Any, g: Any) -> Any:
        u = g / (jnp.sqrt(g * g) + 1e-3) + 0.01 * p
        a, b = jnp.linalg.norm(p), jnp.linalg.norm(u)
        return p - 0.01 * jnp.where((a > 0) & (b > 0), a / b, 1.0) * u

    return jax.tree.map(one, p, g)


add("lamb step", _lamb, _params, _batch, bound=1e-4)
add(
    "rmsprop and adagrad",
    lambda p, g: (
        jax.tree.map(lambda p, g: p - 0.01 * g / (jnp.sqrt(0.9 * p * p + 0.1 * g * g) + 1e-6), p, g),
        jax.tree.map(lambda p, g: p - 0.1 * g * lax.rsqrt(jnp.cumsum(g * g, 0)[-1] + 1e-7), p, g),
    ),
    _params,
    _params,
)
add(
    "global norm clipping",
    lambda g: (lambda n: jax.tree.map(lambda x: x * jnp.minimum(1.0, 0.5 / n), g))(
        jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(g)))
    ),
    _params,
)
add(
    "learning rates",
    lambda t: [
        jnp.where(t < 10, t / 10, 0.5 * (1 + jnp.cos(jnp.pi * (t - 10) / 90))),
        0.1 * 0.5 ** (t // 30),
        jnp.piecewise(t.astype(float), [t < 5, t >= 5], [lambda t: t * 0.1, lambda t: 0.5 / jnp.sqrt(t)]),
    ],
    np.arange(0, 100, 7),
)
add(
    "newton's method",
    lambda x: lax.fori_loop(
        0, 5, lambda i, x: x - jnp.linalg.solve(jax.hessian(_rosenbrock)(x) + 0.1 * jnp.eye(2), jax.grad(_rosenbrock)(x)), x
    ),
    np.array([0.9, 0.8], np.float32),
    bound=1e-3,
)
add(
    "gradient descent with a line search",
    lambda x: lax.fori_loop(
        0,
        4,
        lambda i, x: (
            lambda g: (
                x
                - lax.while_loop(lambda a: _rosenbrock(x - a * g) > _rosenbrock(x) - 0.3 * a * g @ g, lambda a: a * 0.5, 1.0) * g
            )
        )(jax.grad(_rosenbrock)(x)),
        x,
    ),
    np.array([0.5, 0.4], np.float32),
    bound=1e-3,
)


def _rosenbrock(x: Any) -> Any:
    return (1 - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2


# ---------------------------------------------------------------- networks


def _cnn(p: Any, x: Any) -> Any:
    y = jax.nn.relu(lax.conv_general_dilated(x, p["c1"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["b1"])
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = jax.nn.relu(lax.conv_general_dilated(y, p["c2"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return y.reshape(y.shape[0], -1) @ p["d"]


_cnn_p = {"c1": f32(3, 3, 1, 4, scale=0.4), "b1": f32(4, scale=0.1), "c2": f32(3, 3, 4, 6, scale=0.3), "d": f32(24, 3, scale=0.3)}
add("cnn", _cnn, _cnn_p, f32(2, 8, 8, 1))
add(
    "cnn gradient",
    lambda p, x, y: jax.value_and_grad(lambda p: -jnp.mean(jnp.sum(jax.nn.one_hot(y, 3) * jax.nn.log_softmax(_cnn(p, x)), -1)))(
        p
    ),
    _cnn_p,
    f32(2, 8, 8, 1),
    np.array([0, 2]),
    bound=1e-4,
    slow=True,
)


def _gru(p: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        z, r = jnp.split(jax.nn.sigmoid(x @ p["wx"] + h @ p["wh"]), 2, -1)
        n = jnp.tanh(x @ p["nx"] + (r * h) @ p["nh"])
        h = (1 - z) * n + z * h
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], 4)), xs)


_gru_p = {"wx": f32(3, 8), "wh": f32(4, 8), "nx": f32(3, 4), "nh": f32(4, 4)}
add("gru", _gru, _gru_p, f32(6, 2, 3))
add("gru gradient", lambda p, x: jax.grad(lambda p: jnp.sum(_gru(p, x)[1] ** 2))(p), _gru_p, f32(6, 2, 3), bound=1e-4, slow=True)


def _lstm(p: Any, xs: Any, reverse: bool = False) -> Any:
    def step(s: Any, x: Any) -> Any:
        h, c = s
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ p, 4, -1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], p.shape[1] // 4))
    return lax.scan(step, (zero, zero), xs, reverse=reverse)[1]


add(
    "lstm in both directions",
    lambda p, q, x: jnp.concatenate([_lstm(p, x), _lstm(q, x, True)], -1),
    f32(7, 16),
    f32(7, 16, seed="q"),
    f32(5, 2, 3),
)
add(
    "lstm with lengths",
    lambda p, x, n: jnp.where(jnp.arange(5)[:, None, None] < n[:, None], _lstm(p, x), 0)[n - 1, jnp.arange(2)],
    f32(7, 16),
    f32(5, 2, 3),
    np.array([3, 5], np.int32),
)


def _attention(p: Any, x: Any, heads: int, causal: bool) -> Any:
    n, d = x.shape
    q, k, v = jnp.split((x @ p["qkv"]).reshape(n, heads, -1), 3, -1)
    s = jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(q.shape[-1])
    if causal:
        s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -1e9)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(s), v).reshape(n, d) @ p["o"]


def _norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _block(p: Any, x: Any) -> Any:
    x = x + _attention(p, _norm(x), 2, True)
    return x + jax.nn.gelu(_norm(x) @ p["up"]) @ p["down"]


_block_p = {"qkv": f32(8, 24, scale=0.4), "o": f32(8, 8, scale=0.4), "up": f32(8, 16, scale=0.4), "down": f32(16, 8, scale=0.4)}
_stack = jax.tree.map(lambda a: np.stack([a, a * 0.5]), _block_p)
add("transformer block", lambda p, x: jax.vmap(lambda x: _block(p, x))(x), _block_p, f32(2, 5, 8))
add("transformer of scanned layers", lambda p, x: lax.scan(lambda x, p: (_block(p, x), None), x, p)[0], _stack, f32(5, 8))
add(
    "next token loss gradient",
    lambda p, e, t: jax.value_and_grad(
        lambda p, e: -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(_block(p, e[t[:-1]]) @ e.T), t[1:, None], 1)),
        argnums=(0, 1),
    )(p, e),
    _block_p,
    f32(11, 8, scale=0.5),
    values("int32", 7, low=0, high=10),
    bound=2e-4,
    slow=True,
)
add(
    "key-value cache",
    lambda p, xs: lax.scan(
        lambda c, tx: (
            lambda t, x: (
                lambda qkv: (lambda k, v: ((k, v), jax.nn.softmax(jnp.where(jnp.arange(6) <= t, k @ qkv[0], -jnp.inf)) @ v))(
                    c[0].at[t].set(qkv[1]), c[1].at[t].set(qkv[2])
                )
            )(jnp.split(x @ p, 3))
        )(*tx),
        (jnp.zeros((6, 8)), jnp.zeros((6, 8))),
        (jnp.arange(6), xs),
    ),
    f32(8, 24),
    f32(6, 8),
)
add(
    "rotary embeddings",
    lambda x: (lambda a, c, s: jnp.concatenate([a[0] * c - a[1] * s, a[0] * s + a[1] * c], -1))(
        jnp.split(x, 2, -1), *(lambda t: (jnp.cos(t), jnp.sin(t)))(jnp.outer(jnp.arange(6.0), 1e4 ** (-jnp.arange(4) / 4)))
    ),
    f32(6, 8),
)
add(
    "mixture of experts",
    lambda x, g, w: (
        lambda p: (
            lambda top, i: jnp.einsum("nk,nkd->nd", top / top.sum(-1, keepdims=True), jnp.einsum("nd,nkde->nke", x, w[i]))
        )(*lax.top_k(p, 2))
    )(jax.nn.softmax(x @ g)),
    f32(6, 4),
    f32(4, 5),
    f32(5, 4, 4),
)
add(
    "mixture of experts by ragged products",
    lambda x, g, w: (
        lambda e: (lambda o: lax.ragged_dot(x[o], w, jnp.bincount(e, length=3).astype(jnp.int32))[jnp.argsort(o)])(jnp.argsort(e))
    )(jnp.argmax(x @ g, -1)),
    f32(9, 4),
    f32(4, 3),
    f32(3, 4, 4),
)
add(
    "graph network",
    lambda h, s, r, w: lax.fori_loop(
        0,
        2,
        lambda i, h: jax.nn.relu(
            (h + jax.ops.segment_sum(h[s] / jnp.maximum(jax.ops.segment_sum(jnp.ones(12), s, 6), 1)[s, None], r, 6)) @ w
        ),
        h,
    ),
    f32(6, 4),
    values("int32", 12, low=0, high=5),
    values("int32", 12, low=0, high=5, seed="r"),
    f32(4, 4, scale=0.5),
)
add(
    "graph attention",
    lambda h, s, r, a: (
        lambda e: (
            lambda z: jax.ops.segment_sum(
                (jnp.exp(e - z[r]) / jax.ops.segment_sum(jnp.exp(e - z[r]), r, 6)[r])[:, None] * h[s], r, 6
            )
        )(jax.ops.segment_max(e, r, 6))
    )(jax.nn.leaky_relu(h[s] @ a[:4] + h[r] @ a[4:])),
    f32(6, 4),
    values("int32", 12, low=0, high=5),
    values("int32", 12, low=0, high=5, seed="r"),
    f32(8),
)
add(
    "variational autoencoder",
    lambda p, x, k: jax.value_and_grad(
        lambda p: (
            lambda m, s: (
                jnp.mean(jnp.sum((jax.nn.sigmoid((m + jnp.exp(s) * random.normal(_key(k), m.shape)) @ p["d"]) - x) ** 2, 1))
                - 0.5 * jnp.mean(1 + 2 * s - m**2 - jnp.exp(2 * s))
            )
        )(*jnp.split(jnp.tanh(x @ p["e"]), 2, 1))
    )(p),
    {"e": f32(6, 4), "d": f32(2, 6)},
    f32(5, 6),
    KEY,
    bound=1e-4,
    slow=True,
)
add(
    "normalising flow",
    lambda x, w: (lambda z, l: jnp.sum(jax.scipy.stats.norm.logpdf(z), -1) + l)(
        *lax.fori_loop(
            0,
            3,
            lambda i, s: (
                lambda a, b: (lambda h: (jnp.concatenate([b * jnp.exp(h[:, :2]) + h[:, 2:], a], 1), s[1] + h[:, :2].sum(1)))(
                    jnp.tanh(a @ w[i])
                )
            )(*jnp.split(s[0], 2, 1)),
            (x, jnp.zeros(5)),
        )
    ),
    f32(5, 4),
    f32(3, 2, 4),
    bound=1e-4,
)
add(
    "diffusion step",
    lambda x, t, k: (lambda a: jnp.sqrt(a)[:, None] * x + jnp.sqrt(1 - a)[:, None] * random.normal(_key(k), x.shape))(
        jnp.cumprod(1 - jnp.linspace(1e-4, 0.02, 50))[t]
    ),
    f32(4, 6),
    values("int32", 4, low=0, high=49),
    KEY,
    bound=1e-4,
)
add(
    "batch norm with running statistics",
    lambda x, m, v: (lambda a, b: ((x - a) / jnp.sqrt(b + 1e-5), 0.9 * m + 0.1 * a, 0.9 * v + 0.1 * b * 8 / 7))(
        x.mean(0), x.var(0)
    ),
    f32(8, 5),
    f32(5),
    f32(5) ** 2,
)
add(
    "contrastive loss gradient",
    lambda a, b: jax.grad(
        lambda a, b: (lambda s: -jnp.mean(jnp.diag(jax.nn.log_softmax(s, 0)) + jnp.diag(jax.nn.log_softmax(s, 1))))(
            (a / jnp.linalg.norm(a, axis=1, keepdims=True)) @ (b / jnp.linalg.norm(b, axis=1, keepdims=True)).T / 0.1
        ),
        argnums=(0, 1),
    )(a, b),
    f32(5, 4),
    f32(5, 4, seed="b"),
    bound=1e-4,
)
add(
    "losses",
    lambda x, y: (
        jnp.mean((x - y) ** 2),
        jnp.mean(jnp.where(jnp.abs(x - y) < 1, 0.5 * (x - y) ** 2, jnp.abs(x - y) - 0.5)),
        jnp.mean(jnp.maximum(0, 1 - x * jnp.sign(y))),
        jnp.mean(jnp.logaddexp(0, -x * y)),
        jnp.sum(jax.scipy.special.kl_div(jax.nn.softmax(x), jax.nn.softmax(y))),
        1 - jnp.vdot(x, y) / jnp.linalg.norm(x) / jnp.linalg.norm(y),
    ),
    f32(4, 5),
    f32(4, 5, seed="y"),
)
add("lora", lambda x, w, a, b: x @ (w + 0.5 * (a @ b)), f32(5, 8), f32(8, 8), f32(8, 2), f32(2, 8))
add(
    "state space model",
    lambda a, b, c, x: jnp.real(
        lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (jnp.broadcast_to(a, (9, 4)), x[:, None] * b))[1] @ c
    ),
    np.exp(1j * np.arange(4)).astype(np.complex64) * np.float32(0.9),
    f32(4).astype(np.complex64),
    f32(4).astype(np.complex64),
    f32(9),
    bound=1e-4,
)
add(
    "quantised weights",
    lambda x: (
        lambda s: (lambda q: (q.astype(jnp.float32) * s, (q.astype(jnp.int32) @ q.T.astype(jnp.int32))))(
            jnp.clip(jnp.round(x / s), -128, 127).astype(jnp.int8)
        )
    )(jnp.max(jnp.abs(x), 1, keepdims=True) / 127),
    f32(4, 6),
)
add(
    "mixed precision",
    lambda x, w: jax.value_and_grad(
        lambda w: jnp.mean((x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32) ** 2)
    )(w),
    f32(5, 8),
    f32(8, 3),
    bound=2e-2,
)

# ---------------------------------------------------------------- simulation and numerics

add(
    "runge-kutta",
    lambda y: lax.scan(
        lambda y, _: (
            lambda k1: (
                lambda k2: (lambda k3: (lambda k4: (y + 0.05 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y))(_lorenz(y + 0.05 * k3)))(
                    _lorenz(y + 0.025 * k2)
                )
            )(_lorenz(y + 0.025 * k1))
        )(_lorenz(y)),
        y,
        None,
        length=10,
    ),
    np.array([1, 1, 1], np.float32),
    bound=1e-3,
)


def _lorenz(y: Any) -> Any:
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


add(
    "leapfrog",
    lambda q, p: lax.fori_loop(
        0,
        10,
        lambda i, s: (lambda h: (lambda q: (q, h - 0.05 * q / jnp.linalg.norm(q) ** 3))(s[0] + 0.1 * h))(
            s[1] - 0.05 * s[0] / jnp.linalg.norm(s[0]) ** 3
        ),
        (q, p),
    ),
    np.array([1, 0], np.float32),
    np.array([0, 1], np.float32),
    bound=1e-4,
)
add(
    "bodies",
    lambda x, v, m: lax.scan(
        lambda s, _: (
            lambda d: (lambda a: ((s[0] + 0.01 * s[1], s[1] + 0.01 * a), jnp.sum(m * jnp.sum(s[1] ** 2, 1))))(
                jnp.sum(m[None, :, None] * d / (jnp.sum(d * d, -1, keepdims=True) + 0.1) ** 1.5, 1)
            )
        )(s[0][None] - s[0][:, None]),
        (x, v),
        None,
        length=4,
    ),
    f32(6, 3),
    f32(6, 3, seed="v"),
    np.abs(f32(6)),
    bound=1e-4,
)
add(
    "heat equation",
    lambda u: lax.fori_loop(
        0,
        8,
        lambda i, u: u.at[1:-1, 1:-1].add(0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])),
        u,
    ),
    f32(9, 11),
)
add(
    "game of life",
    lambda b: lax.fori_loop(
        0,
        4,
        lambda i, b: (lambda n: (n == 3) | (b & (n == 2)))(
            sum(jnp.roll(b, (i, j), (0, 1)).astype(jnp.int32) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        ),
        b,
    ),
    values("bool", 8, 9),
)
add(
    "cellular automaton",
    lambda s: lax.scan(lambda s, _: ((30 >> (jnp.roll(s, 1) * 4 + s * 2 + jnp.roll(s, -1))) & 1, s), s, None, length=8),
    np.eye(1, 31, 15, dtype=np.int32)[0],
)
add(
    "mandelbrot",
    lambda c: lax.fori_loop(
        0,
        20,
        lambda i, s: (lambda z: (jnp.where(jnp.abs(z) < 2, z * z + c, z), s[1] + (jnp.abs(z) < 2)))(s[0]),
        (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)),
    )[1],
    (np.linspace(-2, 1, 12) + 1j * np.linspace(-1, 1, 9)[:, None]).astype(np.complex64),
)
add(
    "metropolis sampling",
    lambda k, x: lax.scan(
        lambda x, k: (
            lambda a, b: (lambda y: (lambda ok: (jnp.where(ok, y, x), ok))(jnp.log(random.uniform(b)) < 0.5 * (x @ x - y @ y)))(
                x + random.normal(a, (3,))
            )
        )(*random.split(k)),
        x,
        random.split(_key(k), 8),
    ),
    KEY,
    f32(3),
    bound=1e-4,
    slow=True,
)
add(
    "hamiltonian sampling",
    lambda k, q: (
        lambda p: lax.fori_loop(
            0,
            5,
            lambda i, s: (lambda h: (s[0] + 0.1 * h, h - 0.05 * jax.grad(_energy)(s[0] + 0.1 * h)))(
                s[1] - 0.05 * jax.grad(_energy)(s[0])
            ),
            (q, p),
        )
    )(random.normal(_key(k), (3,))),
    KEY,
    f32(3),
    bound=1e-4,
    slow=True,
)


def _energy(q: Any) -> Any:
    return jnp.sum(q**4) - jnp.sum(jnp.cos(q))


add(
    "kalman filter",
    lambda z, a, h: lax.scan(
        lambda s, z: (
            lambda x, p: (lambda k: (lambda x, p: ((x, p), x))(x + k @ (z - h @ x), (jnp.eye(2) - k @ h) @ p))(
                p @ h.T @ jnp.linalg.inv(h @ p @ h.T + 0.5 * jnp.eye(1))
            )
        )(a @ s[0], a @ s[1] @ a.T + 0.1 * jnp.eye(2)),
        (jnp.zeros(2), jnp.eye(2)),
        z,
    ),
    f32(8, 1),
    np.array([[1, 0.1], [0, 1]], np.float32),
    np.array([[1, 0]], np.float32),
    bound=1e-3,
)
add(
    "hidden markov model",
    lambda t, e, o: (lambda f: (f, jax.nn.logsumexp(f[0])))(
        lax.scan(
            lambda a, o: (lambda b: (b, b))(
                jax.nn.logsumexp(a[:, None] + jax.nn.log_softmax(t), 0) + jax.nn.log_softmax(e)[:, o]
            ),
            jnp.zeros(4),
            o,
        )
    ),
    f32(4, 4),
    f32(4, 5),
    values("int32", 7, low=0, high=4),
    bound=1e-4,
)
add(
    "viterbi",
    lambda t, e: (lambda last, back: lax.scan(lambda s, b: (b[s], b[s]), jnp.argmax(last), back, reverse=True)[1])(
        *lax.scan(lambda a, e: (lambda s: (s.max(0) + e, s.argmax(0)))(a[:, None] + t), e[0], e[1:])
    ),
    f32(4, 4),
    f32(7, 4),
)
add(
    "beam search",
    lambda w: lax.fori_loop(
        0,
        4,
        lambda i, s: (lambda c: (lambda v, k: (v, s[1][k // 6].at[:, i].set(k % 6)))(*lax.top_k(c.reshape(-1), 3)))(
            s[0][:, None] + jax.nn.log_softmax(w[s[1][:, i - 1]])
        ),
        (jnp.array([0.0, -1e9, -1e9]), jnp.zeros((3, 4), jnp.int32)),
    ),
    f32(6, 6, scale=3),
)
add(
    "greedy decoding",
    lambda w: lax.while_loop(
        lambda s: (s[0] < 8) & (s[1][s[0] - 1] != 0),
        lambda s: (s[0] + 1, s[1].at[s[0]].set(jnp.argmax(w[s[1][s[0] - 1]]))),
        (1, jnp.full(8, 3)),
    ),
    f32(6, 6),
)
add(
    "edit distance",
    lambda a, b: lax.fori_loop(
        1,
        7,
        lambda i, d: lax.fori_loop(
            1,
            6,
            lambda j, d: d.at[i, j].set(
                jnp.minimum(jnp.minimum(d[i - 1, j], d[i, j - 1]) + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
            ),
            d,
        ),
        jnp.zeros((7, 6), jnp.int32).at[:, 0].set(jnp.arange(7)).at[0].set(jnp.arange(6)),
    ),
    values("int32", 6, low=0, high=2),
    values("int32", 5, low=0, high=2),
)
add("shortest paths", lambda d: lax.fori_loop(0, 7, lambda k, d: jnp.minimum(d, d[:, k, None] + d[k]), d), np.abs(f32(7, 7)))
add(
    "dynamic time warping",
    lambda a, b: lax.scan(
        lambda p, x: (lambda r: (r, r[-1]))(
            lax.scan(
                lambda l, t: (lambda v: (v, v))(t[2] + jnp.minimum(jnp.minimum(l, t[0]), t[1])),
                jnp.inf,
                (p, jnp.concatenate([jnp.full(1, jnp.inf), p[:-1]]), jnp.abs(x - b)),
            )[1]
        ),
        jnp.full(5, jnp.inf).at[0].set(0.0),
        a,
    ),
    f32(6),
    f32(5),
)
add(
    "page rank",
    lambda a: lax.while_loop(
        lambda s: jnp.abs(s[0] - s[1]).sum() > 1e-6,
        lambda s: (0.15 / 8 + 0.85 * (a / jnp.maximum(a.sum(0), 1)) @ s[0], s[0]),
        (jnp.full(8, 1 / 8), jnp.zeros(8)),
    ),
    values("bool", 8, 8).astype(np.float32),
    bound=1e-3,
)
add(
    "power iteration",
    lambda a: lax.fori_loop(0, 20, lambda i, v: (lambda w: w / jnp.linalg.norm(w))(a @ v), jnp.ones(5)),
    f32(5, 5) @ f32(5, 5).T,
    bound=1e-3,
)
add(
    "conjugate gradient",
    lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: a @ (a.T @ x) + 3 * x, b, tol=1e-6)[0],
    f32(5, 5),
    f32(5),
    bound=1e-3,
)
add(
    "gmres and bicgstab",
    lambda a, b: (jax.scipy.sparse.linalg.gmres(a, b, tol=1e-6)[0], jax.scipy.sparse.linalg.bicgstab(a, b, tol=1e-6)[0]),
    f32(4, 4) + 4 * np.eye(4, dtype=np.float32),
    f32(4),
    bound=1e-3,
    slow=True,
)
add(
    "jacobi iteration",
    lambda a, b: lax.fori_loop(0, 15, lambda i, x: (b - a @ x + jnp.diag(a) * x) / jnp.diag(a), b),
    f32(5, 5) + 8 * np.eye(5, dtype=np.float32),
    f32(5),
    bound=1e-4,
)
add(
    "gram-schmidt",
    lambda a: lax.fori_loop(
        0, 4, lambda i, q: q.at[:, i].set((lambda v: v / jnp.linalg.norm(v))(a[:, i] - q @ (q.T @ a[:, i]))), jnp.zeros_like(a)
    ),
    f32(6, 4),
    bound=1e-3,
)
add(
    "principal components",
    lambda x: (lambda c: (lambda w, v: (w, jnp.abs((x - x.mean(0)) @ v[:, ::-1][:, :2])))(*jnp.linalg.eigh(c)))(
        jnp.cov(x, rowvar=False)
    ),
    f32(20, 4),
    bound=1e-3,
)
add(
    "k-means",
    lambda x, c: lax.fori_loop(
        0,
        4,
        lambda i, c: (lambda a: jax.ops.segment_sum(x, a, 3) / jnp.maximum(jnp.bincount(a, length=3), 1)[:, None])(
            jnp.argmin(jnp.sum((x[:, None] - c) ** 2, -1), 1)
        ),
        c,
    ),
    f32(20, 2),
    f32(3, 2, seed="c"),
)
add(
    "gaussian process",
    lambda x, y, q: (
        lambda k: (lambda l: (k(q, x) @ jax.scipy.linalg.cho_solve((l, True), y), 2 * jnp.sum(jnp.log(jnp.diag(l)))))(
            jnp.linalg.cholesky(k(x, x) + 0.1 * jnp.eye(8))
        )
    )(lambda a, b: jnp.exp(-0.5 * (a[:, None] - b) ** 2)),
    f32(8, scale=3),
    f32(8, seed="y"),
    f32(5, scale=3),
    bound=1e-3,
)
add(
    "sinkhorn",
    lambda c: lax.fori_loop(
        0,
        10,
        lambda i, s: (lambda f: (f, -jax.nn.logsumexp(f[:, None] - c * 5, 0)))(-jax.nn.logsumexp(s[1] - c * 5, 1)),
        (jnp.zeros(5), jnp.zeros(6)),
    ),
    np.abs(f32(5, 6)),
    bound=1e-4,
)
add(
    "discounted returns",
    lambda r, d: (
        lax.scan(lambda g, x: (lambda v: (v, v))(x[0] + 0.9 * (1 - x[1]) * g), 0.0, (r, d), reverse=True)[1],
        lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (0.9 * (1 - d), r), reverse=True),
    ),
    f32(12),
    values("bool", 12).astype(np.float32),
)
add(
    "q-learning",
    lambda q, s: lax.scan(
        lambda q, t: (q.at[t[0], t[1]].add(0.1 * (t[2].astype(jnp.float32) + 0.9 * q[t[3]].max() - q[t[0], t[1]])), q.max()), q, s
    ),
    f32(4, 3),
    values("int32", 20, 4, low=0, high=2),
)
add(
    "run-length encoding",
    lambda x: (lambda s: (jax.ops.segment_sum(jnp.ones(20, jnp.int32), jnp.cumsum(s) - 1, 20), x[jnp.nonzero(s, size=20)[0]]))(
        jnp.concatenate([jnp.ones(1, bool), x[1:] != x[:-1]])
    ),
    values("int32", 20, low=0, high=1),
)
add(
    "hashes",
    lambda x: lax.fori_loop(0, 5, lambda i, h: ((h ^ (h >> 15)) * jnp.uint32(0x85EBCA6B)) ^ ((h << 13) | (h >> 19)), x),
    values("uint32", 30, low=0, high=2**32 - 1),
)
add(
    "cyclic redundancy",
    lambda b: (
        lax.fori_loop(
            0,
            12,
            lambda i, c: lax.fori_loop(
                0, 8, lambda _, c: jnp.where(c & 1, (c >> 1) ^ jnp.uint32(0xEDB88320), c >> 1), c ^ b[i].astype(jnp.uint32)
            ),
            jnp.uint32(0xFFFFFFFF),
        )
        ^ jnp.uint32(0xFFFFFFFF)
    ),
    values("uint8", 12, low=0, high=255),
)
add("bitonic sort", lambda x: _bitonic(x), f32(16))


def _bitonic(x: Any) -> Any:
    n, i = x.shape[0], jnp.arange(x.shape[0])
    k = 2
    while k <= n:
        j = k // 2
        while j:
            p = i ^ j
            up = (i & k) == 0
            low = jnp.minimum(x, x[p])
            high = jnp.maximum(x, x[p])
            x = jnp.where((i < p) == up, low, high)
            j //= 2
        k *= 2
    return x


add(
    "image filters",
    lambda x: (lambda g: (jnp.hypot(*g), jnp.arctan2(*g)))(
        [
            jax.scipy.signal.convolve2d(x, k, "same")
            for k in (
                np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], np.float32),
                np.array([[1, 2, 1], [0, 0, 0], [-1, -2, -1]], np.float32),
            )
        ]
    ),
    f32(8, 9),
)
add(
    "ray and sphere",
    lambda o, d: (lambda b, c: (lambda h: jnp.where(h >= 0, -b - jnp.sqrt(jnp.maximum(h, 0)), jnp.inf))(b * b - c))(
        jnp.sum(o * d, -1), jnp.sum(o * o, -1) - 1
    ),
    f32(9, 3, scale=3),
    f32(9, 3, seed="d"),
)
add(
    "quaternions",
    lambda a, b: (
        lambda w, x: jnp.concatenate(
            [
                (w[:, :1] * x[:, :1] - jnp.sum(w[:, 1:] * x[:, 1:], 1, keepdims=True)),
                w[:, :1] * x[:, 1:] + x[:, :1] * w[:, 1:] + jnp.cross(w[:, 1:], x[:, 1:]),
            ],
            1,
        )
    )(a / jnp.linalg.norm(a, axis=1, keepdims=True), b),
    f32(5, 4),
    f32(5, 4, seed="b"),
)
add(
    "physics-informed network",
    lambda p, x: jax.grad(
        lambda p: jnp.mean(
            jax.vmap(lambda x: jax.grad(jax.grad(lambda x: jnp.sum(jnp.tanh(x * p["a"] + p["b"]) @ p["c"])))(x) + x)(x) ** 2
        )
    )(p),
    {"a": f32(5), "b": f32(5, seed="b"), "c": f32(5, seed="c")},
    f32(6),
    bound=1e-4,
    slow=True,
)
add(
    "hypernetwork and meta-gradient",
    lambda w, x, y: jax.grad(lambda w: jnp.mean((x @ (w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)) - y) ** 2))(w),
    f32(4, 2),
    f32(6, 4),
    f32(6, 2),
)
add(
    "spectral filter",
    lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x) * jnp.exp(-(jnp.fft.fftfreq(8)[:, None] ** 2) - jnp.fft.rfftfreq(8) ** 2)),
    f32(8, 8),
    bound=1e-4,
)
add(
    "sparse matrices",
    lambda d, i, b: (
        jax.experimental.sparse.BCOO((d, i), shape=(5, 6)) @ b,
        jax.experimental.sparse.BCOO((d, i), shape=(5, 6)).todense(),
        (jax.experimental.sparse.BCOO((d, i), shape=(5, 6)).T @ b[:5]).sum(),
    ),
    f32(7),
    np.stack([np.arange(7) % 5, (np.arange(7) * 2) % 6], 1).astype(np.int32),
    f32(6, 3),
    slow=True,
)
