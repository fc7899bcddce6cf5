"""jax.numpy beyond the elementwise functions: reductions, shapes, sets, statistics, polynomials, FFTs, linear algebra."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax_families.common import COMPLEX, Table, each, of_types, values

PROGRAMS = Table()
add = PROGRAMS.add


def f32(*shape: int, seed: str = "", **options: Any) -> np.ndarray:
    return values("float32", *shape, seed=seed, **options)


# ---------------------------------------------------------------- reductions

_TYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "complex64")
for _name in ("sum", "prod", "mean", "max", "min", "any", "all", "count_nonzero"):
    _here = [t for t in _TYPES if not (t in COMPLEX and _name in ("max", "min"))]
    add(
        f"jnp.{_name}",
        each(lambda x, f=getattr(jnp, _name): (f(x), f(x, axis=0), f(x, axis=(0, 2), keepdims=True))),
        *of_types(_here, 3, 4, 5, low=-2, high=2),
        x64=True,
        bound=2e-2 if _name == "prod" else None,
    )
for _name in ("var", "std"):
    _x = f32(4, 5, 3)
    if _name.startswith("nan"):
        _x[1, 2], _x[0, :, 1] = np.nan, np.nan
    add(
        f"jnp.{_name}", lambda x, f=getattr(jnp, _name): (f(x), f(x, axis=1), f(x, axis=(0, 2)), f(x, axis=-1, keepdims=True)), _x
    )
add(
    "reductions of options",
    lambda x, w: (
        jnp.sum(x, where=w),
        jnp.max(x, axis=0, where=w, initial=-9.0),
        jnp.mean(x, axis=1, where=w),
        jnp.var(x, ddof=1),
        jnp.sum(x, dtype=jnp.int32),
        jnp.prod(x, initial=3.0),
        jnp.std(x, axis=0, where=w),
        jnp.any(x > 0, where=w),
        jnp.average(x, 0, weights=jnp.arange(4.0), returned=True),
    ),
    f32(4, 5),
    values("bool", 4, 5),
)
add(
    "empty reductions",
    lambda x: (
        jnp.sum(x),
        jnp.prod(x, 0),
        jnp.any(x, 1),
        jnp.all(x),
        jnp.mean(x, 0),
        jnp.max(x, 1),
        jnp.sum(x, 1),
        jnp.cumsum(x, 0),
        jnp.var(x),
        jnp.max(x, initial=1.0),
    ),
    f32(0, 4),
)
add(
    "reductions of NaN",
    lambda x: (jnp.max(x, 1), jnp.min(x, 1), jnp.sum(x, 1), jnp.mean(x), jnp.prod(x, 0), jnp.any(x, 0), jnp.all(x, 1)),
    np.array([[1, np.nan, 2], [np.inf, -np.inf, 0], [-0.0, 0.0, -0.0], [np.inf, 1, np.inf]], np.float32),
)
add(
    "integer sums",
    lambda *xs: [(x.sum(), x.sum(0), x.mean(), x.prod(1), x.max()) for x in xs],
    *(values(t, 20, 30, low=-120, high=120) for t in ("int8", "uint8", "int16", "int32")),
)
add(
    "wide sums",
    lambda x, y: (x.sum(), y.sum(0), x.mean(), (x * y).sum()),
    values("int64", 50, low=-(2**40), high=2**40),
    values("float64", 50),
    x64=True,
)
add("sums of many", lambda x: (x.sum(), x.mean(1), x.std(), jnp.linalg.norm(x), x.max(0)), f32(257, 129))
add(
    "reductions over length 1",
    lambda x: (x.sum(1), x.max((0, 1)), x.mean(1, keepdims=True), jnp.argmax(x, 1), x.var(1)),
    f32(3, 1, 4),
)

# ---------------------------------------------------------------- shapes and building

_x, _y = f32(4, 6), f32(4, 6, seed="y")
add(
    "joining",
    lambda x, y: (
        jnp.stack([x, y]),
        jnp.stack([x, y], 1),
        jnp.hstack([x, y]),
        jnp.vstack([x, y]),
        jnp.dstack([x, y]),
        jnp.column_stack([x, x[:, 0]]),
        jnp.concatenate([x, y], None),
        jnp.append(x, y, 1),
        jnp.block([[x, y], [y, x]]),
        jnp.concatenate([x, y[:, :0], x[:, 1:2]], 1),
    ),
    _x,
    _y,
)
add(
    "splitting",
    lambda x: (
        jnp.split(x, 2),
        jnp.array_split(x, 4, 1),
        jnp.hsplit(x, 3),
        jnp.vsplit(x, 2),
        jnp.unstack(x),
        jnp.dsplit(x[None], 2),
        jnp.split(x, [1, 4], 1),
    ),
    _x,
)
add(
    "moving axes",
    lambda x: (
        x.T,
        jnp.swapaxes(x, 0, 2),
        jnp.moveaxis(x, 0, -1),
        jnp.rollaxis(x, 2),
        jnp.transpose(x, (1, 2, 0)),
        jnp.flip(x, 1),
        jnp.fliplr(x),
        jnp.flipud(x),
        jnp.rot90(x),
        jnp.rot90(x, 2, (1, 2)),
        jnp.roll(x, 2),
        jnp.roll(x, (1, -1), (0, 2)),
        jnp.matrix_transpose(x),
        jnp.permute_dims(x, (2, 0, 1)),
    ),
    f32(3, 4, 5),
)
add(
    "reshaping",
    lambda x: (
        x.reshape(-1),
        x.reshape(3, 8),
        x.reshape(2, 2, 6),
        x.T.reshape(8, 3),
        jnp.ravel(x, order="F"),
        jnp.reshape(x, (6, 4), order="F"),
        jnp.squeeze(x[:, None]),
        jnp.atleast_3d(x),
        jnp.expand_dims(x, (0, 3)),
        jnp.resize(x, (5, 7)),
        jnp.broadcast_to(x, (2, 4, 6)),
        jnp.array_split(x.ravel(), 5),
    ),
    _x,
)
add(
    "repeating",
    lambda x: (
        jnp.tile(x, 2),
        jnp.tile(x, (2, 1, 3)),
        jnp.repeat(x, 3),
        jnp.repeat(x, 2, 1),
        jnp.repeat(x, np.array([1, 0, 2, 3]), 0),
        jnp.repeat(x, jnp.array([1, 0, 2, 3]), 0, total_repeat_length=6),
    ),
    _x,
)
add(
    "triangles",
    lambda x: (
        jnp.tril(x),
        jnp.triu(x, 1),
        jnp.tril(x, -2),
        jnp.tri(3, 5, 1),
        jnp.diag(x),
        jnp.diag(x[0], 1),
        jnp.diagonal(x, 1),
        jnp.diagflat(x[:2, :2]),
        jnp.trace(x, 1),
        jnp.fill_diagonal(x, 7.0, inplace=False),
        x[jnp.tril_indices(4)],
        jnp.vander(x[0], 3),
        jnp.eye(3),
        jnp.identity(2),
    ),
    _x,
)
add(
    "grids",
    lambda x: (
        jnp.meshgrid(x[0], x[1, :3]),
        jnp.indices((2, 3), sparse=True),
        jnp.ix_(jnp.arange(2), jnp.arange(3)),
        jnp.unravel_index(jnp.arange(5), (2, 3)),
        jnp.ravel_multi_index((jnp.array([1, 0]), jnp.array([2, 1])), (2, 3), mode="clip"),
        jnp.fromfunction(lambda i, j: i * j, (3, 2)),
        jnp.arange(0, 1, 0.25),
        jnp.linspace(x[0, 0], x[0, 1], 5, endpoint=False),
    ),
    _x,
)
add("windows of signals", lambda: [f(7) for f in (jnp.bartlett, jnp.blackman, jnp.hamming, jnp.hanning)] + [jnp.kaiser(7, 3.0)])
add(
    "insert and delete",
    lambda x: (
        jnp.insert(x, 2, 9.0),
        jnp.insert(x, 1, x[0], axis=0),
        jnp.insert(x, jnp.array([1, 3]), 5.0, axis=1),
        jnp.delete(x, 1),
        jnp.delete(x, np.array([0, 2]), axis=1),
        jnp.delete(x, slice(0, 3, 2), 0),
    ),
    _x,
)
add(
    "along an axis",
    lambda x: (
        jnp.apply_along_axis(lambda r: r.sum() * r, 1, x),
        jnp.apply_over_axes(jnp.sum, x, [0]),
        jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, x[0]),
        jnp.ediff1d(x),
        jnp.diff(x, 2),
        jnp.diff(x, axis=0, prepend=0.0),
        jnp.gradient(x),
        jnp.trapezoid(x, dx=0.5),
        jnp.unwrap(x),
        jnp.cumsum(x),
        jnp.cumulative_sum(x, axis=1, include_initial=True),
        jnp.nancumprod(x, 1),
    ),
    _x,
)

# ---------------------------------------------------------------- searching, sets, statistics

add(
    "searching",
    lambda x, q: (
        [
            jnp.searchsorted(jnp.sort(x), q, method=m, side=s)
            for m in ("scan", "scan_unrolled", "sort", "compare_all")
            for s in ("left", "right")
        ]
        + [jnp.digitize(q, jnp.sort(x))]
    ),
    f32(20),
    f32(9, seed="q"),
)
add(
    "searching NaN and ends",
    lambda x, q: (jnp.searchsorted(x, q), jnp.searchsorted(x, q, side="right")),
    np.array([-np.inf, -1, 0, 1, 1, np.inf, np.nan], np.float32),
    np.array([np.nan, np.inf, -np.inf, 1, -0.0, 5], np.float32),
)
add(
    "finding",
    lambda x: (
        jnp.nonzero(x > 0, size=7, fill_value=-1),
        jnp.flatnonzero(x > 0, size=12),
        jnp.argwhere(x > 1, size=5),
        jnp.where(x > 0, size=4),
        jnp.extract(x > 0, x, size=6),
        jnp.compress(jnp.array([1, 0, 1, 1], bool), x, axis=0, size=3),
    ),
    _x,
)
add(
    "sets",
    lambda a, b: (
        jnp.unique(a, size=8),
        jnp.unique(a, return_inverse=True, return_counts=True, return_index=True, size=10, fill_value=-1),
        jnp.union1d(a, b, size=15),
        jnp.intersect1d(a, b, size=6),
        jnp.setdiff1d(a, b, size=6),
        jnp.setxor1d(a, b, size=9),
        jnp.isin(a, b),
        jnp.isin(a, b, invert=True, method="sort"),
    ),
    values("int32", 12),
    values("int32", 12, seed="b"),
    slow=True,
)
add("unique rows", lambda x: jnp.unique(x, axis=0, size=5, return_inverse=True), values("int32", 8, 2, low=0, high=2))
add(
    "counting",
    lambda i, x: (
        jnp.bincount(i, length=8),
        jnp.bincount(i, x, length=8),
        jnp.histogram(x, 5),
        jnp.histogram(x, 4, (-1, 1), weights=x),
        jnp.histogram(x, jnp.array([-2.0, 0, 1, 3]), density=True),
    ),
    values("int32", 30, low=0, high=7),
    f32(30),
)
add("histograms of two", lambda x, y: jnp.histogram2d(x, y, 3), f32(30), f32(30, seed="y"), slow=True)
add(
    "quantiles",
    lambda x: (
        [
            jnp.quantile(x, jnp.array([0.0, 0.25, 0.9]), axis=0, method=m)
            for m in ("linear", "lower", "higher", "midpoint", "nearest")
        ]
        + [jnp.percentile(x, 30), jnp.nanquantile(x, 0.4, axis=1)]
    ),
    _x,
    slow=True,
)
add(
    "correlations",
    lambda x: (
        jnp.cov(x),
        jnp.corrcoef(x),
        jnp.cov(x, rowvar=False, ddof=0),
        jnp.correlate(x[0], x[1, :3]),
        jnp.convolve(x[0], x[1, :3], "same"),
        jnp.cov(x[0], x[1], fweights=jnp.array([1, 2, 1, 1, 3, 1])),
    ),
    _x,
)
add(
    "partitions",
    lambda x: (
        jnp.partition(x, 2, 0)[2],
        jnp.sort(jnp.argpartition(x, 3)[:, :3]),
        jnp.sort(x, 0),
        jnp.argsort(x, 0),
        jnp.lexsort(x),
    ),
    _x,
)
add(
    "interpolation",
    lambda x, p, f: (
        jnp.interp(x, jnp.sort(p), f),
        jnp.interp(x, jnp.sort(p), f, left=-1.0, right=9.0),
        jnp.interp(x, jnp.sort(p), f, period=3.0),
    ),
    f32(9),
    f32(6, seed="p"),
    f32(6, seed="f"),
)
add(
    "polynomials",
    lambda c, d, x: (
        jnp.polyval(c, x),
        jnp.polyadd(c, d),
        jnp.polysub(c, d),
        jnp.polymul(c, d),
        jnp.polydiv(c, d),
        jnp.polyder(c, 2),
        jnp.polyint(c),
        jnp.poly(d),
        jnp.polyval(c, x, unroll=1),
    ),
    f32(5),
    f32(3, seed="d"),
    f32(4),
)
add(
    "polynomial fits and roots",
    lambda x, y, c: (jnp.polyfit(x, y, 2), jnp.sort(jnp.abs(jnp.roots(c, strip_zeros=False)))),
    f32(12),
    f32(12, seed="y"),
    f32(5, low=1),
    bound=1e-3,
    slow=True,
)
add(
    "bits packed",
    lambda x, b: (
        jnp.packbits(x),
        jnp.packbits(x, axis=0, bitorder="little"),
        jnp.unpackbits(b),
        jnp.unpackbits(b, axis=0, count=5),
    ),
    values("bool", 3, 11),
    values("uint8", 3, 2, low=0, high=255),
)
add(
    "comparisons of arrays",
    lambda x, y: (
        jnp.allclose(x, y),
        jnp.array_equal(x, x),
        jnp.array_equiv(x, x[:1]),
        jnp.isclose(x, y, equal_nan=True),
        jnp.isrealobj(x),
        jnp.result_type(x, 1) == x.dtype,
    ),
    _x,
    _y,
)
add(
    "rounding to places",
    lambda x: (
        jnp.round(x, 2),
        jnp.round(x * 100, -1),
        x.round(1),
        jnp.round((x * 100).astype(jnp.int32), 1),
    ),
    _x,
)
add(
    "crossing",
    lambda a, b: (jnp.cross(a, b), jnp.cross(a[:, :2], b[:, :2]), jnp.linalg.cross(a, b)),
    f32(4, 3),
    f32(4, 3, seed="b"),
)
add(
    "views and methods",
    lambda x: (
        x.at[0].add(1),
        x.clip(0, 1),
        x.argsort(0),
        x.searchsorted if False else x.cumsum(),
        x.ptp() if hasattr(x, "ptp") else x.max(),
        x.flatten(),
        x.nonzero(size=3),
        x.repeat(2),
        x.squeeze(),
        x.trace(),
        x.conj(),
        x.mT,
        x.copy(),
        x.item if False else x.size,
        x.astype("bfloat16"),
    ),
    _x,
)
add(
    "nan_to_num options",
    lambda x: (jnp.nan_to_num(x, nan=7.0, posinf=8.0, neginf=-9.0), jnp.nan_to_num(x.astype(jnp.float16))),
    np.array([np.nan, np.inf, -np.inf, 3], np.float32),
)

# ---------------------------------------------------------------- FFT

for _n in (1, 2, 7, 8, 12):
    add(
        f"fft of {_n}",
        lambda x, z: (
            jnp.fft.fft(z),
            jnp.fft.ifft(z),
            jnp.fft.rfft(x),
            jnp.fft.irfft(z, 2 * z.shape[-1] - 1),
            jnp.fft.hfft(z, 2 * z.shape[-1] - 1),
            jnp.fft.ihfft(x),
        ),
        f32(3, _n),
        values("complex64", 3, _n),
    )
add(
    "fft of dimensions",
    lambda x, z: (
        jnp.fft.fft2(z),
        jnp.fft.ifft2(z),
        jnp.fft.rfft2(x),
        jnp.fft.irfft2(z),
        jnp.fft.fftn(z),
        jnp.fft.ifftn(z, axes=(0, 2)),
        jnp.fft.rfftn(x),
        jnp.fft.irfftn(z, (4, 3, 5)),
    ),
    f32(2, 4, 6),
    values("complex64", 2, 4, 6),
)
add(
    "fft options",
    lambda z: (
        jnp.fft.fft(z, 5, 0),
        jnp.fft.fft(z, 9, norm="ortho"),
        jnp.fft.ifft(z, norm="forward"),
        jnp.fft.fftshift(z),
        jnp.fft.ifftshift(z, 0),
        jnp.fft.fftfreq(5, 0.1),
        jnp.fft.rfftfreq(6),
    ),
    values("complex64", 4, 6),
)
add(
    "fft wide",
    lambda x, z: (jnp.fft.fft(z), jnp.fft.rfft(x), jnp.fft.irfft(z)),
    values("float64", 9),
    values("complex128", 8),
    x64=True,
)
add(
    "fft gradients",
    lambda x: (
        jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.fft(x)) ** 2))(x),
        jax.grad(lambda x: jnp.sum(jnp.fft.irfft(jnp.fft.rfft(x) * 2) ** 3))(x),
        jax.vmap(jnp.fft.rfft)(x.reshape(2, 5)),
    ),
    f32(10),
)

# ---------------------------------------------------------------- linear algebra


def spd(n: int, *batch: int) -> np.ndarray:
    a = f32(*batch, n, n).astype(np.float64)
    return np.asarray(a @ np.swapaxes(a, -1, -2) + n * np.eye(n), np.float32)


_square, _tall, _wide = f32(4, 4) + 5 * np.eye(4, dtype=np.float32), f32(5, 3), f32(3, 5)
_signless = lambda *ms: [jnp.abs(m) for m in ms]  # noqa: E731  (columns of Q, U, V are known up to sign)
_LINALG: dict[str, Any] = {
    "cholesky": (lambda a: (jnp.linalg.cholesky(a), jnp.linalg.cholesky(a, upper=True)), spd(4)),
    "cholesky batched": (jnp.linalg.cholesky, spd(3, 2, 2)),
    "cholesky of no such matrix": (jnp.linalg.cholesky, -spd(3)),
    "qr": (lambda a: _signless(*jnp.linalg.qr(a), *jnp.linalg.qr(a, "complete"), jnp.linalg.qr(a, "r")), _tall),
    "qr wide": (lambda a: _signless(*jnp.linalg.qr(a)), _wide),
    "svd": (lambda a: _signless(*jnp.linalg.svd(a, full_matrices=False)), _tall),
    "svd full": (lambda a: [jnp.linalg.svd(a)[1], jnp.abs(jnp.linalg.svd(a)[0][:, :3])], _tall),
    "svd wide, values": (lambda a: (jnp.linalg.svdvals(a), jnp.linalg.svd(a, compute_uv=False)), _wide),
    "svd put together": (
        lambda a: (lambda u, s, v: (u * s[..., None, :]) @ v)(*jnp.linalg.svd(a, full_matrices=False)),
        f32(2, 4, 3),
    ),
    "eigh": (lambda a: (jnp.linalg.eigvalsh(a), jnp.linalg.eigh(a)[0], jnp.abs(jnp.linalg.eigh(a)[1])), spd(4)),
    "eigh upper": (lambda a: (jnp.linalg.eigh(a, UPLO="U")[0], jnp.linalg.eigvalsh(a, "U")), _square),
    "eig": (lambda a: (jnp.sort(jnp.linalg.eigvals(a).real), jnp.sort(jnp.abs(jnp.linalg.eig(a)[0]))), _square),
    "inverse": (
        lambda a: (
            jnp.linalg.inv(a),
            jnp.linalg.pinv(a),
            jnp.linalg.matrix_power(a, 3),
            jnp.linalg.matrix_power(a, -2),
            jnp.linalg.matrix_power(a, 0),
        ),
        _square,
    ),
    "pseudo-inverse": (lambda a: (jnp.linalg.pinv(a), jnp.linalg.pinv(a.T)), _tall),
    "determinants": (
        lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a), jnp.linalg.det(a[:3, :3]), jnp.linalg.det(a[:2, :2])),
        _square,
    ),
    "determinants batched": (lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a), jnp.linalg.inv(a)), spd(3, 4)),
    "solve": (
        lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.solve(a, b[:, 0]), jnp.linalg.solve(a[None], b[None])),
        _square,
        f32(4, 2),
    ),
    "least squares": (lambda a, b: (jnp.linalg.lstsq(a, b)[0], jnp.linalg.lstsq(a, b)[2]), _tall, f32(5, 2)),
    "norms": (
        lambda a: [
            jnp.linalg.norm(a),
            *(jnp.linalg.norm(a, o) for o in (1, -1, 2, -2, jnp.inf, -jnp.inf, "fro", "nuc")),
            *(jnp.linalg.norm(a, o, axis=1) for o in (0, 1, 2, 3, jnp.inf, -jnp.inf)),
            jnp.linalg.vector_norm(a, axis=0),
            jnp.linalg.matrix_norm(a),
        ],
        _square,
    ),
    "rank and condition": (lambda a: (jnp.linalg.matrix_rank(a), jnp.linalg.cond(a), jnp.linalg.cond(a, 1)), _square),
    "products": (
        lambda a: (
            jnp.linalg.multi_dot([a, a.T, a, a[0]]),
            jnp.linalg.outer(a[0], a[1]),
            jnp.linalg.tensordot(a, a),
            jnp.linalg.trace(a),
            jnp.linalg.vecdot(a, a),
            jnp.linalg.diagonal(a, offset=1),
        ),
        _square,
    ),
    "tensor solve": (
        lambda a, b: (jnp.linalg.tensorsolve(a, b), jnp.linalg.tensorinv(a.reshape(4, 2, 2), 1)),
        f32(2, 2, 4) + np.eye(4, dtype=np.float32).reshape(2, 2, 4) * 5,
        f32(2, 2),
    ),
    "empty matrices": (lambda a: (jnp.linalg.inv(a), jnp.linalg.det(a), jnp.linalg.cholesky(a), a @ a), f32(2, 0, 0)),
}
for _name, (_f, *_args) in _LINALG.items():
    add(f"linalg {_name}", _f, *_args, bound=3e-4)
_GRADS = {
    "det": jnp.linalg.det,
    "inv": jnp.linalg.inv,
    "cholesky": lambda a: jnp.linalg.cholesky(a @ a.T),
    "eigh": lambda a: jnp.linalg.eigh(a @ a.T)[0],
    "svd": lambda a: jnp.linalg.svd(a)[1],
    "solve": lambda a: jnp.linalg.solve(a, a[0]),
    "norm": jnp.linalg.norm,
    "slogdet": lambda a: jnp.linalg.slogdet(a)[1],
    "qr": lambda a: jnp.linalg.qr(a)[1],
}
for _name, _f in _GRADS.items():
    add(
        f"linalg gradient of {_name}",
        lambda a, f=_f: (jax.grad(lambda a: jnp.sum(f(a) ** 2))(a), jax.jvp(f, (a,), (a.T,))),
        _square,
        bound=1e-3,
        slow=_name not in ("det", "solve"),
    )
add(
    "linalg wide",
    lambda a, z: (
        jnp.linalg.inv(a),
        jnp.linalg.eigh(a + a.T)[0],
        jnp.linalg.svd(z)[1],
        jnp.linalg.cholesky(z @ z.conj().T + 9 * jnp.eye(3)),
        jnp.linalg.solve(z, z[0]),
        jnp.linalg.det(z),
    ),
    values("float64", 4, 4),
    values("complex128", 3, 3),
    x64=True,
    bound=1e-9,
    slow=True,
)
add(
    "linalg complex",
    lambda z: (
        jnp.linalg.inv(z),
        jnp.abs(jnp.linalg.qr(z)[1]),
        jnp.linalg.eigh(z + z.conj().T)[0],
        jnp.sort(jnp.abs(jnp.linalg.eig(z)[0])),
        jnp.linalg.slogdet(z),
        jnp.linalg.norm(z),
        jnp.linalg.matrix_power(z, 2),
    ),
    values("complex64", 3, 3),
    bound=1e-3,
)
