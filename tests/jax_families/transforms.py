"""Control flow and JAX's transformations, nested in each other, over trees of every kind."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_families.common import Table, values

PROGRAMS = Table()
add = PROGRAMS.add


def f32(*shape: int, seed: str = "", **options: Any) -> np.ndarray:
    return values("float32", *shape, seed=seed, **options)


class Pair(NamedTuple):
    first: Any
    second: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["act"])
@dataclasses.dataclass(frozen=True)
class Layer:
    w: Any
    b: Any
    act: str = "tanh"

    def __call__(self, x: Any) -> Any:
        return getattr(jnp, self.act)(x @ self.w + self.b)


@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, x: Any, tag: str) -> None:
        self.x, self.tag = x, tag

    def tree_flatten(self) -> Any:
        return (self.x,), self.tag

    @classmethod
    def tree_unflatten(cls, tag: str, children: Any) -> Box:
        return cls(*children, tag)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.tag == other.tag


_x, _w = f32(5), f32(5, 5, low=-0.5, high=0.5)

# ---------------------------------------------------------------- loops and branches

add(
    "while of scalars",
    lambda n: lax.while_loop(
        lambda s: s[0] != 1, lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)
    ),
    np.int32(27),
)
add("while never entered", lambda x: lax.while_loop(lambda s: s.sum() > 1e9, lambda s: s * 2, x), _x)
add(
    "while over a tree",
    lambda t: lax.while_loop(lambda t: t["n"] < 4, lambda t: {"n": t["n"] + 1, "x": (t["x"][0] * 0.5, t["x"][1] + t["x"][0])}, t),
    {"n": np.int32(0), "x": (_x, _x)},
)
add(
    "while until convergence",
    lambda a: lax.while_loop(lambda s: jnp.abs(s[0] - s[1]) > 1e-6, lambda s: (0.5 * (s[0] + a / s[0]), s[0]), (a, a + 1)),
    np.float32(7),
)
add(
    "while with closed-over arrays",
    lambda x, w: lax.while_loop(lambda s: s[1] < 3, lambda s: (jnp.tanh(w @ s[0] + jnp.arange(5.0)), s[1] + 1), (x, 0)),
    _x,
    _w,
)
add(
    "while of swapped values",
    lambda a, b: lax.while_loop(lambda s: s[2] < 5, lambda s: (s[1], s[0] + s[1], s[2] + 1), (a, b, 0)),
    _x,
    _x + 1,
)
add("while of three in a ring", lambda a: lax.fori_loop(0, 4, lambda i, s: (s[2], s[0], s[1] + i), (a, a + 1, a + 2)), f32(2000))
add("while of unchanged values", lambda a, b: lax.fori_loop(0, 3, lambda i, s: (s[0] + s[1], s[1], s[2]), (a, b, 7)), _x, _x)
add(
    "while in while",
    lambda n: lax.fori_loop(
        0, n, lambda i, s: lax.while_loop(lambda t: t[1] > 0, lambda t: (t[0] + t[1], t[1] - 1), (s, i))[0], 0
    ),
    np.int32(6),
)
add(
    "fori_loop static, dynamic, downwards",
    lambda n, x: (
        lax.fori_loop(2, 7, lambda i, c: c + i, 0),
        lax.fori_loop(n, n + 3, lambda i, c: c * 1.1 + i, x),
        lax.fori_loop(5, 2, lambda i, c: c + 1, x),
        lax.fori_loop(0, 4, lambda i, c: c + x[i], 0.0, unroll=2),
    ),
    np.int32(-1),
    _x,
)
add(
    "fori_loop of many types",
    lambda b, i, z, h: lax.fori_loop(
        0, 3, lambda k, s: (~s[0], s[1] * 3 + k.astype(s[1].dtype), s[2] * 1j, s[3] + 0.1), (b, i, z, h)
    ),
    values("bool", 3),
    values("int8", 3),
    values("complex64", 3),
    values("bfloat16", 3),
)
add(
    "fori_loop writing rows",
    lambda x: lax.fori_loop(0, 5, lambda i, a: a.at[i].set(a[(i + 1) % 5] * 2).at[0, i].add(1.0), x),
    f32(5, 5),
)
add("fori_loop reading what it overwrites", lambda x: lax.fori_loop(1, 6, lambda i, a: a.at[i].set(a[i - 1] + a[i]), x), f32(6))
add(
    "fori_loop sieve",
    lambda n: lax.fori_loop(
        2, 10, lambda i, s: jnp.where((jnp.arange(50) % i == 0) & (jnp.arange(50) > i), False, s), jnp.arange(50) > n
    ),
    np.int32(1),
)
add("fori_loop with int8 bounds", lambda a, b: lax.fori_loop(a, b, lambda i, s: s + i, jnp.int8(0)), np.int8(2), np.int8(9))
add(
    "scan options",
    lambda x: (
        lax.scan(lambda c, v: (c + v, c * v), 0.0, x),
        lax.scan(lambda c, v: (c + v, c), 0.0, x, reverse=True),
        lax.scan(lambda c, v: (c * 0.9 + v, c), 0.0, x, unroll=3),
        lax.scan(lambda c, _: (c * 2, c), x, None, 3),
    ),
    f32(7),
)
add(
    "scan without carry or outputs",
    lambda x: (
        lax.scan(lambda c, v: (c, v * 2), None, x),
        lax.scan(lambda c, v: (c + v.sum(), None), 0.0, x),
        lax.scan(lambda c, v: (c, (v, v.sum(), ())), (), x),
    ),
    f32(4, 3),
)
add(
    "scan of length 0 and 1",
    lambda x: (lax.scan(lambda c, v: (c + v, v), 0.0, x[:0]), lax.scan(lambda c, v: (c + v, v), 0.0, x[:1])),
    _x,
)
add(
    "scan of ints and bools",
    lambda n, b: lax.scan(lambda c, v: ((c[0] * 31 + v[0], c[1] ^ v[1]), (c[0] % 7, c[1])), (jnp.int32(1), False), (n, b)),
    values("int32", 9),
    values("bool", 9),
)
add("scan in scan", lambda x: lax.scan(lambda c, r: lax.scan(lambda d, v: (d * 0.5 + v, d), c, r), 0.0, x), f32(3, 4))
add(
    "scan with matrices",
    lambda h, xs, w: lax.scan(lambda h, x: (jnp.tanh(h @ w + x), (h.sum(), h[:2])), h, xs),
    f32(3, 5),
    f32(4, 3, 5),
    _w,
)
add(
    "scan with cond",
    lambda x: lax.scan(lambda c, v: lax.cond(v > 0, lambda c: (c + v, c), lambda c: (c * 0.5, -c), c), 1.0, x),
    f32(9),
)
add("scan with sort and gather", lambda x: lax.scan(lambda c, v: (jnp.sort(c + v), c[jnp.argmax(v)]), x[0], x), f32(4, 6))
add(
    "map and batched map",
    lambda x: (
        lax.map(lambda r: jnp.sort(r)[0] + r.sum(), x),
        lax.map(lambda r: r * 2, x, batch_size=2),
        jax.lax.map(lambda t: t[0] @ t[1], (x, x)),
    ),
    f32(5, 3),
)
add(
    "cond",
    lambda p, x: (
        lax.cond(p, jnp.sin, jnp.cos, x),
        lax.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 0, x),
        lax.cond(p, lambda: 1, lambda: 2),
        lax.cond(jnp.int32(3), lambda a, b: a, lambda a, b: b, x, -x),
    ),
    True,
    _x,
)
add(
    "cond of unequal work",
    lambda p, x: lax.cond(p, lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) + i, x), lambda x: x, x),
    False,
    _x,
)
add(
    "switch",
    lambda i, x: (
        lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * x], x),
        lax.switch(i + 9, [jnp.sin, jnp.tanh], x),
        lax.switch(i - 9, [jnp.exp, jnp.cos], x),
        lax.switch(i, [lambda: 1.0, lambda: 2.0]),
    ),
    np.int32(1),
    _x,
)
add(
    "switch in a loop",
    lambda x: lax.fori_loop(0, 6, lambda i, c: lax.switch(i % 3, [lambda c: c + 1, lambda c: c * 2, lambda c: c - x], c), x),
    _x,
)
add(
    "branches that return arguments",
    lambda p, x, y: lax.cond(p, lambda x, y: (x, y), lambda x, y: (y, x), x, y),
    False,
    _x,
    _x + 1,
)
add(
    "nested branches",
    lambda a, b, x: lax.cond(a, lambda x: lax.cond(b, jnp.sin, jnp.cos, x), lambda x: lax.cond(b, jnp.exp, jnp.tanh, x), x),
    True,
    False,
    _x,
)
add("loop of large arrays", lambda x: lax.fori_loop(0, 3, lambda i, c: (c + jnp.roll(c, 1, 0)) * 0.5, x), f32(200, 37))
add(
    "associative scan of a tree",
    lambda t: lax.associative_scan(lambda a, b: {"s": a["s"] + b["s"], "m": jnp.maximum(a["m"], b["m"])}, t),
    {"s": f32(9), "m": f32(9, seed="m")},
)

# ---------------------------------------------------------------- vmap

add(
    "vmap axes",
    lambda x, w: (
        jax.vmap(jnp.dot, (0, None))(x, w),
        jax.vmap(jnp.multiply, (1, 0), 1)(x.T, x),
        jax.vmap(jax.vmap(jnp.multiply, (None, 0)), (0, None))(x[0], w),
        jax.vmap(lambda x: x.sum(), in_axes=-1)(x),
    ),
    f32(4, 5),
    f32(5),
)
add(
    "vmap over trees",
    lambda t: jax.vmap(
        lambda t: {"o": t["a"] * t["b"][0], "n": t["b"][1].sum()}, in_axes=({"a": 0, "b": (None, 1)},), out_axes={"o": 1, "n": 0}
    )(t),
    {"a": f32(3, 2), "b": (np.float32(2), f32(4, 3))},
)
add(
    "vmap of loops",
    lambda n, x: (
        jax.vmap(lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2), (0, 1)))(n),
        jax.vmap(lambda n, x: lax.fori_loop(0, n, lambda i, c: c + x * i, 0.0))(n, x),
    ),
    np.array([3, 0, 5], np.int32),
    f32(3),
)
add(
    "vmap of cond and switch",
    lambda p, i, x: (
        jax.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x))(p, x),
        jax.vmap(lambda i, x: lax.switch(i, [jnp.exp, jnp.tanh, jnp.abs], x))(i, x),
    ),
    values("bool", 4),
    np.array([0, 2, 1, 5], np.int32),
    f32(4),
)
add(
    "vmap of scan",
    lambda x, w: (
        jax.vmap(lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), 0.0, x))(x),
        jax.vmap(lambda w: lax.scan(lambda c, v: (w * c + v, c), 0.0, x[0]))(w),
    ),
    f32(3, 6),
    f32(3),
)
add(
    "vmap of sorting and indexing",
    lambda x, i: (
        jax.vmap(jnp.argsort)(x),
        jax.vmap(lambda x, i: x[i])(x, i),
        jax.vmap(lambda x, i: x.at[i].set(0))(x, i),
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,)))(x, i),
        jax.vmap(lambda x, i: lax.dynamic_update_slice(x, x[:2], (i,)))(x, i),
        jax.vmap(jnp.searchsorted, (None, 0))(jnp.sort(x[0]), x),
    ),
    f32(3, 6),
    np.array([0, 5, 2], np.int32),
)
add(
    "vmap of linear algebra",
    lambda a: (
        jax.vmap(jnp.linalg.inv)(a),
        jax.vmap(jnp.linalg.cholesky)(a @ a.mT + 4 * jnp.eye(3)),
        jax.vmap(jnp.linalg.det)(a),
        jax.vmap(jax.vmap(jnp.linalg.norm))(a),
    ),
    f32(4, 3, 3) + 5 * np.eye(3, dtype=np.float32),
    bound=1e-4,
)
add(
    "vmap of reductions with names",
    lambda x: jax.vmap(
        lambda v: (
            v - lax.pmean(v, "i"),
            lax.psum(v, "i"),
            lax.pmax(v, "i"),
            lax.axis_index("i"),
            lax.all_gather(v, "i").sum(),
            lax.ppermute(v, "i", [(k, (k + 1) % 4) for k in range(4)]),
        ),
        axis_name="i",
    )(x),
    f32(4, 3),
)
add(
    "vmap of grad",
    lambda x, w: (
        jax.vmap(jax.grad(lambda w, x: jnp.tanh(w @ x).sum()), (None, 0))(w, x),
        jax.vmap(jax.value_and_grad(lambda x: jnp.sum(x**3)))(x),
    ),
    f32(3, 5),
    _w,
)

# ---------------------------------------------------------------- derivatives

_scalar = lambda x: jnp.sum(jnp.sin(x) * jnp.exp(-x * x)) + jnp.prod(x)  # noqa: E731
_vector = lambda x: jnp.tanh(jnp.outer(x, x) @ x) + jnp.cumsum(x)  # noqa: E731
add(
    "grad, hessian and jacobians",
    lambda x: (
        jax.grad(_scalar)(x),
        jax.hessian(_scalar)(x),
        jax.jacfwd(_vector)(x),
        jax.jacrev(_vector)(x),
        jax.jacfwd(jax.jacrev(_scalar))(x),
    ),
    f32(4, low=-1, high=1),
)
add("third derivative", lambda x: jax.vmap(jax.grad(jax.grad(jax.grad(lambda x: jnp.sin(x) * x**4))))(x), _x)
add(
    "jvp, vjp, linearize, transpose",
    lambda x, t: (
        jax.jvp(_vector, (x,), (t,)),
        jax.vjp(_vector, x)[1](t),
        jax.linearize(_vector, x)[1](t),
        jax.linear_transpose(lambda x: jnp.cumsum(x) * 2, x)(t),
    ),
    f32(4, low=-1, high=1),
    f32(4),
)
add(
    "hessian-vector products",
    lambda x, v: (jax.jvp(jax.grad(_scalar), (x,), (v,))[1], jax.grad(lambda x: jnp.vdot(jax.grad(_scalar)(x), v))(x)),
    f32(4, low=-1, high=1),
    f32(4),
)
add(
    "grad of several arguments and aux",
    lambda a, b: (
        jax.grad(lambda a, b: (a * b).sum() ** 2, argnums=(0, 1))(a, b),
        jax.value_and_grad(lambda a: (jnp.sum(a**2), {"aux": a + 1, "n": None}), has_aux=True)(a),
    ),
    _x,
    _x + 1,
)
add(
    "grad with integers",
    lambda p: jax.grad(lambda p: jnp.sum(p["w"] ** 2) * p["n"], allow_int=True)(p),
    {"w": _x, "n": np.int32(3)},
)
add(
    "grad of complex functions",
    lambda z: (
        jax.grad(lambda z: jnp.abs(z * z).sum())(z),
        jax.grad(lambda z: (z**3).sum(), holomorphic=True)(z),
        jax.vjp(jnp.exp, z)[1](z),
    ),
    values("complex64", 4, low=-1, high=1),
)
add(
    "grad through loops",
    lambda x, w: (
        jax.grad(lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * x, x).sum())(x),
        jax.grad(lambda w: lax.scan(lambda c, v: (jnp.tanh(w @ c + v), c.sum()), x, jnp.arange(4.0))[1].sum())(w),
        jax.jvp(lambda x: lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + 1, x), (jnp.abs(x),), (x,)),
    ),
    _x,
    _w,
)
add(
    "grad through branches",
    lambda x: [
        jax.grad(lambda x, k=k: lax.switch(k, [jnp.sin, lambda x: x**2, lambda x: lax.cond(x > 0, jnp.exp, jnp.cos, x)], x))(x)
        for k in range(3)
    ],
    np.float32(0.7),
)
add(
    "grad of where and clip",
    lambda x: (
        jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0).sum())(x),
        jax.grad(lambda x: jnp.clip(x, -1, 1).sum())(x),
        jax.grad(lambda x: jnp.max(x))(x),
        jax.grad(lambda x: jnp.median(x))(x),
        jax.grad(lambda x: jnp.std(x))(x),
    ),
    np.array([1.0, -2, 3, 3, 0.5], np.float32),
)
add("jacobian of a network", lambda x, w: jax.vmap(jax.jacrev(lambda x: jnp.tanh(w @ x)))(x), f32(2, 5), _w)


@jax.custom_jvp
def log1pexp(x: Any) -> Any:
    return jnp.log1p(jnp.exp(x))


log1pexp.defjvp(lambda primals, tangents: (log1pexp(*primals), tangents[0] * jax.nn.sigmoid(primals[0])))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def clipped(x: Any, bound: float) -> Any:
    return x


clipped.defvjp(lambda x, bound: (x, None), lambda bound, _, g: (jnp.clip(g, -bound, bound),))
add(
    "custom derivatives",
    lambda x: (
        jax.grad(lambda x: log1pexp(x).sum())(x),
        jax.jvp(log1pexp, (x,), (x,)),
        jax.hessian(lambda x: log1pexp(x).sum())(x),
        jax.grad(lambda x: jnp.sum(clipped(x, 0.5) ** 2))(x),
        jax.vmap(jax.grad(lambda x: clipped(x, 0.1) ** 2))(x),
    ),
    _x,
)
add(
    "custom linear solve and root",
    lambda a, b: (
        lax.custom_linear_solve(lambda x: a @ x, b, lambda mv, b: jnp.linalg.solve(a, b), symmetric=True),
        jax.grad(
            lambda b: lax.custom_linear_solve(lambda x: a @ x, b, lambda mv, b: jnp.linalg.solve(a, b), symmetric=True).sum()
        )(b),
        jax.grad(
            lambda t: lax.custom_root(
                lambda x: x**3 - t,
                1.0,
                lambda f, x0: lax.fori_loop(0, 30, lambda i, x: x - f(x) / (3 * x * x), x0),
                lambda g, y: y / g(1.0),
            )
        )(2.0),
    ),
    np.eye(4, dtype=np.float32) * 3 + 0.5,
    f32(4),
    bound=1e-4,
)
add(
    "checkpoints",
    lambda x, w: (
        jax.grad(lambda w: jnp.sum(jax.checkpoint(lambda w: jnp.sin(jnp.tanh(w @ x)))(w)))(w),
        jax.grad(
            lambda w: jnp.sum(jax.checkpoint(lambda w: jnp.sin(w @ x) @ x, policy=jax.checkpoint_policies.dots_saveable)(w))
        )(w),
        jax.grad(lambda w: lax.scan(jax.checkpoint(lambda c, v: (jnp.tanh(w @ c) + v, None)), x, jnp.arange(3.0))[0].sum())(w),
    ),
    _x,
    _w,
)
add(
    "stop_gradient and zeros",
    lambda x: (
        jax.grad(lambda x: jnp.sum(lax.stop_gradient(x) * x))(x),
        jax.grad(lambda x: jnp.sum(jnp.round(x)))(x),
        jax.jvp(lambda x: (x > 0, x), (x,), (x,)),
    ),
    _x,
)
add("closure_convert", lambda x: (lambda f: f[0](x, *f[1]))(jax.closure_convert(lambda y: y * jnp.sin(x).sum(), x)), _x)

# ---------------------------------------------------------------- trees, constants, signatures

_CONSTANT, _LARGE = f32(3, 5, seed="c"), f32(300, 40, seed="large")
add(
    "trees in and out",
    lambda t: {
        "l": [t["a"], (t["b"].first, None)],
        "p": Pair(t["b"].second, {}),
        "o": collections.OrderedDict(z=t["a"] + 1, y=()),
    },
    {"a": _x, "b": Pair(_x * 2, np.int32(3)), "n": None, "e": []},
)
add("registered classes", lambda layer, x: (layer(x), jax.grad(lambda m: jnp.sum(m(x) ** 2))(layer)), Layer(_w, _x), f32(2, 5))
add("registered by a class of its own", lambda b: jax.tree.map(lambda v: v * 2, b), Box(_x, "tag"))
add(
    "outputs twice, unread, constant, passed",
    lambda x, y, unread: (x, x, 3, 2.5, jnp.zeros(3), x + y, x + y, _CONSTANT, True, y),
    _x,
    np.float32(2),
    f32(3),
)
add("no arguments", lambda: (jnp.arange(4), jnp.float32(2), {"k": jnp.ones((2, 2), jnp.bfloat16)}))
add("no results", lambda x: ((), None, {}), _x)
add(
    "closed-over constants",
    lambda x: (
        x @ _CONSTANT.T,
        (jnp.asarray(_LARGE) * x[0]).sum(0),
        jnp.array([[1, 2], [3, 4]], jnp.int8),
        np.float64(3.0) * x,
        _LARGE[:4, :2],
    ),
    _x,
)
add("python scalars", lambda a, b, c, d: (a + b, a * c, d, b / 2, c * 2, a**2), 3, 2.5, True, 1j)
add("scalars of numpy", lambda a, b, c: (a + b, c - a, a / c), np.int8(100), np.int8(100), np.float16(0.1))
add(
    "inner jits",
    lambda x: (
        jax.jit(lambda x, y: jax.jit(jnp.sin)(x) * y, inline=False)(x, jax.jit(jnp.cos, inline=True)(x))
        + jax.jit(lambda x: x.sum())(x)
    ),
    _x,
)
add("shapes at tracing", lambda x: x.reshape(x.shape[::-1]) if x.ndim > 1 else x + x.size, f32(2, 3))
add(
    "eval_shape and dtypes",
    lambda x: jnp.zeros(jax.eval_shape(jnp.linalg.svd, x)[1].shape) + len(jax.tree.leaves([x])),
    f32(3, 2),
)
add("deep chain", lambda x: functools.reduce(lambda a, k: jnp.sin(a) + k * 0.01, range(60), x), _x)
add("wide tree", lambda t: [a * k for k, a in enumerate(t)], [f32(k % 4 + 1, seed=str(k)) for k in range(40)])
add(
    "tuple of empty arrays",
    lambda a, b: (a + 1, b.sum(0), jnp.concatenate([a, a]), a.T, jnp.where(b > 0, b, 1)),
    f32(0),
    f32(0, 3),
)
add(
    "rank 8",
    lambda x: (x.transpose(7, 0, 6, 1, 5, 2, 4, 3), x.sum((1, 3, 5, 7)), jnp.flip(x, (0, 4)), x[..., None, 0, :]),
    f32(2, 1, 2, 3, 1, 2, 2, 2),
)
