"""Programs that draw, choose and stream: random numbers inside loops, the best of many, values that neighbours pass on.

Their time is in what is neither a product nor a pass over memory: generators, comparisons, parts side by side.
"""

from __future__ import annotations

from typing import Any

from benchmarks.tables import Given

__all__ = ["draws"]

KEY = Given((2,), "uint32", low=0, high=1 << 31)


def draws() -> dict[str, tuple[Any, ...]]:
    """The cases by name: a function, and its arguments."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    def classes(key: Any, logits: Any) -> Any:
        """Classes drawn in each turn of a loop, as negative samples are."""

        def step(_: Any, k: Any) -> Any:
            return None, jax.random.categorical(k, logits, shape=(64, 8))

        return lax.scan(step, None, jax.random.split(jax.random.wrap_key_data(key), 4))[1]

    def greatest(key: Any) -> Any:
        return jnp.argmax(jax.random.uniform(jax.random.wrap_key_data(key), (512, 10_000)), -1)

    directions = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    across = jnp.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
    weights = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)[:, None, None]
    velocity = np.array(directions, np.float32)

    def lattice_boltzmann(f: Any, solid: Any) -> Any:
        def step(_: Any, f: Any) -> Any:
            f = jnp.stack([jnp.roll(f[k], d, (0, 1)) for k, d in enumerate(directions)])
            density = f.sum(0)
            flow = jnp.einsum("ixy,id->dxy", f, velocity) / density
            along = jnp.einsum("id,dxy->ixy", velocity, flow)
            rest = weights * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * (flow**2).sum(0))
            return jnp.where(solid > 0, f[across], f - (f - rest) / 0.6)

        return lax.fori_loop(0, 10, step, f)

    def beams(h: Any, w: Any, scores: Any) -> Any:
        """The best continuations of some beams: each beam's log probabilities, and a choice among all of them."""
        logs = jax.nn.log_softmax(h @ w) + scores[:, None]
        values, at = lax.top_k(logs.reshape(-1), scores.shape[0])
        return values, at // w.shape[1], at % w.shape[1]

    def boxes(x: Any) -> Any:
        """The best class of each box and its score, as detectors have them."""
        score = jax.nn.sigmoid(x[..., 4:5]) * jax.nn.sigmoid(x[..., 5:])
        return score.argmax(-1), score.max(-1)

    def normal(*shape: int) -> Given:
        return Given(shape, "float32")

    return {
        "classes drawn in a scan": (classes, KEY, normal(10_000)),
        "greatest of random numbers": (greatest, KEY),
        "lattice Boltzmann": (lattice_boltzmann, Given((9, 100, 60), unit=True), Given((100, 60), "int32", low=0, high=2)),
        "beams": (beams, normal(5, 64), normal(64, 4000), normal(5)),
        "best classes of boxes": (boxes, normal(2, 20, 20, 3, 85)),
    }
