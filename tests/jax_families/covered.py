"""Programs whose every feature (`tests.jax_families.cover`) is one of another program's: the slow tests run them, too.

What has each op, type, attribute and pair of ops of theirs is a program that stays: `test_what_is_covered` shows it.
"""

from __future__ import annotations

COVERED: dict[str, frozenset[str]] = {
    "algorithms": frozenset((
        "gradient descent with a line search", "heat equation", "lora", "newton's method", "shortest paths",
    )),
    "elementwise": frozenset((
        "convert floats from float16", "convert floats from float64", "integer base, whole exponents", "jnp.abs", "jnp.ceil",
        "jnp.conjugate", "jnp.deg2rad", "jnp.floor", "jnp.fmax", "jnp.fmin", "jnp.fmod", "jnp.heaviside", "jnp.imag",
        "jnp.invert", "jnp.iscomplex", "jnp.isneginf", "jnp.isposinf", "jnp.less", "jnp.log", "jnp.logical_and",
        "jnp.logical_or", "jnp.positive", "jnp.rad2deg", "jnp.real", "jnp.rint", "lax.abs", "lax.asinh", "lax.atan",
        "lax.cbrt", "lax.ceil", "lax.cos", "lax.cosh", "lax.exp2", "lax.expm1", "lax.floor", "lax.log1p", "lax.neg",
        "lax.sign", "lax.sqrt", "lax.tan", "lax.tanh", "small numbers", "special abs", "special ceil", "special exp",
        "special floor", "special isnan", "special log", "special reciprocal", "special rint", "special sin", "special sinh",
        "special square",
    )),
    "large": frozenset((
        "loop of a stencil", "loop that reads its own old rows", "product 1 x 700 x 300", "product 257 x 1 x 130",
        "product 300 x 700 x 1", "product 64 x 512 x 512",
    )),
    "library": frozenset((
        "lax.linalg eigh", "lax.linalg lu pivots", "lax.linalg schur", "lax.linalg svd", "lax.linalg symmetric_product",
        "ndimage.map_coordinates 0 constant", "ndimage.map_coordinates 0 nearest", "ndimage.map_coordinates 1 wrap", "nn.elu",
        "nn.hard_silu", "nn.identity", "nn.leaky_relu", "nn.sigmoid", "nn.silu", "nn.softplus", "scipy.linalg eigh",
    )),
    "numpy_api": frozenset((
        "crossing", "fft of 7", "linalg cholesky", "linalg cholesky of no such matrix", "linalg eigh", "linalg eigh upper",
        "linalg qr", "linalg solve", "linalg svd", "linalg svd wide, values", "reductions of NaN",
    )),
    "programs": frozenset((
        "cholesky", "cholesky_indefinite", "cholesky_solve", "cond_branches", "dynamic_indexing", "eigenvalues", "einsums",
        "layer_norm", "mlp", "top_k",
    )),
    "randomness": frozenset((
        "keys reparameterised gradient", "random.exponential", "random.lognormal", "random.uniform of 64 bits",
    )),
    "structured": frozenset((
        "barriers and names", "convolution window of 1", "dot bfloat16 bfloat16 to float32", "dot_general all batch",
        "dot_general empty result", "dot_general length 1", "dot_general matrix vector", "dot_general outer",
        "dot_general transposed both", "einsum i,i,i->i", "einsum i,j->ij", "einsum ii->", "einsum ii->i", "einsum ij,ij->",
        "einsum ij,j->i", "einsum ij,jk->ki", "einsum ij->", "einsum ij->ji", "jnp.pad edge", "jnp.pad maximum",
        "jnp.pad minimum", "jnp.pad reflect", "lax.cumlogsumexp", "lax.cummax", "lax.cummin", "ragged_dot", "random bits",
        "reduce of a general function", "reduce of two values", "scatter add clip", "scatter add fill",
        "scatter add promise_in_bounds", "scatter max clip", "scatter max fill", "scatter min clip", "scatter min fill",
        "scatter min promise_in_bounds", "scatter multiply fill", "scatter multiply promise_in_bounds", "scatter of windows",
        "scatter set clip", "scatter set fill", "scatter set promise_in_bounds", "scatter with equal indices", "shapes",
        "sort of one and of none", "window max dilated", "window max plain", "window max same, strided", "window max whole",
        "window min dilated base", "window min plain", "window min whole", "window product dilated",
        "window product dilated base", "window product plain", "window product same, strided", "window product whole",
        "window sum plain",
    )),
    "transforms": frozenset((
        "eval_shape and dtypes", "fori_loop reading what it overwrites", "grad with integers", "inner jits",
        "loop of large arrays", "no arguments", "no results", "outputs twice, unread, constant, passed",
        "registered by a class of its own", "scan with cond", "stop_gradient and zeros", "third derivative",
        "trees in and out", "tuple of empty arrays", "vmap of grad", "vmap over trees",
    )),
}  # fmt: skip
