# ruff: noqa: E501  (a table)
"""Functions for `tests.mesh.jax_worker` of kinds that its other lists lack: windows in all forms, gradients of norms, experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

Program = tuple[str, Callable[..., Any], Mesh, tuple[Any, ...], Any, tuple[Any, ...]]
NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


# ---------------------------------------------------------------- windows


def conv(x: Any, w: Any, strides: tuple[int, ...] = (1, 1), padding: Any = "SAME", **more: Any) -> Any:
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=NHWC, **more)


def conv_nchw(x: Any, w: Any, strides: tuple[int, ...] = (1, 1), padding: Any = "SAME", **more: Any) -> Any:
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=NCHW, **more)


def depthwise(x: Any, w: Any) -> Any:
    return conv(x, w, feature_group_count=x.shape[-1])


def separable(x: Any, w: Any, u: Any) -> Any:
    return conv(jax.nn.relu(depthwise(x, w)), u)


def separable_gradient(x: Any, w: Any, u: Any) -> Any:
    return jax.grad(lambda p: jnp.mean(separable(x, *p) ** 2))((w, u))


def volume(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


def causal_line(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1,), ((4, 0),), rhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC"))


def squeezed(x: Any, w: Any, u: Any) -> Any:
    """Squeeze and excitation."""
    return x * jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ w) @ u)[:, None, None]


def average(x: Any) -> Any:
    total = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return total / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def patches(x: Any, w: Any) -> Any:
    """Images in patches of four by four, and an embedding of each."""
    n, h, width, c = x.shape
    p = x.reshape(n, h // 4, 4, width // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, (h // 4) * (width // 4), 16 * c)
    return p @ w


def shuffled(x: Any) -> Any:
    """Channels to pixels: twice as many rows and columns."""
    n, h, w, c = x.shape
    return x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)


def pyramid(x: Any) -> Any:
    """An image less what is left of it at half the size."""
    half = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return x - jnp.repeat(jnp.repeat(half, 2, 1), 2, 2), half


def upwind(u: Any, v: Any) -> Any:
    """Advection whose neighbour depends on the sign of the velocity."""
    back, ahead = u - jnp.roll(u, 1, 0), jnp.roll(u, -1, 0) - u
    return u - 0.1 * jnp.where(v > 0, v * back, v * ahead)


def fourth_order(u: Any) -> Any:
    p = jnp.pad(u, ((2, 2), (0, 0)), mode="reflect")
    return (-p[:-4] + 16 * p[1:-3] - 30 * p[2:-2] + 16 * p[3:-1] - p[4:]) / 12


def line_stencil(u: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, u: jnp.concatenate([u[:1], (u[:-2] + u[1:-1] + u[2:]) / 3, u[-1:]]), u)


def staggered(p: Any, u: Any, v: Any) -> Any:
    """Shallow water on a staggered grid, periodic."""
    u = u - 0.1 * (jnp.roll(p, -1, 0) - p)
    v = v - 0.1 * (jnp.roll(p, -1, 1) - p)
    return p - 0.1 * (u - jnp.roll(u, 1, 0) + v - jnp.roll(v, 1, 1)), u, v


def red_black(u: Any, f: Any) -> Any:
    """A half-step of Gauss and Seidel: elements whose indices' sum is even."""
    p = jnp.pad(u, 1)
    new = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - f) / 4
    i, j = jnp.indices(u.shape)
    return jnp.where((i + j) % 2 == 0, new, u)


def sobel(x: Any) -> Any:
    p = jnp.pad(x, 1, mode="edge")
    gx = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    gy = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    return jnp.sqrt(gx * gx + gy * gy + 1e-6)


# ---------------------------------------------------------------- attention


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    s = s if mask is None else jnp.where(mask, s, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)


def sliding(q: Any, k: Any, v: Any) -> Any:
    i, j = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None]
    return attention(q, k, v, (j <= i) & (j > i - 4))


