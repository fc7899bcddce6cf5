"""Programs whose every feature (`tests.jax_families.cover`) is one of another program's: the slow tests run them, too.

What has each op, with its types, attributes and ranks, and each pair of kinds of ops of theirs is a program that stays:
`test_what_is_covered` shows it.
"""

from __future__ import annotations

COVERED: dict[str, frozenset[str]] = {
    "algorithms": frozenset((
        "batch norm with running statistics", "beam search", "bodies", "cellular automaton", "gaussian process",
        "global norm clipping", "gradient descent with a line search", "gram-schmidt", "graph network", "gru", "heat equation",
        "jacobi iteration", "leapfrog", "learning rates", "lora", "newton's method", "normalising flow", "page rank",
        "power iteration", "principal components", "q-learning", "quaternions", "ray and sphere", "rotary embeddings",
        "shortest paths", "sinkhorn", "spectral filter",
    )),
    "elementwise": frozenset((
        "bf16 rounds after each op", "bits of 64-bit types", "clamps", "complex parts", "convert floats from float16",
        "convert floats from float64", "empty", "f16 overflows and underflows", "integer base, whole exponents",
        "jnp.conjugate", "jnp.copysign", "jnp.deg2rad", "jnp.fabs", "jnp.fmax", "jnp.fmin", "jnp.fmod", "jnp.greater",
        "jnp.heaviside", "jnp.hypot", "jnp.imag", "jnp.invert", "jnp.iscomplex", "jnp.isinf", "jnp.isneginf", "jnp.isposinf",
        "jnp.isreal", "jnp.less", "jnp.log", "jnp.log10", "jnp.log2", "jnp.logical_and", "jnp.logical_or", "jnp.modf",
        "jnp.nan_to_num", "jnp.nextafter", "jnp.positive", "jnp.rad2deg", "jnp.real", "jnp.reciprocal", "jnp.rint", "jnp.round",
        "jnp.signbit", "jnp.sinc", "jnp.sqrt", "jnp.trunc", "lax.abs", "lax.ceil", "lax.cos", "lax.exp2", "lax.floor",
        "lax.logistic", "lax.sign", "lax.tanh", "powers", "small numbers", "special abs", "special arcsinh", "special arctan",
        "special cbrt", "special ceil", "special cos", "special cosh", "special exp", "special exp2", "special expm1",
        "special floor", "special isinf", "special isnan", "special log10", "special log1p", "special log2",
        "special nan_to_num", "special reciprocal", "special rint", "special sign", "special sin", "special sinh",
        "special sqrt", "special square", "special tan", "special tanh", "special trunc",
    )),
    "large": frozenset((
        "folds of what is computed", "long scan", "loop of a stencil", "loop that reads its own old rows",
        "loop whose value is read twice", "outer products and broadcasts", "product 1 x 700 x 300", "product 257 x 1 x 130",
        "product 3 x 1000 x 5", "product 64 x 512 x 512", "vmapped products",
    )),
    "library": frozenset((
        "lax.linalg eigh", "lax.linalg householder", "lax.linalg lu pivots", "lax.linalg schur", "lax.linalg svd",
        "lax.linalg symmetric_product", "ndimage.map_coordinates 0 constant", "ndimage.map_coordinates 0 nearest",
        "ndimage.map_coordinates 0 wrap", "ndimage.map_coordinates 1 constant", "ndimage.map_coordinates 1 nearest",
        "ndimage.map_coordinates 1 wrap", "nn.elu", "nn.gelu", "nn.glu", "nn.hard_sigmoid", "nn.hard_silu", "nn.identity",
        "nn.leaky_relu", "nn.log_softmax", "nn.mish", "nn.relu", "nn.relu6", "nn.selu", "nn.sigmoid", "nn.silu", "nn.soft_sign",
        "nn.softmax", "nn.softmax of infinities", "nn.softplus", "nn.sparse_plus", "nn.sparse_sigmoid", "nn.squareplus",
        "nn.tanh", "scipy.linalg eigh", "scipy.linalg qr", "scipy.linalg solve",
    )),
    "numpy_api": frozenset((
        "comparisons of arrays", "crossing", "empty reductions", "fft of 12", "fft of 2", "fft of 7", "fft of 8", "grids",
        "linalg cholesky", "linalg cholesky batched", "linalg cholesky of no such matrix", "linalg eig", "linalg eigh",
        "linalg least squares", "linalg products", "linalg qr", "linalg svd", "linalg svd full", "linalg svd put together",
        "linalg svd wide, values", "linalg tensor solve", "nan_to_num options", "reductions of NaN", "reductions over length 1",
        "rounding to places", "searching NaN and ends", "sums of many",
    )),
    "programs": frozenset((
        "activations", "adam", "bfloat16_block", "bit_casts", "booleans", "checkpointed", "cholesky", "cholesky_indefinite",
        "cholesky_solve", "complex_numbers", "cond_branches", "cond_gradient", "custom_gradient", "dynamic_indexing",
        "eigenvalues", "einsums", "embedding", "empty_arrays", "factorisations", "fori_power", "layer_norm", "lexsorts",
        "lstm_scan", "mapped", "mlp", "nested_jit", "nested_vmap", "newton_while", "python_scalars", "ragged_dot", "rotary",
        "scatters", "sgd_step", "sort_special", "sorts", "switch_branches", "top_k", "trees", "vmapped_cond",
        "vmapped_gradient",
    )),
    "randomness": frozenset((
        "an array of keys as an argument", "keys antithetic", "keys checkpointed", "keys dropout",
        "keys reparameterised gradient", "random.bits", "random.cauchy", "random.exponential", "random.exponential of 64 bits",
        "random.geometric", "random.laplace", "random.logistic", "random.lognormal", "random.pareto", "random.rademacher",
        "random.rayleigh", "random.triangular", "random.uniform of 64 bits", "random.weibull_min",
    )),
    "structured": frozenset((
        "argmax with NaN and ties", "barriers and names", "convolution 1d", "convolution empty batch", "convolution of widths",
        "convolution window of 1", "dot bfloat16 bfloat16 to float32", "dot bfloat16 float32 to float32",
        "dot_general all batch", "dot_general empty result", "dot_general length 1", "dot_general matrix vector",
        "dot_general outer", "dot_general transposed both", "dot_general two batches, nothing contracted", "einsum i,i,i->i",
        "einsum i,j->ij", "einsum ii->", "einsum ii->i", "einsum iij->j", "einsum ij,ik,il->jkl", "einsum ij,j->i",
        "einsum ij->", "einsum ij->ji", "jnp.pad edge", "jnp.pad maximum", "jnp.pad mean", "jnp.pad minimum", "jnp.pad reflect",
        "lax.cumlogsumexp", "lax.cummax", "lax.cumprod", "lexsort", "logsumexp by reduce", "ragged_dot", "ragged_dot_general",
        "ragged_dot_general, ragged contraction", "random bits", "random bits by algorithm", "reduce of a general function",
        "reduce of two values", "scatter add clip", "scatter add fill", "scatter add promise_in_bounds",
        "scatter extremum gradient", "scatter into a histogram", "scatter max clip", "scatter max fill",
        "scatter max promise_in_bounds", "scatter min clip", "scatter min fill", "scatter min promise_in_bounds",
        "scatter multiply clip", "scatter multiply fill", "scatter multiply promise_in_bounds", "scatter of windows, set",
        "scatter set clip", "scatter set fill", "scatter with equal indices", "shapes", "sort of one and of none",
        "top_k float32", "window max dilated", "window max dilated base", "window max plain", "window max same, strided",
        "window max whole", "window min dilated", "window min dilated base", "window min plain", "window min same, strided",
        "window min whole", "window product plain", "window sum plain", "window sum whole",
    )),
    "transforms": frozenset((
        "branches that return arguments", "closed-over constants", "closure_convert", "cond", "custom derivatives",
        "deep chain", "eval_shape and dtypes", "fori_loop reading what it overwrites", "fori_loop sieve",
        "fori_loop writing rows", "grad of several arguments and aux", "grad with integers", "inner jits",
        "loop of large arrays", "map and batched map", "nested branches", "no arguments", "no results",
        "outputs twice, unread, constant, passed", "python scalars", "registered by a class of its own", "registered classes",
        "scan of ints and bools", "scan of length 0 and 1", "scan with cond", "scan with matrices",
        "scan without carry or outputs", "shapes at tracing", "stop_gradient and zeros", "switch", "switch in a loop",
        "third derivative", "trees in and out", "tuple of empty arrays", "vmap axes", "vmap of cond and switch", "vmap of grad",
        "vmap of reductions with names", "vmap over trees", "while never entered", "while of swapped values",
        "while of three in a ring", "while of unchanged values", "while over a tree",
    )),
}
