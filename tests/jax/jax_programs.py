"""JAX programs by name, with arguments: what `tilewright.jit` is compared with `jax.jit` on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

R = np.random.default_rng(7)


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    return np.asarray(R.normal(size=shape) * scale).astype(dtype)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: Any = np.int32) -> np.ndarray:
    return R.integers(low, high, size=shape).astype(dtype)


def spd(n: int, *batch: int) -> np.ndarray:
    a = normal(*batch, n, n)
    return np.asarray(a @ np.swapaxes(a, -1, -2) + n * np.eye(n), np.float32)


KEY = jax.random.key(3)
RAW_KEY = jax.random.PRNGKey(5)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def program(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(f: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[f.__name__] = (f, args)
        return f

    return keep


# ---------------------------------------------------------------- models and losses


def _mlp(params: Any, x: Any) -> Any:
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


MLP = [(normal(8, 16, scale=0.3), normal(16)), (normal(16, 16, scale=0.3), normal(16)), (normal(16, 4, scale=0.3), normal(4))]


@program(MLP, normal(5, 8))
def mlp(params, x):
    return _mlp(params, x)


@program(MLP, normal(5, 8), integers(5, low=0, high=4))
def mlp_loss_gradient(params, x, y):
    def loss(p):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(_mlp(p, x)), y[:, None], axis=1))

    return jax.value_and_grad(loss)(params)


@program({"w": normal(6, 3), "b": normal(3), "none": None}, normal(4, 6), normal(4, 3))
def sgd_step(params, x, y):
    g = jax.grad(lambda p: jnp.sum((x @ p["w"] + p["b"] - y) ** 2))(params)
    return jax.tree.map(lambda p, d: p - 0.1 * d, params, g)


@program(normal(2, 4, 16, 8), normal(2, 4, 16, 8), normal(2, 4, 16, 8))
def causal_attention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(8)
    s = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), s, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s), v)


@program(normal(2, 8, 2, 4), normal(2, 8, 2, 4), normal(2, 8, 2, 4))
def dot_product_attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@program(normal(2, 4, 6, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8))
def attention_gradient(q, k, v):
    def f(q, k, v):
        return jnp.sum(jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k)), v) ** 2)

    return jax.grad(f, argnums=(0, 1, 2))(q, k, v)


@program(normal(4, 16), normal(16), normal(16))
def layer_norm(x, scale, bias):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


@program(normal(4, 16), normal(16))
def rms_norm_jacobian_product(x, g):
    def f(x):
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g

    return jax.jvp(f, (x,), (jnp.cos(x),)), jax.vjp(f, x)[1](jnp.sin(x))


@program(normal(2, 3, 10, 10), normal(4, 3, 3, 3, scale=0.3), normal(5, 4, scale=0.3))
def convolutional_net(x, w, head):
    y = lax.conv_general_dilated(x, w, (2, 2), "SAME")
    y = lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")
    return y.mean((2, 3)) @ head.T


@program(normal(2, 3, 8, 8), normal(4, 3, 3, 3, scale=0.3))
def convolution_gradient(x, w):
    def f(x, w):
        return jnp.sum(jnp.tanh(lax.conv_general_dilated(x, w, (1, 1), "SAME", rhs_dilation=(2, 2))))

    return jax.grad(f, argnums=(0, 1))(x, w)


@program(normal(2, 6, 9), normal(6, 1, 3))
def depthwise_convolution(x, w):
    return lax.conv_general_dilated(x, w, (1,), [(1, 1)], feature_group_count=6)


@program(normal(2, 5, 5, 3), normal(3, 3, 3, 4))
def transposed_convolution(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME")


@program(normal(7, 5), normal(5, 20, scale=0.3), normal(5, 20, scale=0.3), normal(20))
def lstm_scan(xs, wx, wh, b):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros(5), jnp.zeros(5)), xs)


@program(normal(6, 4), normal(4, 4, scale=0.3))
def scan_gradient(xs, w):
    def loss(w):
        return jnp.sum(lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), jnp.zeros(4), xs)[1])

    return jax.grad(loss)(w)


@program(normal(11, 6), integers(2, 7, low=0, high=11))
def embedding(table, ids):
    return table[ids] * 2


@program(normal(11, 6), integers(2, 7, low=0, high=11))
def embedding_gradient(table, ids):
    return jax.grad(lambda t: jnp.sum(jnp.sin(t[ids])))(table)


@program(normal(3, 8, 4), normal(8, 2, 4))
def rotary(x, y):
    t = jnp.arange(8)[:, None] / 10.0 ** (jnp.arange(2) / 2)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * jnp.cos(t) - b * jnp.sin(t), b * jnp.cos(t) + a * jnp.sin(t)], -1), y.sum()


@program(normal(3), normal(3), normal(3), 0.1)
def adam(p, m, v, lr):
    g = jax.grad(lambda p: jnp.sum(p**4 - p**2))(p)
    m, v = 0.9 * m + 0.1 * g, 0.99 * v**2 + 0.01 * g * g
    return p - lr * m / (jnp.sqrt(v) + 1e-8), m, v


@program(normal(4, 4), normal(4))
def hessian(a, x):
    return jax.hessian(lambda x: jnp.sum(jnp.cos(a @ x)) + x @ a @ x)(x)


@program(normal(3, 5))
def jacobian_forward(x):
    return jax.jacfwd(lambda x: jnp.cumsum(x, 0) * x)(x)


@program(normal(16, 8), normal(4, 8, 8), integers(4, low=4, high=5))
def ragged_dot(x, w, sizes):
    return lax.ragged_dot(x, w, sizes)


@program(normal(6, 5), normal(6))
def custom_gradient(x, y):
    @jax.custom_vjp
    def f(x):
        return jnp.sum(x**3)

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * jnp.clip(x, -1, 1),))
    return jax.grad(f)(x), y


@program(normal(6, 5))
def checkpointed(x):
    return jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x)))(x)


# ---------------------------------------------------------------- control flow


@program(np.float32(2.5), normal(4))
def cond_branches(t, x):
    return lax.cond(t > 1, lambda v: jnp.sin(v), lambda v: -v, x)


@program(np.int32(2), normal(4))
def switch_branches(i, x):
    return lax.switch(i, [lambda v: v, jnp.exp, lambda v: v.sum() + v, jnp.negative], x)


@program(np.float32(50.0))
def newton_while(a):
    return lax.while_loop(
        lambda s: (jnp.abs(s[0] ** 2 - a) > 1e-3) & (s[1] < 60), lambda s: (0.5 * (s[0] + a / s[0]), s[1] + 1), (a, 0)
    )


@program(normal(5, 5))
def fori_power(a):
    return lax.fori_loop(0, 4, lambda i, v: jnp.tanh(a @ v) + i, jnp.ones(5))


@program(normal(5), np.array([True, False, True, True, False]))
def vmapped_cond(x, p):
    return jax.vmap(lambda x, p: lax.cond(p, jnp.exp, jnp.sin, x))(x, p)


@program(np.array([3, 9, 1, 7]))
def vmapped_while(n):
    def collatz(n):
        return lax.while_loop(
            lambda s: s[0] > 1, lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)
        )[1]

    return jax.vmap(collatz)(n)


@program(normal(8, 3))
def associative_scan(x):
    return (
        lax.associative_scan(lambda a, b: a * 0.5 + b, x),
        lax.cumlogsumexp(x, 0),
        lax.cummax(x, 1),
        lax.cumprod(x, reverse=True),
    )


@program(normal(6, 4))
def mapped(x):
    return lax.map(lambda r: jnp.sort(r)[::-1] + r.mean(), x)


@program(normal(3, 4))
def cond_gradient(x):
    return jax.grad(lambda x: lax.cond(x.sum() > 0, lambda v: (v**2).sum(), lambda v: v.sum(), x))(x)


@program(normal(2, 3, 4), normal(5, 4))
def nested_vmap(a, b):
    return jax.vmap(jax.vmap(lambda u, v: u @ v, (None, 0)), (0, None))(a, b)


@program(normal(4, 3))
def vmapped_gradient(x):
    return jax.vmap(jax.grad(lambda r: jnp.log(jnp.sum(jnp.exp(r)))))(x)


# ---------------------------------------------------------------- random numbers


@program(KEY)
def random_floats(key):
    a, b, c = jax.random.split(key, 3)
    return jax.random.normal(a, (3, 4)), jax.random.uniform(b, (5,), minval=-1), jax.random.truncated_normal(c, -1, 1, (4,))


@program(RAW_KEY)
def random_integers(key):
    k1, k2, k3 = jax.random.split(key, 3)
    return jax.random.randint(k1, (7,), 0, 1000), jax.random.bits(k2, (4,), jnp.uint8), jax.random.bernoulli(k3, 0.3, (9,))


@program(KEY)
def random_permutation(key):
    return jax.random.permutation(key, 12), jax.random.choice(key, 10, (4,), replace=False)


@program(KEY, normal(4, 6))
def random_categorical(key, logits):
    return jax.random.categorical(key, logits), jax.random.gumbel(key, (3,))


@program(KEY)
def random_distributions(key):
    return (
        jax.random.exponential(key, (3,)),
        jax.random.laplace(key, (3,)),
        jax.random.gamma(key, 2.0, (3,)),
        jax.random.cauchy(key, (2,)),
    )


@program(KEY, np.uint32(11))
def folded_keys(key, n):
    return jax.random.fold_in(key, n), jax.random.key_data(jax.random.clone(key))


@program(jax.random.key(1, impl="rbg"))
def rbg_key_split(key):
    return jax.random.split(key), jax.random.fold_in(key, 3)


@program(jax.random.split(KEY, 4))
def vmapped_random(keys):
    return jax.vmap(lambda k: jax.random.normal(k, (3,)))(keys)


@program(KEY, normal(8, 8))
def dropout(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x / 0.5, 0)


# ---------------------------------------------------------------- sorting and searching


@program(integers(4, 9))
def sorts(x):
    return jnp.sort(x, 0), jnp.argsort(x, 1), jnp.sort(x, descending=True), jnp.sort(x.astype(jnp.float32), 1)


@program(normal(3, 20))
def top_k(x):
    return lax.top_k(x, 5)


@program(np.array([3.0, np.nan, -np.inf, 0.0, -0.0, np.inf, 1.0], np.float32))
def sort_special(x):
    return jnp.sort(x), jnp.argsort(x), jnp.argmax(x), jnp.nanmax(x), jnp.nanargmin(x)


@program(integers(12, low=0, high=4), normal(12))
def lexsorts(a, b):
    return jnp.lexsort((b, a)), lax.sort((a, b), num_keys=2)


@program(np.sort(normal(20)), normal(6))
def search_sorted(a, v):
    return jnp.searchsorted(a, v), jnp.digitize(v, a), jnp.interp(v, a, a**2)


@program(normal(5, 7))
def quantiles(x):
    return jnp.median(x, 1), jnp.quantile(x, jnp.array([0.1, 0.9]), axis=0), jnp.percentile(x, 25)


@program(integers(20, low=0, high=6))
def unique_and_counts(x):
    return jnp.unique(x, size=6, fill_value=-1), jnp.bincount(x, length=6)


@program(normal(6, 9))
def arg_reductions(x):
    return jnp.argmax(x, 1), jnp.argmin(x, 0), x.argmax(), jnp.max(x, where=x < 0, initial=-9)


# ---------------------------------------------------------------- Fourier transforms


@program(normal(3, 16))
def fft_round_trip(x):
    return jnp.fft.fft(x), jnp.fft.ifft(jnp.fft.fft(x)).real


@program(normal(2, 15), normal(4, 6))
def real_fft(x, y):
    return jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x), 15), jnp.fft.rfft2(y), jnp.fft.fftshift(y)


@program(normal(2, 4, 6))
def fft_nd(x):
    return jnp.fft.fftn(x), jnp.fft.fft2(x), jnp.abs(jnp.fft.ifftn(x))


@program(normal(32), normal(5))
def fft_convolution(x, k):
    return jax.scipy.signal.fftconvolve(x, k, mode="same"), jnp.convolve(x, k)


# ---------------------------------------------------------------- linear algebra


@program(spd(5, 2))
def cholesky(a):
    return jnp.linalg.cholesky(a)


@program(spd(4), normal(4, 2))
def cholesky_solve(a, b):
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), jax.scipy.linalg.solve(a, b, assume_a="pos")


@program(spd(4))
def cholesky_gradient(a):
    return jax.grad(lambda a: jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(a)))))(a)


@program(-spd(3))
def cholesky_indefinite(a):
    return jnp.linalg.cholesky(a)


@program(spd(4, 3), normal(3, 4, 2))
def triangular_solves(a, b):
    lower = jnp.linalg.cholesky(a)
    return jax.scipy.linalg.solve_triangular(lower[0], b[0], lower=True, trans=1), lax.linalg.triangular_solve(
        lower, b, left_side=True, lower=True
    )


@program(normal(2, 5, 5) + 3 * np.eye(5, dtype=np.float32), normal(2, 5, 3))
def solve_inverse_det(a, b):
    return jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(a), jnp.linalg.slogdet(a)


@program(normal(4, 4) + 3 * np.eye(4, dtype=np.float32), normal(4))
def solve_gradient(a, b):
    return jax.grad(lambda a: jnp.sum(jnp.linalg.solve(a, b)))(a)


@program(normal(3, 5, 3))
def qr(a):
    return jnp.linalg.qr(a)


@program(normal(2, 4, 3))
def singular_values(a):
    u, s, vt = jnp.linalg.svd(a, full_matrices=False)
    return s, (u * s[..., None, :]) @ vt, jnp.linalg.svd(a, compute_uv=False)


@program(spd(5))
def eigenvalues(a):
    w, v = jnp.linalg.eigh(a)
    return w, (v * w) @ v.T, jnp.linalg.eigvalsh(a)


@program(normal(4, 4))
def eigenvalues_general(a):
    w, v = jnp.linalg.eig(a)
    return jnp.sort(jnp.abs(w)), 1 + jnp.abs(a @ v - v * w)


@program(normal(5, 3), normal(5))
def least_squares(a, b):
    return jnp.linalg.lstsq(a, b)[0], jnp.linalg.pinv(a), jnp.linalg.matrix_rank(a)


@program(normal(3, 3, scale=0.5), spd(3))
def matrix_functions(a, s):
    return jax.scipy.linalg.expm(a), jnp.linalg.matrix_power(a, 5), jnp.linalg.norm(a), jnp.linalg.norm(s, 2), jnp.trace(a)


@program(normal(4, 4))
def factorisations(a):
    p, lower, upper = jax.scipy.linalg.lu(a)
    t, z = jax.scipy.linalg.schur(a)
    return p @ lower @ upper, z @ t @ z.T, lax.linalg.hessenberg(a)[0]


@program(normal(3, 4), normal(4, 5), normal(5, 2))
def einsums(a, b, c):
    return (
        jnp.einsum("ij,jk,kl->il", a, b, c),
        jnp.einsum("ij,jk->k", a, b),
        jnp.kron(a, c),
        jnp.tensordot(a, b, 1),
        jnp.outer(a, c),
    )


# ---------------------------------------------------------------- integers, booleans, small and wide types


@program(integers(4, 8), integers(4, 8, low=1))
def integer_arithmetic(a, b):
    return a // b, a % b, a * b - a, lax.div(a, b), lax.rem(a, b), jnp.abs(a), jnp.sign(a), a**2, -a


@program(integers(9, low=0, high=200, dtype=np.uint8), integers(9, low=1, high=8, dtype=np.uint8))
def unsigned_bits(a, b):
    return a & b, a | b, a ^ b, ~a, a << b, a >> b, lax.population_count(a), lax.clz(a), a + b


@program(integers(9, dtype=np.int8), integers(9, dtype=np.int16))
def narrow_integers(a, b):
    return a * a * a, a + b, (a > 0) & (b < 3), jnp.sum(a), jnp.prod(b), a.astype(jnp.float32) / 3, jnp.left_shift(a, 2)


@program(np.array([True, False, True]), np.array([[True], [False]]))
def booleans(a, b):
    return a & b, a | b, ~a, a ^ b, jnp.any(a), jnp.all(b, 0), jnp.where(a, 1.5, -2), a.sum()


@program(normal(6, 8, dtype=jnp.bfloat16), normal(8, 4, dtype=jnp.bfloat16))
def bfloat16_block(a, b):
    return jnp.maximum(a, 0).sum(), (a * 2 + 1).astype(jnp.float32), jnp.dot(a, b, preferred_element_type=jnp.float32)


@program(normal(6, 8, dtype=np.float16))
def float16_block(a):
    return a * a - a, jnp.sqrt(jnp.abs(a)), a.astype(jnp.float32).sum(), a.max()


@program(normal(8, dtype=jnp.float8_e4m3fn), integers(8, low=-8, high=8, dtype=np.int8))
def float8_and_int4(a, b):
    return a.astype(jnp.float32) * 2, (b.astype(jnp.int4) + jnp.int4(1)).astype(jnp.int8), a.astype(jnp.bfloat16)


@program((normal(4, 3) + 1j * normal(4, 3)).astype(np.complex64))
def complex_numbers(z):
    return z * z.conj(), jnp.abs(z), jnp.angle(z), jnp.exp(z), z.real + z.imag, jnp.sqrt(z), z.T @ z


@program(normal(6), integers(6))
def bit_casts(x, n):
    return (
        lax.bitcast_convert_type(x, jnp.int32),
        lax.bitcast_convert_type(n, jnp.float32).astype(jnp.float32) * 0,
        x.view(jnp.uint8),
    )


# ---------------------------------------------------------------- elementwise functions and shapes


@program(normal(40), np.abs(normal(40)) + 0.1)
def elementary(x, y):
    return (
        jnp.exp(x),
        jnp.expm1(x),
        jnp.log(y),
        jnp.log1p(y),
        jnp.sin(x),
        jnp.cos(x),
        jnp.tan(x),
        jnp.tanh(x),
        jnp.sqrt(y),
        lax.rsqrt(y),
        jnp.cbrt(x),
        jnp.floor(x),
        jnp.round(x),
        jnp.arctan2(x, y),
        y**x,
        jnp.sinh(x),
        jnp.arcsinh(x),
        jax.nn.sigmoid(x),
    )


@program(np.clip(normal(20, scale=0.4), -0.95, 0.95), np.abs(normal(20)) + 0.5)
def special_functions(x, y):
    s = jax.scipy.special
    return (
        s.erf(x),
        s.erfc(y),
        s.erfinv(x),
        s.gammaln(y),
        s.digamma(y),
        s.i0e(x),
        s.logit(y / 9),
        s.xlogy(y, y),
        s.gammainc(y, y),
        s.betainc(y, y, 0.3),
    )


@program(normal(9))
def activations(x):
    n = jax.nn
    return (
        n.relu(x),
        n.gelu(x),
        n.gelu(x, approximate=False),
        n.silu(x),
        n.softplus(x),
        n.elu(x),
        n.selu(x),
        n.leaky_relu(x),
        n.hard_tanh(x),
        n.mish(x),
    )


@program(normal(4, 6), normal(2, 3))
def shapes(x, y):
    return (
        x.reshape(3, 8),
        x.T[::-1],
        jnp.pad(x, ((1, 2), (0, 3)), constant_values=1),
        jnp.concatenate([x, x[:1]]),
        jnp.stack([y, y], 1),
        jnp.tile(y, (2, 2)),
        jnp.repeat(y, 2, 1),
        jnp.roll(x, 2, 1),
        x[1:3, ::2],
        jnp.flip(x),
        jnp.rot90(y),
        jnp.broadcast_to(y[:, None], (2, 4, 3)),
    )


@program(normal(5, 6), np.int32(2))
def dynamic_indexing(x, i):
    return (
        lax.dynamic_slice(x, (i, i), (2, 3)),
        x.at[i].set(0),
        x.at[:, i].add(1),
        lax.dynamic_update_slice(x, x[:2, :2] * 0, (i, 1)),
        x[i],
        jnp.take(x, jnp.array([0, 9, -1]), axis=0, mode="clip"),
    )


@program(normal(6, 3), integers(8, low=0, high=6), normal(8, 3))
def scatters(x, i, u):
    return x.at[i].add(u), x.at[i].max(u), x.at[i].mul(u), jax.ops.segment_sum(u, i, 6), x.at[i[:3], 1].min(0.0)


@program(normal(5, 5))
def triangles(x):
    return jnp.tril(x), jnp.triu(x, 1), jnp.diag(x), jnp.diag(x[0]), jnp.eye(3, 4), jnp.linspace(0, 1, 7), jnp.vander(x[0], 3)


@program(normal(4, 8, 8, 2))
def pooling(x):
    p = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    g = jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2))(x)
    return p, g


@program(normal(2, 4, 4, 3))
def image_resize(x):
    return jax.image.resize(x, (2, 7, 6, 3), "bilinear"), jax.image.resize(x, (2, 2, 2, 3), "nearest")


@program(normal(10, 3))
def statistics(x):
    return (
        x.var(0),
        x.std(ddof=1),
        jnp.corrcoef(x.T),
        jnp.cov(x.T),
        jnp.histogram(x[:, 0], 4, (-2, 2))[0],
        jax.nn.logsumexp(x),
        jnp.ptp(x, 1),
    )


@program(normal(3), 2, True, 1.5)
def python_scalars(x, n, flag, t):
    return x * n, x + t, n * 2, jnp.where(flag, n, 0), t


@program({"b": normal(2), "a": (normal(3), [normal(1), None])}, None)
def trees(tree, nothing):
    return {"out": jax.tree.map(lambda v: v * 2, tree), "nothing": nothing, "empty": ()}


@program(normal(0, 3), normal(4, 0))
def empty_arrays(a, b):
    return a.sum(0), a * 2, b.T @ b, jnp.concatenate([a, a])


@program(normal(4, 3))
def callback(x):
    return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct((4, 3), np.float32), x) + 1


@program(normal(3, 7), normal(7, 2))
def nested_jit(a, b):
    f = jax.jit(lambda x, y, n: jnp.tanh(x @ y) * n, static_argnums=2)
    return f(a, b, 2) + f(a, b, 3)


# ---------------------------------------------------------------- 64-bit types


def wide(x: Any, n: Any, k: Any) -> Any:
    return (
        jnp.sin(x) @ x.T,
        n * n + 2**40,
        x.sum() + 1,
        jnp.sort(x, 0),
        jax.random.normal(jax.random.key(0), (3,)),
        jnp.linalg.cholesky(k),
        jnp.linalg.solve(k, x[:4, 0]),
        jnp.linalg.eigvalsh(k),
        jnp.arange(3),
        jax.grad(lambda v: jnp.sum(jnp.exp(v)))(x),
    )


WIDE = (normal(6, 3, dtype=np.float64), integers(5, dtype=np.int64), spd(4).astype(np.float64))
