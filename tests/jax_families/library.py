"""jax.nn, jax.image, linear algebra and signals of jax.scipy, and what jax.lax has of linear algebra."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.fft
import jax.scipy.integrate
import jax.scipy.linalg as sla
import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.signal
import numpy as np
from jax import lax

from tests.jax_families.common import Table, values

PROGRAMS = Table()
add = PROGRAMS.add


def f32(*shape: int, seed: str = "", **options: Any) -> np.ndarray:
    return values("float32", *shape, seed=seed, **options)


# ---------------------------------------------------------------- jax.nn

_x = f32(4, 6)
for _name in (
    "celu elu gelu glu hard_sigmoid hard_silu hard_tanh identity leaky_relu log_sigmoid log_softmax logsumexp mish "
    "relu relu6 selu sigmoid silu soft_sign softmax "
    "softplus sparse_plus sparse_sigmoid squareplus standardize tanh"
).split():
    _f = getattr(jax.nn, _name)
    add(f"nn.{_name}", lambda x, y, f=_f: (f(x), f(y), jax.grad(lambda x: jnp.sum(f(x) ** 3))(x)), _x, values("bfloat16", 4, 6))
add(
    "nn.options",
    lambda x: (
        jax.nn.gelu(x, approximate=False),
        jax.nn.softmax(x, 0),
        jax.nn.softmax(x, (0, 1)),
        jax.nn.softmax(x, where=x > 0),
        jax.nn.logsumexp(x, 1, b=x, return_sign=True),
        jax.nn.leaky_relu(x, 0.3),
        jax.nn.elu(x, 2.0),
        jax.nn.standardize(x, 0),
        jax.nn.one_hot(jnp.array([0, 3, 9, -1]), 4),
        jax.nn.glu(x, 0),
        jax.nn.log1mexp(-jnp.abs(x)),
        jax.nn.logmeanexp(x, 1),
    ),
    _x,
)
add(
    "nn.softmax of infinities",
    lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.logsumexp(x, 1)),
    np.array([[0, -np.inf, 1], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1], [np.nan, 0, 0], [1e4, -1e4, 0]], np.float32),
)
_q, _k, _v = f32(2, 6, 4, 8), f32(2, 5, 2, 8), f32(2, 5, 2, 8, seed="v")
add("nn.attention", lambda q, k, v: jax.nn.dot_product_attention(q, k, v), _q, _k, _v)
add(
    "nn.attention options",
    lambda q, k, v, b: (
        jax.nn.dot_product_attention(q, k, v, bias=b, scale=0.3),
        jax.nn.dot_product_attention(q, k, v, mask=b > 0),
        jax.nn.dot_product_attention(q, q, q, is_causal=True, local_window_size=2),
        jax.nn.dot_product_attention(q, k, v, query_seq_lengths=jnp.array([3, 6]), key_value_seq_lengths=jnp.array([5, 2])),
    ),
    _q,
    _k,
    _v,
    f32(2, 4, 6, 5),
    slow=True,
)
add(
    "nn.attention bf16",
    lambda q, k, v: jax.nn.dot_product_attention(q, k, v),
    values("bfloat16", 2, 6, 4, 8),
    values("bfloat16", 2, 5, 4, 8),
    values("bfloat16", 2, 5, 4, 8, seed="v"),
)
add(
    "nn.attention gradient",
    lambda q, k, v: jax.grad(lambda *a: jnp.sum(jax.nn.dot_product_attention(*a) ** 2), argnums=(0, 1, 2))(q, k, v),
    _q,
    _k,
    _v,
    slow=True,
)
add(
    "nn.initializers",
    lambda k: (
        [
            getattr(jax.nn.initializers, n)()(jax.random.wrap_key_data(k), (4, 6))
            for n in ("glorot_normal", "he_uniform", "lecun_normal", "normal", "uniform", "truncated_normal")
        ]
        + [jax.nn.initializers.delta_orthogonal()(jax.random.wrap_key_data(k), (3, 2, 2))]
    ),
    np.array([3, 4], np.uint32),
    bound=1e-4,
    slow=True,
)

# ---------------------------------------------------------------- jax.image

for _method in ("nearest", "linear", "cubic", "lanczos3", "lanczos5"):
    add(
        f"image.resize {_method}",
        lambda x, m=_method: (
            jax.image.resize(x, (7, 9, 2), m),
            jax.image.resize(x, (3, 2, 2), m),
            jax.image.resize(x, (3, 4, 2), m, antialias=False),
        ),
        f32(5, 4, 2),
    )
add(
    "image.scale_and_translate",
    lambda x: jax.image.scale_and_translate(x, (6, 7), (0, 1), jnp.array([1.3, 0.7]), jnp.array([0.2, -0.4]), "linear"),
    f32(5, 6),
)
add("image.resize gradient", lambda x: jax.grad(lambda x: jnp.sum(jax.image.resize(x, (7, 3), "linear") ** 2))(x), f32(4, 5))

# ---------------------------------------------------------------- jax.scipy.linalg


def _well(n: int) -> np.ndarray:
    return f32(n, n) + 5 * np.eye(n, dtype=np.float32)


_a = _well(4)
_LINALG: dict[str, Any] = {
    "cholesky": (
        lambda a: (sla.cholesky(a @ a.T), sla.cholesky(a @ a.T, lower=True), sla.cho_solve(sla.cho_factor(a @ a.T), a[0])),
        _a,
    ),
    "lu": (lambda a: (sla.lu(a), sla.lu_factor(a), sla.lu_solve(sla.lu_factor(a), a[0])), _a),
    "lu tall": (lambda a: (sla.lu(a), sla.lu(a.T), sla.lu_factor(a)), f32(5, 3)),
    "solve": (lambda a: (sla.solve(a, a[0]), sla.solve(a @ a.T, a, assume_a="pos"), sla.inv(a), sla.det(a)), _a),
    "triangular": (
        lambda a: [
            sla.solve_triangular(a, a[:, :2], lower=lo, trans=tr, unit_diagonal=u)
            for lo in (False, True)
            for tr in (0, 1)
            for u in (False, True)
        ],
        _a,
    ),
    "expm": (sla.expm, f32(4, 4, low=-1, high=1)),
    "expm_frechet": (lambda a: sla.expm_frechet(a, a.T), f32(3, 3, low=-1, high=1)),
    "sqrtm": (lambda a: sla.sqrtm(a @ a.T).real, _a),
    "funm": (lambda a: sla.funm(a @ a.T, lambda x: jnp.log(x)), _a),
    "schur": (lambda a: jnp.sort(jnp.diagonal(sla.schur(a @ a.T)[0])), _a),
    "polar": (lambda a: sla.polar(a), _a),
    "hessenberg": (lambda a: jnp.abs(sla.hessenberg(a)), _a),
    "eigh_tridiagonal": (lambda d, e: sla.eigh_tridiagonal(d, e, eigvals_only=True), f32(6), f32(5)),
    "eigh": (lambda a: (sla.eigh(a @ a.T, eigvals_only=True), jnp.abs(sla.eigh(a @ a.T)[1])), _a),
    "qr": (lambda a: [jnp.abs(x) for x in (*sla.qr(a), *sla.qr(a, mode="economic"))], f32(5, 3)),
    "qr pivoted": (lambda a: [jnp.abs(x) for x in sla.qr(a, pivoting=True)], f32(5, 3)),
    "sylvester": (lambda a: sla.solve_sylvester(a, a.T, a), _a),
    "special matrices": (
        lambda x: (
            sla.toeplitz(x),
            sla.hilbert(4),
            sla.block_diag(x, x[None]),
            sla.circulant(x),
            sla.companion(x),
            sla.hadamard(4),
            sla.helmert(4),
            sla.leslie(x, x[1:]),
            sla.pascal(4),
            sla.fiedler(x),
            sla.dft(4),
            sla.hankel(x),
            sla.invhilbert(3),
        ),
        f32(4, low=1),
    ),
}
for _name, (_f, *_args) in _LINALG.items():
    add(
        f"scipy.linalg {_name}",
        _f,
        *_args,
        bound=1e-3,
        slow=_name in ("sqrtm", "funm", "expm_frechet", "sylvester", "special matrices", "eigh_tridiagonal", "polar"),
    )
_LAX: dict[str, Any] = {
    "triangular_solve": (
        lambda a, b: [
            lax.linalg.triangular_solve(a, b if left else b.T, left_side=left, lower=lo, transpose_a=t, unit_diagonal=u)
            for left in (True, False)
            for lo in (True, False)
            for t in (True, False)
            for u in (True, False)
        ],
        _a,
        f32(4, 3),
    ),
    "triangular_solve complex": (
        lambda a: lax.linalg.triangular_solve(a, a, left_side=True, lower=True, conjugate_a=True, transpose_a=True),
        values("complex64", 3, 3) + 5 * np.eye(3, dtype=np.complex64),
    ),
    "householder": (
        lambda a: (
            jnp.abs(lax.linalg.householder_product(*lax.linalg.geqrf(a)))
            if hasattr(lax.linalg, "geqrf")
            else jnp.abs(lax.linalg.qr(a)[0])
        ),
        f32(4, 4),
    ),
    "lu pivots": (lambda a: (lax.linalg.lu(a), lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(a)[1], 4)), _a),
    "schur": (lambda a: jnp.sort(jnp.diagonal(lax.linalg.schur(a + a.T)[0])), _a),
    "tridiagonal_solve": (
        lambda d, b: lax.linalg.tridiagonal_solve(
            jnp.concatenate([jnp.zeros(1), d[1:]]), d + 9, jnp.concatenate([d[:-1], jnp.zeros(1)]), b
        ),
        f32(5),
        f32(5, 2),
    ),
    "tridiagonal": (lambda a: [jnp.abs(x) for x in lax.linalg.tridiagonal(a + a.T)[1:3]], _a),
    "qdwh": (lambda a: lax.linalg.qdwh(a)[:2], _a),
    "cholesky_update": (lambda a, v: lax.linalg.cholesky_update(jnp.linalg.cholesky(a @ a.T).T, v), _a, f32(4)),
    "symmetric_product": (lambda a: lax.linalg.symmetric_product(a, a @ a.T, alpha=2.0, beta=0.5, symmetrize_output=True), _a),
    "eigh": (lambda a: (lax.linalg.eigh(a + a.T)[1], lax.linalg.eigh(a + a.T, lower=False, subset_by_index=None)[1]), _a),
    "svd": (lambda a: (lax.linalg.svd(a, compute_uv=False), lax.linalg.svd(a)[1]), f32(3, 5)),
}
for _name, (_f, *_args) in _LAX.items():
    add(f"lax.linalg {_name}", _f, *_args, bound=1e-3, slow=_name in ("qdwh", "cholesky_update"))

# ---------------------------------------------------------------- signal, fft, ndimage, integrate, optimize

_s = f32(2, 32)
add(
    "signal.convolve",
    lambda x: (
        [jax.scipy.signal.convolve(x[0], x[1, :5], m, method=w) for m in ("full", "same", "valid") for w in ("direct", "fft")]
        + [jax.scipy.signal.correlate(x[0], x[1, :4], "same"), jax.scipy.signal.fftconvolve(x, x[:, :3], axes=1)]
    ),
    _s,
    bound=1e-4,
    slow=True,
)
add(
    "signal.convolve2d",
    lambda x: (
        [jax.scipy.signal.convolve2d(x, x[:2, :3], m) for m in ("full", "same", "valid")]
        + [jax.scipy.signal.correlate2d(x, x[:2, :3], "same")]
    ),
    f32(6, 7),
    bound=1e-4,
)
add(
    "signal.spectra",
    lambda x: (
        jax.scipy.signal.stft(x, nperseg=8),
        jax.scipy.signal.welch(x, nperseg=8),
        jax.scipy.signal.csd(x[0], x[1], nperseg=8),
    ),
    _s,
    bound=1e-3,
    slow=True,
)
add(
    "signal.istft", lambda x: jax.scipy.signal.istft(jax.scipy.signal.stft(x, nperseg=8)[2], nperseg=8), _s, bound=1e-3, slow=True
)
add("signal.detrend", lambda x: (jax.scipy.signal.detrend(x), jax.scipy.signal.detrend(x, type="constant")), _s, bound=1e-3)
add(
    "scipy.fft",
    lambda x: (jax.scipy.fft.dct(x), jax.scipy.fft.idct(x), jax.scipy.fft.dctn(x), jax.scipy.fft.idctn(x, norm="ortho")),
    f32(4, 8),
    bound=1e-4,
)
for _order in (0, 1):
    for _m in ("constant", "nearest", "wrap", "mirror", "reflect"):
        add(
            f"ndimage.map_coordinates {_order} {_m}",
            lambda x, c, o=_order, m=_m: jax.scipy.ndimage.map_coordinates(x, c, o, m, 7.0),
            f32(5, 6),
            f32(2, 9, low=-3, high=9),
            slow=_m in ("mirror", "reflect"),
        )
add(
    "integrate.trapezoid",
    lambda y, x: (jax.scipy.integrate.trapezoid(y, x), jax.scipy.integrate.trapezoid(y, dx=0.2, axis=0)),
    f32(3, 5),
    np.arange(5, dtype=np.float32) ** 2,
)
add(
    "optimize.minimize",
    lambda x: (
        jax.scipy.optimize.minimize(lambda x: jnp.sum((x - jnp.arange(3.0)) ** 2 * jnp.array([1.0, 2, 3])), x, method="BFGS").x
    ),
    f32(3),
    bound=1e-3,
    slow=True,
)
