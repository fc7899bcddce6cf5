"""Programs of flax, optax, equinox and diffrax as people write them, for `benchmarks.jax_programs`; none names a platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Made = tuple[Any, ...]
PROGRAMS: dict[str, Callable[[], Made]] = {}
NOISE = 1e-2  # optimisers divide by the square root of what may be nothing but rounding


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    PROGRAMS[make.__name__] = make
    return make


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def training(model: Any, optimiser: Any, x: Any, loss: Callable[[Any], Any]) -> Made:
    """One step of a flax model: its parameters and the optimiser's state are donated."""
    import optax

    parameters = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, x)

    def step(parameters: Any, state: Any, key: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(lambda p: loss(model.apply(p, x, rngs={"dropout": key})))(parameters)
        updates, state = optimiser.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return step, (parameters, optimiser.init(parameters), jax.random.key(2), x), {"donate_argnums": (0, 1)}, NOISE


def cross_entropy(logits: Any) -> Any:
    import optax

    labels = jnp.arange(logits.shape[0]) % logits.shape[-1]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@program
def residual_network_step() -> Made:
    import flax.linen as nn
    import optax

    class Net(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(16, (3, 3))(x))
            for features, stride in ((16, 1), (32, 2)):
                y = nn.relu(nn.GroupNorm(4)(nn.Conv(features, (3, 3), (stride, stride))(x)))
                y = nn.GroupNorm(4)(nn.Conv(features, (3, 3))(y))
                x = nn.relu(y + (x if x.shape == y.shape else nn.Conv(features, (1, 1), (stride, stride))(x)))
            return nn.Dense(10)(x.mean((1, 2)))

    return training(Net(), optax.sgd(0.1, momentum=0.9, nesterov=True), normal(0, 8, 32, 32, 3), cross_entropy)


@program
def vision_transformer_step() -> Made:
    import flax.linen as nn
    import optax

    class Net(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(64, (4, 4), (4, 4))(x).reshape(x.shape[0], -1, 64)
            x = x + self.param("position", nn.initializers.normal(0.02), (1, x.shape[1], 64))
            for _ in range(2):
                y = nn.LayerNorm()(x)
                x = x + nn.Dropout(0.1, deterministic=False)(nn.MultiHeadDotProductAttention(4, use_bias=False)(y, y))
                x = x + nn.Dense(64)(nn.gelu(nn.Dense(128)(nn.LayerNorm()(x))))
            return nn.Dense(10)(x.mean(1))

    return training(Net(), optax.sgd(0.1), normal(1, 8, 32, 32, 3), cross_entropy)


@program
def recurrent_step() -> Made:
    import flax.linen as nn
    import optax

    class Net(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            return nn.Dense(10)(nn.RNN(nn.OptimizedLSTMCell(64))(x)[:, -1])

    return training(Net(), optax.rmsprop(1e-3), normal(2, 16, 40, 16), cross_entropy)


@program
def variational_autoencoder_step() -> Made:
    import flax.linen as nn
    import optax

    class Net(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            mean, spread = jnp.split(nn.Dense(32)(nn.relu(nn.Dense(128)(x))), 2, -1)
            z = mean + jnp.exp(spread / 2) * jax.random.normal(self.make_rng("dropout"), mean.shape)
            again = nn.Dense(x.shape[-1])(nn.relu(nn.Dense(128)(z)))
            return ((again - x) ** 2).sum(-1).mean() + 0.5 * (mean**2 + jnp.exp(spread) - spread - 1).sum(-1).mean()

    return training(Net(), optax.sgd(1e-4), normal(3, 64, 196), lambda loss: loss)


@program
def mixture_of_experts() -> Made:
    def layer(x: Any, gate: Any, first: Any, second: Any) -> Any:
        weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
        order = jnp.argsort(chosen.ravel())
        sizes = jnp.bincount(chosen.ravel(), length=gate.shape[1]).astype(jnp.int32)
        hidden = jax.nn.silu(lax.ragged_dot(x[order // 2], first, sizes))
        found = jnp.zeros((2 * len(x), x.shape[1])).at[order].set(lax.ragged_dot(hidden, second, sizes))
        return (found.reshape(len(x), 2, -1) * weights[..., None]).sum(1)

    return layer, (normal(4, 128, 64), normal(5, 64, 8), normal(6, 8, 64, 96), normal(7, 8, 96, 64))


@program
def cached_decoding() -> Made:
    """Thirty-two tokens of one attention layer with a cache of keys and values, drawn by the Gumbel trick."""
    width, heads, words, length = 64, 4, 300, 32

    def decode(key: Any, table: Any, into: Any, out: Any) -> Any:
        def next_token(state: Any, given: Any) -> Any:
            token, keys, values = state
            position, key = given
            q, k, v = (table[token] @ into).reshape(3, heads, width // heads)
            keys, values = (lax.dynamic_update_slice(c, n[None], (position, 0, 0)) for c, n in ((keys, k), (values, v)))
            scores = jnp.einsum("hd,lhd->hl", q, keys) / 4
            weights = jax.nn.softmax(jnp.where(jnp.arange(length) <= position, scores, -jnp.inf))
            logits = (jnp.einsum("hl,lhd->hd", weights, values).ravel() @ out) @ table.T
            token = jnp.argmax(logits + jax.random.gumbel(key, (words,)))
            return (token, keys, values), token

        cache = jnp.zeros((length, heads, width // heads))
        return lax.scan(next_token, (jnp.int32(1), cache, cache), (jnp.arange(length), jax.random.split(key, length)))[1]

    return decode, (jax.random.key(3), normal(8, words, width), normal(9, width, 3 * width) / 8, normal(10, width, width) / 8)


@program
def minimised_by_lbfgs() -> Made:
    import optax

    def rosenbrock(x: Any) -> Any:
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def run(x: Any) -> Any:
        optimiser = optax.lbfgs()
        value_and_grad = optax.value_and_grad_from_state(rosenbrock)

        def step(_: Any, carry: Any) -> Any:
            x, state = carry
            value, gradient = value_and_grad(x, state=state)
            updates, state = optimiser.update(gradient, state, x, value=value, grad=gradient, value_fn=rosenbrock)
            return optax.apply_updates(x, updates), state

        return lax.fori_loop(0, 60, step, (x, optimiser.init(x)))[0]

    return run, (jnp.zeros(8),), {}, NOISE


@program
def neural_ode_gradient() -> Made:
    import diffrax
    import equinox as eqx

    net = eqx.nn.MLP(2, 2, 32, 2, activation=jnp.tanh, key=jax.random.key(4))
    weights, rest = eqx.partition(net, eqx.is_array)

    def loss(weights: Any, start: Any, times: Any, goal: Any) -> Any:
        field = diffrax.ODETerm(lambda t, y, f: f(y))
        found = diffrax.diffeqsolve(
            field,
            diffrax.Tsit5(),
            0.0,
            1.0,
            0.1,
            start,
            eqx.combine(weights, rest),
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
        )
        return jnp.mean((found.ys - goal) ** 2)

    return jax.value_and_grad(loss), (weights, jnp.ones(2), jnp.linspace(0, 1, 10), normal(11, 10, 2)), {}, NOISE


@program
def hamiltonian_sampler() -> Made:
    """Fifty steps of Hamiltonian Monte Carlo on a logistic regression, four chains."""

    def chain(key: Any, start: Any, x: Any, labels: Any) -> Any:
        def density(w: Any) -> Any:
            return -jnp.sum(jax.nn.softplus(-labels * (x @ w))) - 0.5 * jnp.sum(w**2)

        slope = jax.grad(density)

        def sample(w: Any, key: Any) -> Any:
            momentum_key, accept_key = jax.random.split(key)
            p = jax.random.normal(momentum_key, w.shape)

            def leap(_: Any, state: Any) -> Any:
                w, p = state
                p = p + 0.02 * slope(w)
                w = w + 0.04 * p
                return w, p + 0.02 * slope(w)

            new, q = lax.fori_loop(0, 8, leap, (w, p))
            ratio = density(new) - density(w) + 0.5 * (jnp.sum(p**2) - jnp.sum(q**2))
            w = jnp.where(jnp.log(jax.random.uniform(accept_key)) < ratio, new, w)
            return w, w

        return lax.scan(sample, start, jax.random.split(key, 50))[1].mean(0)

    labels = jnp.where(jnp.arange(100) % 2 == 0, 1.0, -1.0)
    run = jax.vmap(chain, (0, 0, None, None))
    return run, (jax.random.split(jax.random.key(5), 4), normal(12, 4, 8), normal(13, 100, 8), labels), {}, NOISE


@program
def kalman_smoother() -> Made:
    def smooth(f: Any, h: Any, q: Any, r: Any, observed: Any) -> Any:
        def forward(state: Any, z: Any) -> Any:
            mean, cov = f @ state[0], f @ state[1] @ f.T + q
            gain = jnp.linalg.solve(h @ cov @ h.T + r, h @ cov).T
            found = mean + gain @ (z - h @ mean), cov - gain @ h @ cov
            return found, (*found, mean, cov)

        def backward(after: Any, step: Any) -> Any:
            mean, cov, _, _ = step[0]
            gain = jnp.linalg.solve(step[1][1], f @ cov).T
            found = mean + gain @ (after[0] - step[1][0]), cov + gain @ (after[1] - step[1][1]) @ gain.T
            return found, found

        last, (means, covs, predicted, spreads) = lax.scan(forward, (jnp.zeros(4), jnp.eye(4)), observed)
        steps = ((means[:-1], covs[:-1], predicted[:-1], spreads[:-1]), (predicted[1:], spreads[1:]))
        return lax.scan(backward, last, steps, reverse=True)[1]

    turn = 0.95 * jnp.eye(4) + 0.1 * jnp.triu(jnp.ones((4, 4)), 1)
    return smooth, (turn, jnp.eye(2, 4), 0.1 * jnp.eye(4), 0.5 * jnp.eye(2), normal(14, 60, 2)), {}, NOISE
