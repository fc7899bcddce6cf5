"""Programs whose every feature (`tests.jax_families.cover`) is one of another program's: the slow tests run them, too.

What has each op, with its types, attributes and ranks, and each pair of ops of theirs is a program that stays:
`test_what_is_covered` shows it.
"""

from __future__ import annotations

COVERED: dict[str, frozenset[str]] = {
    "algorithms": frozenset((
        "batch norm with running statistics", "beam search", "bodies", "cellular automaton", "game of life",
        "gradient descent with a line search", "gram-schmidt", "graph network", "gru", "heat equation", "jacobi iteration",
        "leapfrog", "lora", "newton's method", "power iteration", "q-learning", "shortest paths", "sinkhorn",
    )),
    "elementwise": frozenset((
        "bits of 64-bit types", "clamps", "convert floats from float16", "convert floats from float64", "empty",
        "f16 overflows and underflows", "integer base, whole exponents", "jnp.abs", "jnp.ceil", "jnp.conjugate", "jnp.deg2rad",
        "jnp.fabs", "jnp.floor", "jnp.fmax", "jnp.fmin", "jnp.fmod", "jnp.greater", "jnp.heaviside", "jnp.hypot", "jnp.imag",
        "jnp.invert", "jnp.iscomplex", "jnp.isneginf", "jnp.isposinf", "jnp.isreal", "jnp.less", "jnp.log", "jnp.log10",
        "jnp.log2", "jnp.logical_and", "jnp.nextafter", "jnp.positive", "jnp.rad2deg", "jnp.real", "jnp.reciprocal", "jnp.rint",
        "jnp.signbit", "jnp.sqrt", "jnp.trunc", "lax.abs", "lax.ceil", "lax.cos", "lax.exp2", "lax.floor", "lax.log1p",
        "lax.logistic", "lax.round", "lax.sign", "lax.sqrt", "lax.tanh", "powers of special numbers", "small numbers",
        "special abs", "special arcsinh", "special arctan", "special cbrt", "special ceil", "special cos", "special cosh",
        "special exp", "special exp2", "special expm1", "special floor", "special isinf", "special isnan", "special log",
        "special log10", "special log1p", "special nan_to_num", "special reciprocal", "special sign", "special sin",
        "special sinh", "special sqrt", "special square", "special tan", "special tanh",
    )),
    "large": frozenset((
        "long scan", "loop of a stencil", "loop that reads its own old rows", "outer products and broadcasts",
        "product 1 x 700 x 300", "product 257 x 1 x 130", "product 3 x 1000 x 5", "product 64 x 512 x 512", "vmapped products",
    )),
    "library": frozenset((
        "integrate.trapezoid", "lax.linalg eigh", "lax.linalg householder", "lax.linalg lu pivots", "lax.linalg schur",
        "lax.linalg svd", "lax.linalg symmetric_product", "ndimage.map_coordinates 0 nearest",
        "ndimage.map_coordinates 1 constant", "ndimage.map_coordinates 1 wrap", "nn.elu", "nn.gelu", "nn.hard_sigmoid",
        "nn.hard_silu", "nn.identity", "nn.leaky_relu", "nn.mish", "nn.relu", "nn.selu", "nn.sigmoid", "nn.silu",
        "nn.softmax of infinities", "nn.softplus", "nn.sparse_plus", "nn.tanh", "scipy.linalg eigh", "scipy.linalg qr",
        "scipy.linalg solve",
    )),
    "numpy_api": frozenset((
        "crossing", "empty reductions", "fft of 2", "fft of 7", "fft of 8", "linalg cholesky", "linalg cholesky batched",
        "linalg cholesky of no such matrix", "linalg eigh", "linalg eigh upper", "linalg least squares", "linalg products",
        "linalg qr", "linalg svd", "linalg svd put together", "linalg svd wide, values", "linalg tensor solve",
        "nan_to_num options", "reductions of NaN", "searching NaN and ends",
    )),
    "programs": frozenset((
        "booleans", "cholesky", "cholesky_indefinite", "cholesky_solve", "cond_gradient", "custom_gradient", "dynamic_indexing",
        "eigenvalues", "einsums", "embedding", "empty_arrays", "factorisations", "fori_power", "integer_arithmetic",
        "layer_norm", "lexsorts", "lstm_scan", "mapped", "mlp", "nested_vmap", "python_scalars", "ragged_dot", "scatters",
        "sort_special", "switch_branches", "top_k", "trees",
    )),
    "randomness": frozenset((
        "an array of keys as an argument", "keys dropout", "keys reparameterised gradient", "random.bits", "random.exponential",
        "random.exponential of 64 bits", "random.lognormal", "random.rademacher", "random.rayleigh",
    )),
    "structured": frozenset((
        "argmax with NaN and ties", "barriers and names", "convolution 1d", "convolution empty batch", "convolution of widths",
        "convolution window of 1", "dot bfloat16 bfloat16 to float32", "dot bfloat16 float32 to float32",
        "dot_general all batch", "dot_general empty result", "dot_general length 1", "dot_general matrix vector",
        "dot_general outer", "dot_general transposed both", "dot_general two batches, nothing contracted", "einsum i,i,i->i",
        "einsum i,j->ij", "einsum ii->", "einsum ii->i", "einsum iij->j", "einsum ij,ik,il->jkl", "einsum ij,j->i",
        "einsum ij->", "einsum ij->ji", "jnp.pad edge", "jnp.pad maximum", "jnp.pad mean", "jnp.pad minimum", "jnp.pad reflect",
        "lax.cumlogsumexp", "lax.cummax", "lax.cumprod", "lexsort", "logsumexp by reduce", "ragged_dot", "ragged_dot_general",
        "ragged_dot_general, ragged contraction", "random bits", "reduce of a general function", "reduce of two values",
        "scatter add clip", "scatter add fill", "scatter add promise_in_bounds", "scatter extremum gradient",
        "scatter into a histogram", "scatter max clip", "scatter max fill", "scatter max promise_in_bounds", "scatter min clip",
        "scatter min fill", "scatter min promise_in_bounds", "scatter multiply clip", "scatter multiply fill",
        "scatter multiply promise_in_bounds", "scatter of windows, set", "scatter set fill", "scatter with equal indices",
        "shapes", "sort of one and of none", "top_k float32", "window max dilated", "window max dilated base",
        "window max plain", "window max same, strided", "window max whole", "window min dilated", "window min dilated base",
        "window min plain", "window min same, strided", "window min whole", "window product plain", "window sum plain",
        "window sum whole",
    )),
    "transforms": frozenset((
        "branches that return arguments", "closed-over constants", "cond", "eval_shape and dtypes",
        "fori_loop reading what it overwrites", "fori_loop writing rows", "grad of several arguments and aux",
        "grad with integers", "inner jits", "loop of large arrays", "map and batched map", "nested branches", "no arguments",
        "no results", "outputs twice, unread, constant, passed", "python scalars", "registered by a class of its own",
        "registered classes", "scan of ints and bools", "scan of length 0 and 1", "scan with cond", "scan with matrices",
        "scan without carry or outputs", "shapes at tracing", "stop_gradient and zeros", "switch in a loop", "third derivative",
        "trees in and out", "tuple of empty arrays", "vmap of grad", "vmap of reductions with names", "vmap over trees",
        "while never entered", "while of swapped values", "while of three in a ring", "while of unchanged values",
        "while over a tree",
    )),
}  # fmt: skip
