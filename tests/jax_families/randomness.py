"""jax.random: every distribution, three implementations, keys that are split, folded, stored, mapped and carried.

Bits, integers and permutations are equal; numbers made of them by functions agree within rounding.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from tests.jax_families.common import Table

PROGRAMS = Table()
add = PROGRAMS.add
KEY, RBG = np.array([7, 9], np.uint32), np.array([7, 9, 1, 3], np.uint32)


def _with_key(f: Any) -> Any:
    """f of a typed key, made of its bits: two are threefry's, four rbg's."""
    return lambda bits, *rest: f(random.wrap_key_data(bits, impl="threefry2x32" if bits.shape[-1] == 2 else "rbg"), *rest)


_DISTRIBUTIONS: dict[str, tuple[Any, bool]] = {
    "ball": (lambda k: random.ball(k, 3, shape=(4,)), True),
    "bernoulli": (lambda k: (random.bernoulli(k, 0.3, (9,)), random.bernoulli(k, jnp.array([0.1, 0.9]))), False),
    "beta": (lambda k: random.beta(k, 2.0, 3.0, (4,)), True),
    "binomial": (lambda k: random.binomial(k, 10, 0.3, (4,)), True),
    "bits": (lambda k: [random.bits(k, (5, 3), t) for t in (jnp.uint8, jnp.uint16, jnp.uint32)], False),
    "categorical": (
        lambda k: (
            random.categorical(k, jnp.array([0.1, 2.0, -1.0]), shape=(9,)),
            random.categorical(k, jnp.zeros((3, 4)), axis=0),
            random.categorical(k, jnp.zeros(9), shape=(3,), replace=False),
        ),
        True,
    ),
    "cauchy": (lambda k: random.cauchy(k, (5,)), False),
    "chisquare": (lambda k: random.chisquare(k, 3.0, shape=(4,)), True),
    "choice": (
        lambda k: (
            random.choice(k, 9, (4,)),
            random.choice(k, jnp.arange(12.0).reshape(6, 2), (3,), replace=False),
            random.choice(k, 5, (7,), p=jnp.array([0.1, 0.2, 0.3, 0.2, 0.2])),
            random.choice(k, 5, (3,), False, jnp.array([0.1, 0.2, 0.3, 0.2, 0.2])),
        ),
        True,
    ),
    "dirichlet": (lambda k: random.dirichlet(k, jnp.array([1.0, 2.0, 3.0]), (2,)), True),
    "double_sided_maxwell": (lambda k: random.double_sided_maxwell(k, 0.0, 1.0, (4,)), True),
    "exponential": (lambda k: random.exponential(k, (5,)), False),
    "f": (lambda k: random.f(k, 3.0, 4.0, (3,)), True),
    "gamma": (lambda k: random.gamma(k, jnp.array([0.5, 1.0, 4.0])), True),
    "generalized_normal": (lambda k: random.generalized_normal(k, 1.5, (3,)), True),
    "geometric": (lambda k: random.geometric(k, 0.3, (5,)), False),
    "gumbel": (lambda k: (random.gumbel(k, (5,)), random.gumbel(k, (5,), mode="high")), False),
    "laplace": (lambda k: random.laplace(k, (5,)), False),
    "loggamma": (lambda k: random.loggamma(k, 0.2, (4,)), True),
    "logistic": (lambda k: random.logistic(k, (5,)), False),
    "lognormal": (lambda k: random.lognormal(k, 0.5, (5,)), False),
    "maxwell": (lambda k: random.maxwell(k, (5,)), True),
    "multinomial": (lambda k: random.multinomial(k, 10, jnp.array([0.2, 0.3, 0.5])), True),
    "multivariate_normal": (
        lambda k: (
            random.multivariate_normal(k, jnp.zeros(3), jnp.eye(3) + 0.2),
            random.multivariate_normal(k, jnp.zeros(3), jnp.eye(3) + 0.2, (2,), method="svd"),
        ),
        True,
    ),
    "normal": (lambda k: [random.normal(k, (5, 3), t) for t in (jnp.float32, jnp.complex64)], False),
    "orthogonal": (lambda k: jnp.abs(random.orthogonal(k, 3)), True),
    "pareto": (lambda k: random.pareto(k, 2.0, (4,)), False),
    "permutation": (
        lambda k: (
            random.permutation(k, 11),
            random.permutation(k, jnp.arange(12.0).reshape(3, 4), axis=1),
            random.permutation(k, jnp.arange(12).reshape(3, 4), axis=1, independent=True),
        ),
        False,
    ),
    "poisson": (lambda k: (random.poisson(k, 3.0, (5,)), random.poisson(k, jnp.array([0.5, 30.0]))), True),
    "rademacher": (lambda k: random.rademacher(k, (9,)), False),
    "randint": (
        lambda k: [
            random.randint(k, (9,), 0, 10),
            random.randint(k, (9,), -128, 127, jnp.int8),
            random.randint(k, (5,), jnp.array([0, -5, 3, 7, 7]), 9),
            random.randint(k, (4,), 0, 2**31 - 1),
            random.randint(k, (4,), 0, 200, jnp.uint8),
        ],
        False,
    ),
    "rayleigh": (lambda k: random.rayleigh(k, 2.0, (4,)), False),
    "t": (lambda k: random.t(k, 3.0, (3,)), True),
    "triangular": (lambda k: random.triangular(k, 0.0, 0.3, 1.0, (5,)), False),
    "truncated_normal": (
        lambda k: (random.truncated_normal(k, -1.0, 2.0, (5,)), random.truncated_normal(k, -2, 2, (5,), jnp.bfloat16)),
        False,
    ),
    "uniform": (
        lambda k: [random.uniform(k, (7,), t, minval=-2.0, maxval=3.0) for t in (jnp.float32, jnp.bfloat16, jnp.float16)],
        False,
    ),
    "wald": (lambda k: random.wald(k, 2.0, (4,)), True),
    "weibull_min": (lambda k: random.weibull_min(k, 2.0, 1.5, (4,)), False),
}
for _name, (_f, _slow) in _DISTRIBUTIONS.items():
    add(f"random.{_name}", _with_key(_f), KEY, bound=2e-4, slow=_slow)
for _name in ("bits", "normal", "randint", "permutation", "choice", "gamma", "categorical", "truncated_normal"):
    add(f"rbg {_name}", _with_key(_DISTRIBUTIONS[_name][0]), RBG, bound=2e-4, slow=_name in ("gamma", "choice", "permutation"))
for _name in ("normal", "uniform", "exponential"):
    add(f"random.{_name} of 64 bits", _with_key(lambda k, f=getattr(random, _name): f(k, (5,), jnp.float64)), KEY, x64=True)
add(
    "random integers of 64 bits",
    _with_key(lambda k: (random.randint(k, (5,), -(2**60), 2**60), random.bits(k, (3,), jnp.uint64), random.permutation(k, 9))),
    KEY,
    x64=True,
)

_KEYS: dict[str, Any] = {
    "split": lambda k: (random.split(k), random.split(k, 5), random.split(k, (2, 3)), random.key_data(random.split(k, 3))),
    "fold_in": lambda k: (
        random.fold_in(k, 7),
        jax.vmap(lambda n: random.fold_in(k, n))(jnp.arange(4)),
        random.key_data(random.fold_in(k, 2**31 - 1)),
    ),
    "in vmap": lambda k: jax.vmap(lambda k: random.normal(k, (3,)))(random.split(k, 4)),
    "in vmap of split": lambda k: jax.vmap(lambda k: random.uniform(random.split(k)[1], (2,)))(random.split(k, 3)),
    "in scan": lambda k: lax.scan(lambda k, _: (lambda a, b: (a, random.uniform(b, (3,))))(*random.split(k)), k, None, length=4),
    "in fori_loop": lambda k: lax.fori_loop(
        0, 3, lambda i, c: (random.fold_in(c[0], i), c[1] + random.normal(c[0], (4,))), (k, jnp.zeros(4))
    ),
    "in cond": lambda k: lax.cond(random.bernoulli(k), lambda k: random.normal(k, (3,)), lambda k: random.uniform(k, (3,)), k),
    "in while_loop": lambda k: lax.while_loop(
        lambda s: s[1] > 0.2, lambda s: (random.split(s[0])[0], random.uniform(s[0])), (k, jnp.float32(1))
    ),
    "indexed": lambda k: (
        random.split(k, 4)[2],
        random.split(k, 4)[1:3].reshape(2, 1),
        jnp.stack([k, k]),
        jnp.concatenate([random.split(k), random.split(k)]),
    ),
    "compared and cloned": lambda k: (
        random.split(k) == k,
        random.clone(k),
        jnp.where(jnp.array([True, False]), random.split(k), k),
    ),
    "scanned over": lambda k: lax.map(lambda k: random.normal(k), random.split(k, 5)),
    "dropout": lambda k: jnp.where(random.bernoulli(k, 0.7, (4, 5)), jnp.ones((4, 5)) / 0.7, 0),
    "gumbel softmax gradient": lambda k: jax.grad(lambda x: jnp.sum(jax.nn.softmax(x + random.gumbel(k, (5,))) ** 2))(
        jnp.arange(5.0)
    ),
    "reparameterised gradient": lambda k: jax.grad(lambda m, s: jnp.sum((m + s * random.normal(k, (6,))) ** 2), argnums=(0, 1))(
        1.0, 2.0
    ),
    "gradient of gamma": lambda k: jax.grad(lambda a: jnp.sum(random.gamma(k, a, (3,))))(2.0),
    "checkpointed": lambda k: jax.grad(
        lambda x: jnp.sum(jax.checkpoint(lambda x: jnp.sin(x) * random.bernoulli(k, 0.5, (4,)))(x))
    )(jnp.ones(4)),
    "antithetic": lambda k: (lambda u: (u, 1 - u, jnp.sort(u)))(random.uniform(k, (6,))),
    "large": lambda k: (random.normal(k, (100, 33)).mean(0), random.bits(k, (3, 1001)).max(1)),
    "empty": lambda k: (
        random.normal(k, (0, 3)),
        random.randint(k, (0,), 0, 5),
        random.split(k, 0) if False else random.uniform(k, ()),
    ),
}
for _name, _f in _KEYS.items():
    _slow = _name in ("gradient of gamma", "large", "gumbel softmax gradient")
    add(f"keys {_name}", _with_key(_f), KEY, bound=1e-4, slow=_slow)
    if _name not in ("in vmap", "in vmap of split", "scanned over", "gradient of gamma"):
        add(f"rbg keys {_name}", _with_key(_f), RBG, bound=1e-4, slow=True)
# Numbers near the ends, where the inverse error function is steep, depend on whether the uniform ones before are rounded.
for _bits in (KEY, RBG):
    _name = f"random.normal of 16 bits, keys of {_bits.size} words"
    add(_name, _with_key(lambda k: [random.normal(k, (5, 3), t) for t in (jnp.bfloat16, jnp.float16)]), _bits, bound=5e-2)
add(
    "keys of old style",
    lambda k: (
        random.split(k, 3),
        random.normal(k, (2,)),
        random.fold_in(k, 3),
        jax.vmap(random.uniform)(random.split(k, 3)),
        random.PRNGKey(5),
    ),
    KEY,
)
add(
    "keys made inside",
    lambda s: (
        random.key(s),
        random.key(3, impl="rbg"),
        random.PRNGKey(s),
        random.normal(random.key(s), (3,)),
        random.key_data(random.key(s, impl="unsafe_rbg")),
    ),
    np.int32(17),
)
add(
    "unsafe_rbg",
    lambda b: (lambda k: (random.split(k, 3), random.fold_in(k, 4), random.normal(k, (5,)), random.bits(k, (5,), jnp.uint8)))(
        random.wrap_key_data(b, impl="unsafe_rbg")
    ),
    RBG,
    bound=1e-4,
)
add("rbg in vmap", lambda b: jax.vmap(lambda k: random.bits(k, (3,)))(random.split(random.wrap_key_data(b, impl="rbg"), 4)), RBG)
add("keys of a 64-bit seed", lambda s: (random.key(s), random.PRNGKey(-1), random.key(2**40 + 3)), np.int64(2**35 + 5), x64=True)
add("an array of keys as an argument", lambda k: (jax.vmap(random.normal)(k), k[1], k.shape), random.split(random.key(0), 3))
