"""The shipped programs at sizes that a memory checker is done with in seconds: several tasks, and ends that no vector fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["small_program"]

EXAMPLES: Mapping[str, Mapping[str, int]] = {
    "softmax": {"rows": 37, "columns": 200},
    "layer_norm": {"rows": 41, "columns": 130},
    "gelu_mlp": {"rows": 33, "model": 48, "hidden": 96},
    "causal_attention": {"heads": 2, "seq": 72, "width": 16},
    "encoder_block": {"seq": 40, "model": 48, "heads": 3, "hidden": 96},
}
SHAPES: Mapping[str, Sequence[tuple[int, ...]]] = {
    "rms_norm_residual": ((37, 100), (37, 100), (100,)),
    "swiglu": ((36, 40), (40, 72), (40, 72), (72, 40)),
    "rotary": ((2, 24, 2, 16),),
    "grouped_query_attention": ((1, 8, 40, 16), (1, 2, 40, 16), (1, 2, 40, 16)),
    "cross_entropy": ((24, 500), (24,)),
    "batch_norm_training": ((3, 9, 9, 16), (16,), (16,)),
    "group_norm": ((3, 9, 9, 16), (16,), (16,)),
    "resnet_block": ((1, 9, 9, 16), (3, 3, 16, 16), (16,), (3, 3, 16, 16), (16,)),
    "depthwise_separable": ((1, 14, 14, 32), (3, 3, 1, 32), (1, 1, 32, 24)),
    "lstm_body": ((12, 24), (12, 40), (12, 40), (24, 160), (40, 160), (160,)),
    "max_pooling": ((2, 15, 15, 16),),
    "average_pooling": ((2, 14, 14, 16),),
    "embedding_gradient": ((60, 24), (70,)),
    "mlp_gradient": ((20, 24), (20, 24), (24, 40), (40,), (40, 24), (24,)),
    "top_k": ((20, 200),),
    "cumulative_sum": ((20, 130),),
}


def small_program(name: str) -> str:
    """The text of a shipped program, traced by JAX at its small sizes."""
    import jax

    from examples import make_examples
    from tests.programs import make_programs

    if name in EXAMPLES:
        return make_examples.lower(name, **EXAMPLES[name])
    function, arguments = make_programs.PROGRAMS[name]
    shapes = [jax.ShapeDtypeStruct(s, a.dtype) for s, a in zip(SHAPES[name], arguments, strict=True)]
    return str(jax.jit(function).lower(*shapes).as_text())
