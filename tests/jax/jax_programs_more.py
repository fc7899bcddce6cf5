"""More JAX programs by name, with arguments, for the slow tests."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

R = np.random.default_rng(1)
k = jax.random.key(0)


def N(*shape: int) -> Any:
    return R.normal(size=shape).astype(np.float32)


P: dict[str, Any] = {
    "mha_transformer_block_grad": (
        lambda p, x: jax.grad(lambda p: jnp.mean((x + jax.nn.gelu(x @ p["w1"]) @ p["w2"]) ** 2))(p),
        ({"w1": N(8, 32), "w2": N(32, 8)}, N(4, 8)),
    ),
    "gru": (
        lambda xs, w, u: lax.scan(
            lambda h, x: ((lambda z: z * h + (1 - z) * jnp.tanh(x @ w))(jax.nn.sigmoid(h @ u)),) * 1 + (h,), N(4) * 0, xs
        ),
        (N(5, 4), N(4, 4), N(4, 4)),
    ),
    "batchnorm": (lambda x: (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5), (N(2, 4, 4, 3),)),
    "groupnorm": (
        lambda x: (lambda y: ((y - y.mean((2,), keepdims=True)) / y.std((2,), keepdims=True)).reshape(x.shape))(
            x.reshape(2, 3, -1)
        ),
        (N(2, 6, 4),),
    ),
    "conv3d": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), "SAME"), (N(1, 2, 4, 4, 4), N(3, 2, 2, 2, 2))),
    "avgpool_grad": (
        lambda x: jax.grad(lambda x: jnp.sum(lax.reduce_window(x, 0.0, lax.add, (1, 2, 2), (1, 2, 2), "VALID") ** 3))(x),
        (N(2, 6, 6),),
    ),
    "maxpool_overlap_grad": (
        lambda x: jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME") * jnp.arange(6.0)))(
            x
        ),
        (N(6, 6),),
    ),
    "ctc_like": (lambda lp: lax.scan(lambda a, p: (jnp.logaddexp(a, jnp.roll(a, 1)) + p, None), lp[0], lp[1:])[0], (N(6, 5),)),
    "beam": (
        lambda s: lax.fori_loop(
            0,
            3,
            lambda i, c: (lambda v, ix: (v, ix))(*lax.top_k((c[0][:, None] + s).reshape(-1), 3)),
            (jnp.zeros(3), jnp.zeros(3, jnp.int32)),
        ),
        (N(3, 5),),
    ),
    "kmeans": (
        lambda x, c: lax.fori_loop(
            0,
            3,
            lambda i, c: (
                lambda a: jax.ops.segment_sum(x, a, 3) / jnp.maximum(jax.ops.segment_sum(jnp.ones(len(x)), a, 3), 1)[:, None]
            )(jnp.argmin(((x[:, None] - c) ** 2).sum(-1), 1)),
            c,
        ),
        (N(20, 2), N(3, 2)),
    ),
    "ode_rk4": (
        lambda y: lax.scan(
            lambda y, _: (lambda k1: (lambda k2: (y + 0.1 * k2, y))(-((y + 0.05 * k1) ** 2)))(-(y**2)), y, None, length=6
        ),
        (np.abs(N(3)),),
    ),
    "cg": (lambda A, b: jax.scipy.sparse.linalg.cg(A @ A.T + jnp.eye(4), b)[0], (N(4, 4), N(4))),
    "odd_einsum": (
        lambda a, b: (jnp.einsum("abc,cbd->adb", a, b), jnp.einsum("aab->b", a[:2, :2]), jnp.einsum("abc->cab", a)),
        (N(3, 4, 5), N(5, 4, 2)),
    ),
    "bmm_bf16": (lambda a, b: a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16), (N(3, 4, 5), N(3, 5, 6))),
    "int8_dot": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (R.integers(-9, 9, (4, 5)).astype(np.int8), R.integers(-9, 9, (5, 3)).astype(np.int8)),
    ),
    "uint_shift": (
        lambda a: (lax.shift_right_arithmetic(a, jnp.int32(3)), lax.shift_right_logical(a, jnp.int32(3)), a << 40),
        (R.integers(-99, 99, 9).astype(np.int32),),
    ),
    "divzero": (lambda a, b: (a // b, a % b), (np.array([5, -5, 0, -(2**31)], np.int32), np.array([0, 0, 0, -1], np.int32))),
    "nan_cmp": (
        lambda x: (
            x == x,
            x < 1,
            jnp.maximum(x, 0),
            jnp.minimum(x, 0),
            jnp.sign(x),
            jnp.isnan(x),
            jnp.clip(x, -1, 1),
            jnp.nan_to_num(x),
        ),
        (np.array([np.nan, np.inf, -np.inf, -0.0, 0, 1], np.float32),),
    ),
    "float_to_int": (
        lambda x: (x.astype(jnp.int32), x.astype(jnp.uint8), x.astype(bool), x.astype(jnp.bfloat16)),
        (np.array([1.9, -1.9, 3e10, -3e10, np.nan, 300], np.float32),),
    ),
    "remainder": (lambda a, b: (jnp.remainder(a, b), jnp.fmod(a, b), jnp.floor_divide(a, b), jnp.divmod(a, b)), (N(9) * 5, N(9))),
    "nextafter": (
        lambda x: (
            jnp.nextafter(x, x + 1),
            jnp.frexp(x),
            jnp.ldexp(x, 2),
            jnp.modf(x),
            jnp.signbit(x),
            jnp.copysign(x, -x),
            jnp.hypot(x, x),
            jnp.exp2(x),
            jnp.log2(jnp.abs(x)),
            jnp.log10(jnp.abs(x)),
        ),
        (N(9),),
    ),
    "rounding": (
        lambda x: (jnp.round(x), jnp.ceil(x), jnp.trunc(x), jnp.rint(x), lax.reduce_precision(x, 5, 3)),
        (np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1.1], np.float32),),
    ),
    "bessel": (
        lambda x: (
            jax.scipy.special.i0(x),
            jax.scipy.special.i1(x),
            jax.scipy.special.zeta(x + 2, 1.0),
            jax.scipy.special.polygamma(1, x + 1),
            jax.scipy.special.ndtri(jax.nn.sigmoid(x)),
            jax.scipy.special.expit(x),
            jax.scipy.special.log_ndtr(x),
        ),
        (np.abs(N(9)),),
    ),
    "dists": (
        lambda x: (
            jax.scipy.stats.norm.logpdf(x),
            jax.scipy.stats.t.logpdf(x, 3.0),
            jax.scipy.stats.gamma.logpdf(jnp.abs(x), 2.0),
            jax.scipy.stats.beta.cdf(jax.nn.sigmoid(x), 2.0, 3.0),
        ),
        (N(9),),
    ),
    "rand_more": (
        lambda k: (
            jax.random.poisson(k, 3.0, (5,)),
            jax.random.beta(k, 2.0, 3.0, (4,)),
            jax.random.dirichlet(k, jnp.ones(3)),
            jax.random.multivariate_normal(k, jnp.zeros(2), jnp.eye(2)),
            jax.random.rademacher(k, (5,)),
            jax.random.t(k, 3.0, (3,)),
            jax.random.shuffle(k, jnp.arange(9)) if hasattr(jax.random, "shuffle") else 0,
        ),
        (k,),
    ),
    "rand_bf16": (
        lambda k: (
            jax.random.uniform(k, (5,), jnp.bfloat16),
            jax.random.normal(k, (5,), jnp.float16),
            jax.random.orthogonal(k, 3).shape[0],
        ),
        (k,),
    ),
    "gather_nd": (
        lambda x, i: (
            x[i, :, i],
            x[..., i],
            x.at[i, i].get(mode="fill", fill_value=-1),
            x[:, None, i].shape[0],
            jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
        ),
        (N(5, 5, 5), R.integers(0, 5, 4)),
    ),
    "scatter_modes": (
        lambda x, i: (
            x.at[i].add(1.0, mode="drop"),
            x.at[i].divide(2.0),
            x.at[::2].set(0),
            x.at[i].apply(jnp.sin),
            x.at[1:3, 1:].multiply(3.0),
        ),
        (N(6, 4), np.array([0, 9, -1, 2])),
    ),
    "segment": (
        lambda x, i: (jax.ops.segment_max(x, i, 4), jax.ops.segment_prod(x, i, 4), jnp.bincount(i, weights=x, length=5)),
        (N(9), R.integers(0, 4, 9)),
    ),
    "sort_multi": (
        lambda x: (
            jnp.partition(x, 3),
            jnp.argpartition(x, 2),
            jnp.sort_complex(x[0]),
            jnp.unique(x.round(), size=5),
            jnp.flip(jnp.sort(x, axis=None)),
        ),
        (N(3, 8),),
    ),
    "setops": (
        lambda a, b: (jnp.isin(a, b), jnp.intersect1d(a, b, size=4, fill_value=-1), jnp.union1d(a, b, size=12, fill_value=99)),
        (R.integers(0, 9, 6), R.integers(0, 9, 6)),
    ),
    "cumulative": (
        lambda x: (
            jnp.cumsum(x, 1),
            jnp.cumprod(x, 0),
            lax.cummin(x, 0),
            jnp.diff(x),
            jnp.gradient(x[0]),
            jnp.trapezoid(x),
            jnp.nancumsum(x),
        ),
        (N(4, 6),),
    ),
    "polynomial": (
        lambda c, x: (jnp.polyval(c, x), jnp.polyder(c), jnp.polyint(c), jnp.roots(c, strip_zeros=False).shape[0]),
        (N(4), N(5)),
    ),
    "signal": (
        lambda x: (jax.scipy.signal.convolve2d(x, x[:2, :2]), jax.scipy.signal.stft(x[0], nperseg=4)[2], jnp.hanning(5)),
        (N(8, 16),),
    ),
    "linalg2": (
        lambda a: (
            jnp.linalg.cond(a),
            jnp.linalg.multi_dot([a, a, a]),
            jnp.linalg.tensorinv(a.reshape(2, 2, 4)),
            jax.scipy.linalg.block_diag(a, a),
            jax.scipy.linalg.toeplitz(a[0]),
            jnp.cross(a[:, :3], a[:, 1:]),
            jax.scipy.linalg.polar(a)[1],
        ),
        (N(4, 4) + 4 * np.eye(4, dtype=np.float32),),
    ),
    "eigh_grad": (lambda a: jax.grad(lambda a: jnp.sum(jnp.linalg.eigh(a @ a.T)[0] ** 2))(a), (N(4, 4),)),
    "svd_grad": (lambda a: jax.grad(lambda a: jnp.sum(jnp.linalg.svd(a, compute_uv=False) ** 3))(a), (N(4, 3),)),
    "qr_grad": (lambda a: jax.grad(lambda a: jnp.sum(jnp.linalg.qr(a)[1] ** 2))(a), (N(4, 3),)),
    "complex_linalg": (
        lambda a: (
            jnp.linalg.cholesky(a @ a.conj().T + 4 * jnp.eye(3)),
            jnp.linalg.eigvalsh(a + a.conj().T),
            jnp.linalg.solve(a, a[:, 0]),
            jnp.linalg.svd(a, compute_uv=False),
            jnp.linalg.inv(a),
        ),
        ((N(3, 3) + 1j * N(3, 3)).astype(np.complex64),),
    ),
    "while_nested": (
        lambda n: lax.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, lax.fori_loop(0, s[0], lambda i, t: t + i, s[1])), (0, 0)
        ),
        (np.int32(5),),
    ),
    "cond_pytree": (
        lambda p, t: lax.cond(p, lambda t: {"a": t["a"] + 1, "b": t["b"]}, lambda t: {"a": t["a"] * 2, "b": t["b"] * 0}, t),
        (True, {"a": N(3), "b": np.int32(3)}),
    ),
    "scan_xs_none_rev": (lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), 0.0, x, reverse=True, unroll=2), (N(7),)),
    "vmap_scan": (lambda x: jax.vmap(lambda r: lax.scan(lambda c, v: (c + v, c * v), 0.0, r)[1])(x), (N(3, 5),)),
    "vmap_dyn_slice": (
        lambda x, i: jax.vmap(lambda r, j: lax.dynamic_slice(r, (j,), (3,)))(x, i),
        (N(4, 8), np.array([0, 2, 5, 9])),
    ),
    "vmap_linalg": (lambda a: jax.vmap(lambda m: jnp.linalg.solve(m, m[0]))(a), (N(3, 4, 4) + 4 * np.eye(4, dtype=np.float32),)),
    "jvp_hvp": (lambda x: jax.jvp(jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2)), (x,), (x,)), (N(5),)),
    "custom_jvp": (lambda x: jax.grad(lambda x: jnp.sum(jax.nn.relu6(x) + jax.nn.softplus(x) + jnp.linalg.norm(x)))(x), (N(5),)),
    "fft_grad": (lambda x: jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 2))(x), (N(8),)),
    "fori_dynamic": (lambda n, x: lax.fori_loop(0, n, lambda i, a: a.at[i].set(i), x), (np.int32(3), N(5))),
    "iota_big": (
        lambda: (
            jnp.arange(10)[::-1],
            jnp.indices((2, 3)),
            jnp.meshgrid(jnp.arange(2), jnp.arange(3)),
            jnp.tri(3),
            jnp.mgrid[0:3],
        ),
        (),
    ),
    "apply_bits": (
        lambda x: (
            jnp.packbits(x > 0),
            jnp.unpackbits(jnp.arange(3, dtype=jnp.uint8)),
            jnp.bitwise_count(jnp.arange(9, dtype=jnp.uint8)),
            jnp.gcd(jnp.arange(9), 6),
            jnp.lcm(4, jnp.arange(1, 5)),
        ),
        (N(16),),
    ),
    "nn_misc": (
        lambda x: (
            jax.nn.one_hot(jnp.arange(3), 5),
            jax.nn.glu(x),
            jax.nn.standardize(x),
            jax.nn.log_sigmoid(x),
            jax.nn.celu(x),
            jax.nn.squareplus(x),
            jax.nn.hard_swish(x),
            jax.nn.softmax(x, where=x > 0),
        ),
        (N(4, 6),),
    ),
    "map_coords": (lambda x: jax.scipy.ndimage.map_coordinates(x, [jnp.array([0.5, 1.2]), jnp.array([1.0, 2.3])], 1), (N(4, 4),)),
    "scale_translate": (
        lambda x: jax.image.scale_and_translate(x, (6, 6), (0, 1), jnp.ones(2) * 1.3, jnp.zeros(2), "cubic"),
        (N(4, 4),),
    ),
    "static_shape_ops": (
        lambda x: (
            jnp.array_split(x, 3),
            jnp.hsplit(x, 2),
            jnp.block([[x, x], [x, x]]),
            jnp.moveaxis(x[None], 0, 2),
            jnp.resize(x, (3, 3)),
            jnp.insert(x, 1, 0.0, axis=1),
            jnp.delete(x, 1, axis=0),
            jnp.append(x, x),
        ),
        (N(5, 4),),
    ),
    "f8_grad": (
        lambda x: x.astype(jnp.float8_e5m2).astype(jnp.float32) + x.astype(jnp.float8_e4m3fn).astype(jnp.float32),
        (N(9),),
    ),
    "optimization_barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (N(3),)),
    "associative_matmul": (lambda x: lax.associative_scan(jnp.matmul, x), (N(6, 3, 3),)),
    "softmax_big": (lambda x: jax.nn.softmax(x, -1), (N(300, 513) * 30,)),
    "matvec_mixed": (lambda a, b: a @ b, (N(4, 5), R.integers(0, 5, 5).astype(np.int32))),
}