def grouped(q: Any, k: Any, v: Any) -> Any:
    """Two queries' heads for each head of keys and values, without repeating these."""
    b, s, h, _ = q.shape
    g = q.reshape(b, s, k.shape[2], h // k.shape[2], -1)
    p = jax.nn.softmax(jnp.einsum("bqkgd,bskd->bkgqs", g, k), -1)
    return jnp.einsum("bkgqs,bskd->bqkgd", p, v).reshape(q.shape)


def multi_query(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    b, s, _ = x.shape
    q, k, v = (x @ wq).reshape(b, s, 4, -1), x @ wk, x @ wv
    p = jax.nn.softmax(jnp.einsum("bqhd,bkd->bhqk", q, k), -1)
    return jnp.einsum("bhqk,bkd->bqhd", p, v).reshape(b, s, -1) @ wo


def biased(q: Any, k: Any, v: Any) -> Any:
    """A slope for each head (ALiBi)."""
    i, j = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None]
    slope = 2.0 ** -jnp.arange(1, q.shape[2] + 1)
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) - slope[:, None, None] * jnp.abs(i - j)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    return jnp.einsum("bqd,bde->bqe", q, jnp.einsum("bkd,bke->bde", k, v)) / jnp.einsum("bqd,bd->bq", q, k.sum(1))[..., None]


def attention_gradient(q: Any, k: Any, v: Any) -> Any:
    mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    return jax.grad(lambda p: jnp.sum(attention(*p, mask) ** 2))((q, k, v))


def cross(x: Any, y: Any, wq: Any, wk: Any, wv: Any) -> Any:
    return jax.nn.softmax((x @ wq) @ jnp.swapaxes(y @ wk, 1, 2), -1) @ (y @ wv)


# ---------------------------------------------------------------- experts, norms, losses


def capacity(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """The best expert a token, in a queue of each, and the mean load for a loss."""
    p = jax.nn.softmax(x @ gate, -1)
    hot = jax.nn.one_hot(jnp.argmax(p, -1), gate.shape[1])
    place = ((jnp.cumsum(hot, 0) - 1) * hot).astype(jnp.int32).sum(-1)
    sent = hot[:, :, None] * jax.nn.one_hot(place, 4)[:, None]
    h = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", jnp.einsum("tec,td->ecd", sent, x), up))
    y = jnp.einsum("tec,ecd->td", sent * p[:, :, None], jnp.einsum("ecf,efd->ecd", h, down))
    return y, (hot.mean(0) * p.mean(0)).sum() * gate.shape[1]


def choice(x: Any, gate: Any, up: Any) -> Any:
    """Experts choose their tokens."""
    scores, chosen = lax.top_k((x @ gate).T, 4)
    h = jnp.tanh(jnp.einsum("ecd,edf->ecf", x[chosen], up)) * scores[..., None]
    return jnp.zeros((x.shape[0], up.shape[2])).at[chosen].add(h)


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


def layer_norm_gradient(x: Any, g: Any, b: Any) -> Any:
    return jax.grad(lambda p: jnp.sum(layer_norm(*p) ** 3))((x, g, b))


def group_norm(x: Any, g: Any) -> Any:
    n, h, w, c = x.shape
    y = x.reshape(n, h, w, 4, c // 4)
    m, v = y.mean((1, 2, 4), keepdims=True), y.var((1, 2, 4), keepdims=True)
    return ((y - m) * lax.rsqrt(v + 1e-5)).reshape(x.shape) * g


def group_norm_gradient(x: Any, g: Any) -> Any:
    return jax.grad(lambda p: jnp.sum(group_norm(*p) ** 3))((x, g))


def batch_norm_gradient(x: Any, g: Any) -> Any:
    def f(p: Any) -> Any:
        y = p[0]
        return jnp.sum(((y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * p[1]) ** 3)

    return jax.grad(f)((x, g))


def instance_norm(x: Any) -> Any:
    return (x - x.mean((1, 2), keepdims=True)) * lax.rsqrt(x.var((1, 2), keepdims=True) + 1e-5)


def weight_norm(x: Any, w: Any) -> Any:
    return x @ (w / jnp.linalg.norm(w, axis=0))


def smoothed(x: Any, w: Any, y: Any) -> Any:
    """Cross-entropy with smoothed labels, its gradient and how many are right."""
    def loss(w: Any) -> Any:
        z = x @ w
        log = z - jax.nn.logsumexp(z, -1, keepdims=True)
        hot = 0.9 * jax.nn.one_hot(y, w.shape[1]) + 0.1 / w.shape[1]
        return -jnp.mean((hot * log).sum(-1)), jnp.sum(jnp.argmax(z, -1) == y)

    return jax.value_and_grad(loss, has_aux=True)(w)


def contrastive(a: Any, b: Any) -> Any:
    """Pairs of a batch against all other pairs, both ways (CLIP)."""
    a, b = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    z = a @ b.T * 10
    return -(jnp.trace(jax.nn.log_softmax(z, 0)) + jnp.trace(jax.nn.log_softmax(z, 1))) / (2 * len(a))


def contrastive_gradient(a: Any, b: Any) -> Any:
    return jax.grad(contrastive, (0, 1))(a, b)


def distilled(x: Any, w: Any, t: Any) -> Any:
    p, q = jax.nn.log_softmax(x @ w / 2), jax.nn.softmax(t / 2)
    return jnp.sum(q * (jnp.log(q) - p), -1).mean()


def bag(t: Any, i: Any, y: Any) -> Any:
    """Rows of a table summed for each example, and the table's gradient."""
    return jax.value_and_grad(lambda t: jnp.mean((t[i].sum(1) - y) ** 2))(t)


def positions(t: Any, p: Any, i: Any) -> Any:
    return t[i] + p[: i.shape[1]]


# ---------------------------------------------------------------- recurrence


def gru(x: Any, w: Any, u: Any) -> Any:
    def step(h: Any, now: Any) -> Any:
        z, r, n = jnp.split(now @ w, 3, -1)
        a, b, c = jnp.split(h @ u, 3, -1)
        z, r = jax.nn.sigmoid(z + a), jax.nn.sigmoid(r + b)
        h = (1 - z) * jnp.tanh(n + r * c) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], u.shape[0])), x)[1]


