"""Whole layers that torch has as one op, taken apart: what they are made of is fused and tiled here like everything else.

torch's attention and its encoder layer take this way when no gradient is asked for (their "fast path").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["layers"]


def layers(torch: Any) -> dict[Any, Callable[..., Any]]:
    """op -> its decomposition for torch's tracer; with a mask, whose forms are several, an op stays as it is."""

    def projected(query: Any, key: Any, value: Any, weight: Any, bias: Any) -> Any:
        if query is key and key is value:
            return torch.nn.functional.linear(query, weight, bias).chunk(3, -1)
        return [
            torch.nn.functional.linear(x, w, b)
            for x, w, b in zip((query, key, value), weight.chunk(3), bias.chunk(3), strict=True)
        ]

    def attention(
        query: Any, key: Any, value: Any, width: int, heads: int, weight: Any, bias: Any, out_weight: Any, out_bias: Any,
        mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
    ) -> Any:  # fmt: skip
        if mask is not None:
            return NotImplemented
        each = width // heads
        q, k, v = (x.unflatten(-1, (heads, each)).transpose(1, 2) for x in projected(query, key, value, weight, bias))
        shares = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(each), -1)
        mixed = (shares @ v).transpose(1, 2).flatten(-2)
        result = torch.nn.functional.linear(mixed, out_weight, out_bias)
        if not need_weights:
            return result, result.new_empty((0,))
        return result, shares.mean(1) if average_attn_weights else shares

    def encoder_layer(
        x: Any, width: int, heads: int, weight: Any, bias: Any, out_weight: Any, out_bias: Any, use_gelu: bool,
        norm_first: bool, eps: float, scale_1: Any, shift_1: Any, scale_2: Any, shift_2: Any, weight_1: Any, bias_1: Any,
        weight_2: Any, bias_2: Any, mask: Any = None, mask_type: int | None = None,
    ) -> Any:  # fmt: skip
        if mask is not None:
            return NotImplemented
        f = torch.nn.functional

        def attended(y: Any) -> Any:
            return attention(y, y, y, width, heads, weight, bias, out_weight, out_bias, need_weights=False)[0]

        def fed(y: Any) -> Any:
            inner = f.linear(y, weight_1, bias_1)
            return f.linear(f.gelu(inner) if use_gelu else f.relu(inner), weight_2, bias_2)

        def norm(y: Any, scale: Any, shift: Any) -> Any:
            return f.layer_norm(y, (width,), scale, shift, eps)

        if norm_first:
            x = x + attended(norm(x, scale_1, shift_1))
            return x + fed(norm(x, scale_2, shift_2))
        x = norm(x + attended(x), scale_1, shift_1)
        return norm(x + fed(x), scale_2, shift_2)

    aten = torch.ops.aten
    return {aten._native_multi_head_attention.default: attention, aten._transformer_encoder_layer_fwd.default: encoder_layer}
