"""Arrays that are cut into tiles, shared among threads and turned: shapes of some hundred thousand elements, many of them odd."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_families.common import Table, values

PROGRAMS = Table()
add = PROGRAMS.add


def f32(*shape: int, seed: str = "", scale: float = 1.0) -> np.ndarray:
    return values("float32", *shape, seed=seed, low=-scale, high=scale)


_a, _b = f32(517, 389), f32(517, 389, seed="b")
add(
    "sums along everything",
    lambda x: (x.sum(), x.sum(0), x.sum(1), x.sum((0, 1), keepdims=True), x.mean(), x.max(1), x.min(0)),
    _a,
)
add(
    "folds of what is computed",
    lambda x, y: (jnp.sum(jnp.sin(x) * y, 1), jnp.max(x - y, 0), jnp.sum(jnp.exp(x)), jnp.any(x > y, 1)),
    _a,
    _b,
)
add(
    "statistics", lambda x: (x.var(0), x.std(1), (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), jnp.linalg.norm(x)), _a
)
add(
    "softmax of rows, columns, all",
    lambda x: (jax.nn.softmax(x, 1), jax.nn.softmax(x, 0), jax.nn.logsumexp(x), jax.nn.log_softmax(x)),
    _a,
)
add(
    "transposes",
    lambda x, y: (x.T + y.T * 2, (x.T @ y).T, x.T.reshape(-1)[::3], jnp.transpose(x.reshape(11, 47, 389), (2, 0, 1)).sum(2)),
    _a,
    _b,
)
add(
    "middle axes",
    lambda x: (x.sum(1), x.max((0, 2)), jnp.cumsum(x, 1), x.mean(1, keepdims=True) - x, jnp.argmax(x, 1)),
    f32(37, 129, 65),
)
add(
    "cumulative along every axis",
    lambda x: (
        [f(x, k) for f in (jnp.cumsum, lax.cummax) for k in (0, 1)] + [lax.cumsum(x, 0, reverse=True), lax.cumlogsumexp(x, 1)]
    ),
    f32(301, 203),
    bound=1e-4,
)
add(
    "one long row",
    lambda x: (
        jnp.cumsum(x),
        x[::-1],
        jnp.sort(x),
        jnp.argmax(x),
        x.reshape(-1, 7).sum(0),
        jnp.roll(x, 1000),
        jnp.convolve(x, jnp.ones(5), "same"),
    ),
    f32(70000),
    bound=1e-4,
)
add(
    "types of narrow width",
    lambda a, b, c: (
        a.sum(0),
        a * 2 + b,
        jnp.cumsum(b, 1),
        a.astype(jnp.float32) @ b.astype(jnp.float32).T,
        c.max(0),
        (c > 100).sum(),
    ),
    values("int8", 300, 130),
    values("int8", 300, 130, seed="b"),
    values("uint8", 300, 130, high=255),
)
add(
    "bf16 arrays",
    lambda x, y: (x @ y.T, (x * y).sum(1), jax.nn.softmax(x, 1), x.T + 1, jnp.max(y, 0), x.astype(jnp.float32).mean()),
    values("bfloat16", 200, 130, low=-1, high=1),
    values("bfloat16", 200, 130, low=-1, high=1, seed="y"),
)
add(
    "f16 arrays",
    lambda x, y: (x @ y.T, (x * y).sum(1), jax.nn.softmax(x, 1), x.T + 1),
    values("float16", 200, 130, low=-1, high=1),
    values("float16", 200, 130, low=-1, high=1, seed="y"),
)
add(
    "f64 arrays",
    lambda x, y: (x @ y.T, (x * y).sum(0), jnp.cumsum(x, 0), x.T + 1, jnp.linalg.norm(x, axis=1)),
    values("float64", 200, 130),
    values("float64", 200, 130, seed="y"),
    x64=True,
)
add(
    "i64 arrays",
    lambda x, y: (x @ y.T, x.sum(0), x.max(1), jnp.sort(x, 1), x // 3, x.T ^ y.T),
    values("int64", 200, 130, low=-(2**40), high=2**40),
    values("int64", 200, 130, seed="y"),
    x64=True,
)
add("complex arrays", lambda x: (x @ x.T, x.sum(0), x.T * 2, jnp.abs(x).max(1), jnp.fft.fft(x)), values("complex64", 130, 150))
add(
    "boolean arrays",
    lambda x, y: (x & y.T, x.sum(0), (x @ y), jnp.any(x, 1), jnp.where(x, 1, 2).sum(1), jnp.packbits(x, 1)),
    values("bool", 250, 250),
    values("bool", 250, 250, seed="y"),
)
for _m, _k, _n in ((1, 700, 300), (300, 700, 1), (257, 1, 130), (129, 257, 65), (64, 512, 512), (3, 1000, 5)):
    add(
        f"product {_m} x {_k} x {_n}",
        lambda a, b, c: (a @ b + c, (a @ b).sum(1), jax.nn.relu(a @ b).T, b.T @ a.T),
        f32(_m, _k),
        f32(_k, _n, seed="b"),
        f32(_n, seed="c"),
        bound=1e-4,
    )
add(
    "network of three layers",
    lambda x, p: jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]) @ p[2]) ** 2))(p),
    f32(200, 70),
    [f32(70, 130, scale=0.2), f32(130, 90, scale=0.2), f32(90, 11, scale=0.2)],
    bound=1e-4,
)
add(
    "attention, causal",
    lambda q, k, v: jnp.einsum(
        "hqk,khd->qhd",
        jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((150, 150), bool)), jnp.einsum("qhd,khd->hqk", q, k) / 5.6, -jnp.inf)),
        v,
    ),
    f32(150, 3, 32),
    f32(150, 3, 32, seed="k"),
    f32(150, 3, 32, seed="v"),
    bound=1e-4,
)
add(
    "attention gradient",
    lambda q, k, v: jax.grad(lambda *a: jnp.sum(jax.nn.softmax(a[0] @ a[1].T) @ a[2] * jnp.cos(a[2])), argnums=(0, 1, 2))(
        q, k, v
    ),
    f32(130, 24),
    f32(130, 24, seed="k"),
    f32(130, 24, seed="v"),
    bound=1e-4,
)
add(
    "convolution of an image",
    lambda x, w: (
        lax.conv_general_dilated(x, w, (1, 1), "SAME"),
        lax.conv_general_dilated(x, w, (2, 2), "VALID", rhs_dilation=(2, 1)),
    ),
    f32(2, 5, 61, 47),
    f32(9, 5, 3, 3),
    bound=1e-4,
)
add(
    "convolution gradient of an image",
    lambda x, w: jax.grad(lambda x, w: jnp.sum(lax.conv_general_dilated(x, w, (2, 1), "SAME") ** 2), argnums=(0, 1))(x, w),
    f32(2, 5, 31, 27),
    f32(9, 5, 3, 3),
    bound=1e-4,
)
add(
    "depthwise convolution of an image",
    lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1), "SAME", feature_group_count=24, dimension_numbers=("NHWC", "HWIO", "NHWC")
    ),
    f32(2, 33, 31, 24),
    f32(5, 5, 1, 24),
    bound=1e-4,
)
add(
    "pooling of an image",
    lambda x: (
        lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        lax.reduce_window(x, 0.0, lax.add, (1, 5, 1, 1), (1, 1, 1, 1), "SAME"),
        jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2))(x),
    ),
    f32(2, 61, 47, 6),
)
add(
    "windows that start from other numbers",
    lambda x: (
        lax.reduce_window(x, 5.0, lax.add, (3, 3), (1, 1), "SAME"),
        lax.reduce_window(x, 0.5, lax.max, (4, 1), (2, 1), "VALID"),
        lax.reduce(x, 7.0, lax.add, (0,)),
        lax.reduce(x, 0.25, lax.min, (1,)),
        lax.reduce(x, -3.0, lax.max, (0, 1)),
    ),
    f32(130, 77),
)
add(
    "sorts of many",
    lambda x, k: (
        jnp.sort(x, 0),
        jnp.argsort(x, 1),
        lax.sort((k, x), num_keys=1, dimension=0),
        jnp.sort(x.reshape(-1))[:100],
        jnp.argsort(k[:, 0]),
    ),
    f32(400, 90),
    values("int32", 400, 90, low=0, high=50),
)
add(
    "selections of many",
    lambda x: (
        lax.top_k(x, 1),
        lax.top_k(x, 10),
        lax.top_k(x, 100),
        lax.top_k(-x.T, 3),
        jnp.median(x, 1),
        jnp.quantile(x, 0.9, axis=0),
    ),
    f32(60, 700),
)
add(
    "gathers of many rows",
    lambda x, i: (x[i], x[:, i % 130].sum(0), jnp.take_along_axis(x, jnp.argsort(x, 1)[:, :9], 1), x[i][:, ::-1], x[i, i % 130]),
    f32(3000, 130),
    values("int32", 500, low=0, high=2999),
)
add(
    "scatters of many rows",
    lambda x, i, u: (
        x.at[i].add(u),
        x.at[i].max(u),
        jnp.zeros(3000).at[i].add(1.0),
        jax.ops.segment_sum(u, i, 3000),
        x.at[i[:7]].set(0.0),
        x.at[:, i % 33].multiply(0.5),
    ),
    f32(3000, 33),
    values("int32", 900, low=0, high=2999),
    f32(900, 33),
    bound=1e-4,
)
add(
    "slices and joins",
    lambda x, y: (
        jnp.concatenate([x[:100], y[50:], x[::2]], 0),
        x[3:-5, ::7],
        jnp.pad(x, ((3, 0), (1, 9))),
        jnp.stack([x, y], 2),
        jnp.tile(x[:50], (2, 3)),
        jnp.repeat(y[:40], 3, 1),
        jnp.roll(x, (5, -9), (0, 1)),
        jnp.flip(x, 1),
    ),
    _a,
    _b,
)
add(
    "long scan",
    lambda x, w: lax.scan(lambda h, v: (jnp.tanh(h @ w + v), h), jnp.zeros(17), x),
    f32(500, 17),
    f32(17, 17, scale=0.3),
    bound=1e-3,
)
add(
    "scan over matrices",
    lambda x, w: lax.scan(lambda h, v: (jnp.tanh(h @ w + v), (h.sum(0), h[:2])), jnp.zeros((70, 90)), x),
    f32(9, 70, 90),
    f32(90, 90, scale=0.1),
    bound=1e-3,
)
add(
    "gradient of a scan over matrices",
    lambda x, w: jax.grad(lambda w: lax.scan(lambda h, v: (jnp.tanh(h @ w + v), h.sum()), jnp.zeros((30, 40)), x)[1].sum())(w),
    f32(7, 30, 40),
    f32(40, 40, scale=0.1),
    bound=1e-3,
)
add(
    "loop of a stencil",
    lambda u: lax.fori_loop(
        0, 12, lambda i, u: u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u), u
    ),
    f32(130, 210),
    bound=1e-4,
)
add(
    "loop that reads its own old rows", lambda x: lax.fori_loop(1, 300, lambda i, a: a.at[i].add(a[i - 1] * 0.5), x), f32(300, 70)
)
add(
    "loop whose value is read twice",
    lambda x: lax.fori_loop(
        0, 5, lambda i, c: (c[1] + c[0], c[0] * 0.5, c[2].at[i].set(c[0].sum(0))), (x, x + 1, jnp.zeros((5, 70)))
    ),
    f32(130, 70),
    bound=1e-4,
)
add(
    "branches of matrices",
    lambda p, x: lax.cond(p, lambda x: (x @ x.T, x.sum(0)), lambda x: (jnp.zeros((130, 130)), x[0]), x),
    True,
    f32(130, 70),
    bound=1e-4,
)
add(
    "vmapped products",
    lambda a, b: (
        jax.vmap(jnp.matmul)(a, b),
        jax.vmap(lambda a: a @ a.T)(a),
        jax.vmap(jnp.matmul, (0, None))(a, b[0]),
        jnp.einsum("bij,bjk,bkl->bil", a, b, a),
    ),
    f32(12, 37, 45),
    f32(12, 45, 37),
    bound=1e-4,
)
add(
    "pairwise distances",
    lambda x, y: (
        jnp.sqrt(((x[:, None] - y) ** 2).sum(-1)),
        jnp.argmin(((x[:, None] - y) ** 2).sum(-1), 1),
        jnp.exp(-((x[:, None] - y) ** 2).sum(-1)).sum(1),
    ),
    f32(180, 7),
    f32(230, 7, seed="y"),
    bound=1e-4,
)
add(
    "outer products and broadcasts",
    lambda x, y: (
        (x[:, None] * y).sum(0),
        x[:, None] + y,
        jnp.maximum(x[:, None, None], y[:100, None]).max(0),
        (x[:, None] > y).argmax(1),
    ),
    f32(400),
    f32(300, seed="y"),
)
add(
    "ranks 5 and 6",
    lambda x: (x.transpose(4, 2, 0, 3, 1).reshape(-1, 12), x.sum((1, 3)), x.reshape(6, 35, 4, 9).max(2), jnp.flip(x, (0, 2, 4))),
    f32(6, 5, 7, 4, 9),
)
add(
    "histograms and counts",
    lambda i: (
        jnp.bincount(i, length=100),
        (i[:, None] == jnp.arange(100)).sum(0),
        jnp.unique(i, size=100),
        jnp.searchsorted(jnp.sort(i), jnp.arange(100)),
    ),
    values("int32", 20000, low=0, high=99),
)
add("identical halves", lambda x: (x[:258] + x[258:516], x.reshape(11, 47, -1)[:, :23].sum(1), (x * 2)[100:200] - x[100:200]), _a)
add(
    "constants of many elements",
    lambda x: (x @ jnp.asarray(_b).T[:, :40], x + jnp.asarray(_b), jnp.asarray(_b)[:100] * 2),
    _a,
    bound=1e-4,
)
add("fft of many", lambda x: (jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x), 389), jnp.abs(jnp.fft.fft2(x))), _a, bound=1e-4)
add(
    "linear algebra of many",
    lambda a: (jnp.linalg.inv(a), jnp.linalg.det(a), jnp.linalg.cholesky(a @ a.mT)),
    f32(50, 6, 6) + 4 * np.eye(6, dtype=np.float32),
    bound=1e-3,
)