def gru_gradient(x: Any, w: Any, u: Any) -> Any:
    return jax.grad(lambda p: jnp.mean(gru(x, *p) ** 2))((w, u))


def state_space(a: Any, b: Any, c: Any, x: Any) -> Any:
    def step(h: Any, now: Any) -> Any:
        h = a * h + b * now[:, :, None]
        return h, (h * c).sum(-1)

    return lax.scan(step, jnp.zeros((x.shape[1], x.shape[2], a.shape[1])), x)[1]


def gated(x: Any, f: Any) -> Any:
    """Exponential means by a scan from the end."""
    return lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (f, x), axis=0, reverse=True)[1]


def both_ways(x: Any, w: Any) -> Any:
    def run(x: Any, reverse: bool) -> Any:
        step = lambda h, a: ((h2 := jnp.tanh(a + h @ w)), h2)  # noqa: E731
        return lax.scan(step, jnp.zeros(x.shape[1:]), x, reverse=reverse)[1]

    return jnp.concatenate([run(x, False), run(x, True)], -1)
def kinds() -> Iterator[Program]:
    devices = np.array(jax.devices())

    def mesh(*sizes: int) -> Mesh:
        return Mesh(devices[: int(np.prod(sizes))].reshape(sizes), ("x", "y", "z")[: len(sizes)])

    def numbers(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.int32)

    d4, d8, d22, d42, d222 = mesh(4), mesh(8), mesh(2, 2), mesh(4, 2), mesh(2, 2, 2)
    rows, columns, both, line, image = P("x", None), P(None, "x"), P("x", "y"), P("x"), P(None, "x")
    pixels, channels, planes = P(None, "x", "y"), P(None, None, None, "x"), P(None, None, "x", "y")
    heads, heads2, sequence = P(None, None, "x"), P("x", None, "y"), P(None, "x")
    qkv = ((2, 16, 4, 8),) * 3
    grouped_shapes = ((2, 16, 8, 4), (2, 16, 4, 4), (2, 16, 4, 4))
    yield from (
        ("separable, rows", separable, d4, (image, P(), P()), image, ((2, 16, 8, 4), (3, 3, 1, 4), (1, 1, 4, 6))),
        ("separable, pixels", separable, d42, (pixels, P(), P()), pixels, ((2, 16, 8, 4), (5, 5, 1, 4), (1, 1, 4, 6))),
        ("separable, channels", separable, d4, (channels, channels, P(None, None, "x")), P(), ((2, 8, 8, 4), (3, 3, 1, 4), (1, 1, 4, 6))),
        ("separable, gradient", separable_gradient, d4, (image, P(), P()), (P(), P()), ((2, 16, 8, 4), (3, 3, 1, 4), (1, 1, 4, 6))),
        ("separable, batch, gradient", separable_gradient, d4, (line, P(), P()), (P(), P()), ((4, 8, 8, 4), (3, 3, 1, 4), (1, 1, 4, 6))),
        ("strides of two, NCHW, planes", lambda x, w: conv_nchw(x, w, (2, 2)), d22, (planes, P()), planes, ((2, 3, 16, 16), (4, 3, 3, 3))),
        ("stem of a residual network", lambda x, w: conv(x, w, (2, 2), ((3, 3), (3, 3))), d4, (image, P()), image, ((1, 32, 16, 3), (7, 7, 3, 4))),
        ("dilated by three, pixels", lambda x, w: conv(x, w, rhs_dilation=(3, 3)), d22, (pixels, P()), pixels, ((1, 16, 16, 3), (3, 3, 3, 4))),
        ("groups, features in parts", lambda x, w: conv(x, w, feature_group_count=4), d4, (channels, channels), channels, ((2, 8, 8, 8), (3, 3, 2, 8))),
        ("groups of two on four", lambda x, w: conv(x, w, feature_group_count=2), d4, (channels, channels), channels, ((2, 8, 8, 8), (3, 3, 4, 8))),
        ("volume, three axes", volume, d222, (P(None, "x", "y", "z"), P()), P(None, "x", "y", "z"), ((1, 8, 8, 8, 2), (3, 3, 3, 2, 3))),
        ("causal line, dilated", causal_line, d8, (sequence, P()), sequence, ((2, 64, 3), (3, 3, 4))),
        ("squeezed, rows", squeezed, d4, (image, P(), P()), image, ((2, 16, 8, 8), (8, 2), (2, 8))),
        ("squeezed, channels", squeezed, d4, (channels, P("x"), columns), channels, ((2, 8, 8, 8), (8, 2), (2, 8))),
        ("average of three by three in steps", average, d4, (image,), image, ((2, 32, 8, 3),)),
        ("patches, rows", patches, d4, (image, P()), sequence, ((2, 16, 16, 3), (48, 8))),
        ("patches, pixels", patches, d22, (pixels, P()), P(None, ("x", "y")), ((2, 16, 16, 3), (48, 8))),
        ("pixels of channels", shuffled, d4, (image,), image, ((2, 8, 8, 8),)),
        ("pixels of channels, columns", shuffled, d4, (P(None, None, "x"),), P(None, None, "x"), ((2, 8, 8, 8),)),
        ("pyramid", pyramid, d22, (pixels,), (pixels, pixels), ((2, 16, 16, 3),)),
        ("upwind", upwind, d8, (rows, rows), rows, ((64, 4),) * 2),
        ("fourth order, reflected", fourth_order, d4, (rows,), rows, ((32, 4),)),
        ("line of ten steps", line_stencil, d8, (line,), line, ((64,),)),
        ("staggered", staggered, d42, (both,) * 3, (both,) * 3, ((16, 8),) * 3),
        ("red and black", red_black, d22, (both,) * 2, both, ((16, 16),) * 2),
        ("Sobel", sobel, d42, (both,), both, ((16, 16),)),
        ("sliding window, sequence", sliding, d4, (sequence,) * 3, sequence, qkv),
        ("sliding window, heads", sliding, d4, (heads,) * 3, heads, qkv),
        ("grouped, heads", grouped, d4, (heads,) * 3, heads, grouped_shapes),
        ("grouped, batch and heads", grouped, d22, (heads2,) * 3, heads2, grouped_shapes),
        ("grouped, queries' sequence", grouped, d4, (sequence, P(), P()), sequence, grouped_shapes),
        ("multi-query", multi_query, d4, (P(), columns, P(), P(), line), P(), ((2, 16, 16), (16, 32), (16, 8), (16, 8), (32, 16))),
        ("multi-query, sequence", multi_query, d4, (sequence, *[P()] * 4), sequence, ((2, 16, 16), (16, 32), (16, 8), (16, 8), (32, 16))),
        ("slopes, heads", biased, d22, (heads2,) * 3, heads2, qkv),
        ("slopes, sequence", biased, d4, (sequence,) * 3, sequence, qkv),
        ("linear attention, sequence", linear_attention, d4, (sequence,) * 3, sequence, ((2, 32, 8),) * 3),
        ("linear attention, width", linear_attention, d4, (heads,) * 3, heads, ((2, 32, 8),) * 3),
        ("attention, sequence, gradient", attention_gradient, d4, (sequence,) * 3, (sequence,) * 3, qkv),
        ("attention, heads, gradient", attention_gradient, d4, (heads,) * 3, (heads,) * 3, qkv),
        ("cross attention", cross, d22, (line, line, *[P(None, "y")] * 3), P("x", None, "y"), ((2, 8, 16), (2, 12, 16), *[(16, 8)] * 3)),
        ("capacity", capacity, d4, (line, P(), line, line), (line, P()), ((32, 8), (8, 4), (4, 8, 16), (4, 16, 8))),
        ("capacity, data and experts", capacity, d22, (line, P(), P("y"), P("y")), (line, P()), ((32, 8), (8, 4), (4, 8, 16), (4, 16, 8))),
        ("experts choose", choice, d4, (line, P(), line), line, ((32, 8), (8, 4), (4, 8, 16))),
        ("layer norm, gradient, rows", layer_norm_gradient, d4, (line, P(), P()), (line, P(), P()), ((16, 8), (8,), (8,))),
        ("layer norm, gradient, both", layer_norm_gradient, d22, (both, P("y"), P("y")), (both, P("y"), P("y")), ((16, 8), (8,), (8,))),
        ("group norm, rows", group_norm, d4, (image, P()), image, ((2, 16, 8, 8), (8,))),
        ("group norm, channels", group_norm, d4, (channels, line), channels, ((2, 8, 8, 8), (8,))),
        ("group norm on eight, channels", group_norm, d8, (channels, line), channels, ((2, 8, 8, 8), (8,))),
        ("group norm, gradient", group_norm_gradient, d22, (P("x", "y"), P()), (P("x", "y"), P()), ((4, 8, 8, 8), (8,))),
        ("batch norm, gradient", batch_norm_gradient, d4, (line, P()), (line, P()), ((8, 4, 4, 6), (6,))),
        ("instance norm", instance_norm, d22, (pixels,), pixels, ((2, 8, 8, 3),)),
        ("weight norm", weight_norm, d4, (P(), rows), P(), ((8, 16), (16, 12))),
        ("smoothed labels, vocabulary", smoothed, d4, (P(), columns, P()), ((P(), P()), columns), ((8, 16), (16, 12), numbers(8))),
        ("smoothed labels, both", smoothed, d42, (line, P(None, "y"), line), ((P(), P()), P(None, "y")), ((8, 16), (16, 12), numbers(8))),
        ("contrastive", contrastive, d4, (rows, rows), P(), ((16, 8),) * 2),
        ("contrastive, gradient", contrastive_gradient, d4, (rows, rows), (rows, rows), ((16, 8),) * 2),
        ("distilled, vocabulary", distilled, d4, (P(), columns, columns), P(), ((8, 16), (16, 12), (8, 12))),
        ("bag, rows", bag, d4, (rows, P(), P()), (P(), rows), ((64, 4), numbers(8, 3), (8, 4))),
        ("bag, batch", bag, d4, (P(), line, line), (P(), P()), ((16, 4), numbers(8, 3), (8, 4))),
        ("bag, columns and batch", bag, d22, (P(None, "y"), line, both), (P(), P(None, "y")), ((16, 4), numbers(8, 3), (8, 4))),
        ("positions, sequence", positions, d4, (P(), P(), sequence), sequence, ((12, 8), (32, 8), numbers(2, 16))),
        ("gated unit, batch", gru, d4, (image, P(), P()), image, ((5, 8, 6), (6, 24), (8, 24))),
        ("gated unit, hidden", gru, d4, (P(), columns, columns), heads, ((5, 8, 6), (6, 24), (8, 24))),
        ("gated unit, batch, gradient", gru_gradient, d4, (image, P(), P()), (P(), P()), ((5, 8, 6), (6, 24), (8, 24))),
        ("gated unit, hidden, gradient", gru_gradient, d22, (image, P(None, "y"), P(None, "y")), (P(None, "y"),) * 2, ((5, 8, 6), (6, 24), (8, 24))),
        ("state space, channels", state_space, d4, (line, line, line, heads), heads, ((8, 4), (8, 4), (8, 4), (6, 2, 8))),
        ("gated scan from the end", gated, d4, (rows, rows), rows, ((16, 4),) * 2),
        ("both ways", both_ways, d4, (image, P()), image, ((6, 8, 4), (4, 4))),
    )  # fmt: skip
