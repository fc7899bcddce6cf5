"""Convolutions as people use them: single layers for `benchmarks/contractions.py`, whole blocks for `benchmarks/forms.py`.

Layers stand in both layouts (channels last and first), with the strides, groups, dilations, batches and types of known networks;
blocks have their bias, normalisation, activation, pooling and shortcut around them, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tables import Given

__all__ = ["blocks", "layers"]

Table = dict[str, tuple[Any, ...]]


def layers(c: Callable[..., Any]) -> list[Any]:
    """The layers, each made by `c`: `benchmarks.contractions.convolution`."""
    first = "NCHW"
    return [
        c("wavenet_k2_d16", (8, 2048, 64), (2, 64, 128), padding=((16, 0),), spread=16),
        c("wavenet_k2_d16_nch", (8, 64, 2048), (128, 64, 2), first, padding=((16, 0),), spread=16),
        c("wavenet_k3_d64_nch", (2, 64, 8192), (64, 64, 3), first, padding=((128, 0),), spread=64),
        c("fir_255", (1, 65536, 1), (255, 1, 1)),
        c("fir_255_nch", (1, 1, 65536), (1, 1, 255), first),
        c("fir_64_b16", (16, 1, 16000), (1, 1, 64), first, padding="VALID"),
        c("fir_bank_32", (1, 1, 65536), (32, 1, 255), first),
        c("audio_k10_s5", (4, 1, 16000), (512, 1, 10), first, stride=5, padding="VALID"),
        c("resnet_b8_56_64", (8, 56, 56, 64), (3, 3, 64, 64)),
        c("resnet_b8_28_128", (8, 28, 28, 128), (3, 3, 128, 128)),
        c("resnet_b8_7_512", (8, 7, 7, 512), (3, 3, 512, 512)),
        c("resnet_b32_28_128", (32, 28, 28, 128), (3, 3, 128, 128)),
        c("resnet_b32_14_256_s2", (32, 28, 28, 128), (3, 3, 128, 256), stride=2),
        c("resnet_b8_56_64_nchw", (8, 64, 56, 56), (64, 64, 3, 3), first),
        c("resnet_b32_28_128_nchw", (32, 128, 28, 28), (128, 128, 3, 3), first),
        c("resnet_b1_14_256_nchw", (1, 256, 14, 14), (256, 256, 3, 3), first),
        c("resnet_b8_14_s2_nchw", (8, 128, 28, 28), (256, 128, 3, 3), first, stride=2),
        c("resnet_b1_7_512_nchw", (1, 512, 7, 7), (512, 512, 3, 3), first),
        c("shortcut_1x1_s2", (8, 56, 56, 64), (1, 1, 64, 128), stride=2),
        c("shortcut_1x1_s2_nchw", (8, 64, 56, 56), (128, 64, 1, 1), first, stride=2),
        c("bottleneck_1x1_b8", (8, 14, 14, 1024), (1, 1, 1024, 256)),
        c("bottleneck_1x1_b8_nchw", (8, 1024, 14, 14), (256, 1024, 1, 1), first),
        c("stem_b8", (8, 224, 224, 3), (7, 7, 3, 64), stride=2),
        c("stem_b8_nchw", (8, 3, 224, 224), (64, 3, 7, 7), first, stride=2),
        c("stem3x3_b8_nchw", (8, 3, 224, 224), (32, 3, 3, 3), first, stride=2),
        c("resnext_g32_b8", (8, 28, 28, 256), (3, 3, 8, 256), groups=32),
        c("resnext_g32_b8_nchw", (8, 256, 28, 28), (256, 8, 3, 3), first, groups=32),
        c("resnext_g32_s2", (4, 56, 56, 256), (3, 3, 8, 256), groups=32, stride=2),
        c("dw3x3_b32", (32, 28, 28, 192), (3, 3, 1, 192), groups=192),
        c("dw3x3_b32_nchw", (32, 192, 28, 28), (192, 1, 3, 3), first, groups=192),
        c("dw3x3_s2_b8", (8, 56, 56, 144), (3, 3, 1, 144), groups=144, stride=2),
        c("dw3x3_s2_b8_nchw", (8, 144, 56, 56), (144, 1, 3, 3), first, groups=144, stride=2),
        c("dw5x5_s2_nchw", (4, 240, 28, 28), (240, 1, 5, 5), first, groups=240, stride=2),
        c("atrous_d2_256", (1, 28, 28, 256), (3, 3, 256, 256), spread=2),
        c("atrous_d12_256_nchw", (1, 256, 33, 33), (256, 256, 3, 3), first, spread=12),
        c("conv5x5_b8_nhwc", (8, 28, 28, 32), (5, 5, 32, 64)),
        c("lenet_5x5", (64, 28, 28, 1), (5, 5, 1, 6), padding="VALID"),
        c("lenet_5x5_2", (64, 12, 12, 6), (5, 5, 6, 16), padding="VALID"),
        c("mnist_3x3_b32", (32, 28, 28, 1), (3, 3, 1, 32)),
        c("cifar_3x3_b32", (32, 32, 32, 3), (3, 3, 3, 64)),
        c("video_3x3x3", (1, 8, 56, 56, 3), (3, 3, 3, 3, 64)),
        c("space_3x3x3_nchw", (1, 32, 16, 28, 28), (64, 32, 3, 3, 3), first),
        c("bf16_b8_28_128", (8, 28, 28, 128), (3, 3, 128, 128), dtype="bfloat16"),
        c("bf16_nchw_b8", (8, 128, 28, 28), (128, 128, 3, 3), first, dtype="bfloat16"),
        c("bf16_1x1_b8", (8, 28, 28, 256), (1, 1, 256, 128), dtype="bfloat16"),
        c("bf16_stem", (1, 224, 224, 3), (7, 7, 3, 64), stride=2, dtype="bfloat16"),
        c("f16_nchw_b8", (8, 128, 28, 28), (128, 128, 3, 3), first, dtype="float16"),
        c("i8_b8_28_128", (8, 28, 28, 128), (3, 3, 128, 128), dtype="int8"),
        c("i8_nchw", (1, 64, 56, 56), (64, 64, 3, 3), first, dtype="int8"),
        c("dw3x3_i8", (1, 56, 56, 64), (3, 3, 1, 64), groups=64, dtype="int8"),
        c("up2x2_nchw", (4, 128, 28, 28), (64, 128, 2, 2), first, dilate=2, padding=((1, 1), (1, 1))),
        c("up2x2", (4, 28, 28, 128), (2, 2, 128, 64), dilate=2, padding=((1, 1), (1, 1))),
        c("dcgan_4x4", (8, 16, 16, 128), (4, 4, 128, 64), dilate=2, padding=((2, 2), (2, 2))),
        c("dcgan_to_rgb", (8, 32, 32, 64), (4, 4, 64, 3), dilate=2, padding=((2, 2), (2, 2))),
        c("dcgan_to_rgb_nchw", (8, 64, 32, 32), (3, 64, 4, 4), first, dilate=2, padding=((2, 2), (2, 2))),
        c("decoder_to_rgb", (1, 128, 128, 32), (3, 3, 32, 3), dilate=2, padding=((2, 1), (2, 1))),
        c("decoder_to_rgb_nchw", (1, 32, 128, 128), (3, 32, 3, 3), first, dilate=2, padding=((2, 1), (2, 1))),
        c("decoder_5x5_to_rgb", (1, 64, 64, 64), (5, 5, 64, 3), dilate=2, padding=((3, 2), (3, 2))),
        c("decoder_5x5_to_rgb_nchw", (1, 64, 64, 64), (3, 64, 5, 5), first, dilate=2, padding=((3, 2), (3, 2))),
        c("decoder_to_8", (1, 64, 64, 64), (4, 4, 64, 8), dilate=2, padding=((2, 2), (2, 2))),
        c("decoder_to_8_nchw", (1, 64, 64, 64), (8, 64, 4, 4), first, dilate=2, padding=((2, 2), (2, 2))),
        c("decoder_to_64_nchw", (1, 64, 32, 32), (64, 64, 4, 4), first, dilate=2, padding=((2, 2), (2, 2))),
        c("vocoder_k16_s8", (4, 256, 200), (128, 256, 16), first, dilate=8, padding=((11, 11),)),
        c("fcn_k16_s8", (1, 14, 14, 21), (16, 16, 21, 21), dilate=8, padding=((11, 11), (11, 11))),
        c("grad_x_dw_s2", (4, 56, 56, 96), (3, 3, 1, 96), groups=96, stride=2, grad=0),
        c("grad_x_dw_s2_nchw", (4, 96, 56, 56), (96, 1, 3, 3), first, groups=96, stride=2, grad=0),
        c("grad_x_1x1_s2", (4, 56, 56, 64), (1, 1, 64, 128), stride=2, grad=0),
        c("grad_x_1x1_s2_nchw", (4, 64, 56, 56), (128, 64, 1, 1), first, stride=2, grad=0),
        c("grad_x_g32_s2", (4, 28, 28, 128), (3, 3, 4, 128), groups=32, stride=2, grad=0),
        c("grad_w_dw_s2_nchw", (4, 96, 56, 56), (96, 1, 3, 3), first, groups=96, stride=2, grad=1),
        c("grad_w_g32", (4, 28, 28, 128), (3, 3, 4, 128), groups=32, grad=1),
        c("grad_w_b32_14_256", (32, 14, 14, 256), (3, 3, 256, 256), grad=1),
        c("grad_w_up2x2", (4, 28, 28, 128), (2, 2, 128, 64), dilate=2, padding=((1, 1), (1, 1)), grad=1),
        c("grad_w_1x1_s2", (4, 56, 56, 64), (1, 1, 64, 128), stride=2, grad=1),
        c("grad_w_wavenet", (4, 64, 2048), (128, 64, 2), first, padding=((16, 0),), spread=16, grad=1),
    ]


def blocks() -> Table:
    """Whole blocks and their gradients by weights and input."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def n(*shape: int, t: str = "float32", s: float = 1.0) -> Given:
        return Given(shape, t, s)

    def conv(x: Any, w: Any, stride: int = 1, groups: int = 1, first: bool = False, **more: Any) -> Any:
        spatial = "DHW"[5 - x.ndim :]
        data, kernel = (f"NC{spatial}", f"OI{spatial}") if first else (f"N{spatial}C", f"{spatial}IO")
        more = {"padding": "SAME", **more}
        return lax.conv_general_dilated(
            x, w, (stride,) * (x.ndim - 2), dimension_numbers=(data, kernel, data), feature_group_count=groups, **more
        )

    def scaled(x: Any, p: Any, first: bool = False) -> Any:
        """Normalised with known moments: a factor and a term for each channel."""
        shape = (-1, *(1,) * (x.ndim - 2)) if first else (-1,)
        return x * p[0].reshape(shape) + p[1].reshape(shape)

    def normalised(x: Any, p: Any, first: bool = False) -> Any:
        """Normalised with the batch's moments."""
        along = tuple(k for k in range(x.ndim) if k != (1 if first else x.ndim - 1))
        mean, square = x.mean(along, keepdims=True), (x * x).mean(along, keepdims=True)
        return scaled((x - mean) * lax.rsqrt(square - mean * mean + 1e-5), p, first)

    def basic(first: bool, stride: int = 1, norm: Any = scaled) -> Any:
        def block(x: Any, w1: Any, p1: Any, w2: Any, p2: Any, *short: Any) -> Any:
            y = jax.nn.relu(norm(conv(x, w1, stride, first=first), p1, first))
            y = norm(conv(y, w2, first=first), p2, first)
            return jax.nn.relu(y + (norm(conv(x, short[0], stride, first=first), short[1], first) if short else x))

        return block

    def inverted(first: bool, stride: int = 1) -> Any:
        def block(x: Any, w1: Any, p1: Any, w2: Any, p2: Any, w3: Any, p3: Any) -> Any:
            y = jax.nn.relu6(scaled(conv(x, w1, first=first), p1, first))
            y = jax.nn.relu6(scaled(conv(y, w2, stride, groups=w1.shape[0 if first else -1], first=first), p2, first))
            y = scaled(conv(y, w3, first=first), p3, first)
            return y + x if stride == 1 else y

        return block

    def up(first: bool) -> Any:
        def block(x: Any, skip: Any, w0: Any, w1: Any, p1: Any, w2: Any, p2: Any) -> Any:
            numbers = ("NCHW", "OIHW", "NCHW") if first else ("NHWC", "HWIO", "NHWC")
            y = lax.conv_transpose(x, w0, (2, 2), "VALID", dimension_numbers=numbers)
            y = jnp.concatenate([skip, y], 1 if first else 3)
            y = jax.nn.relu(scaled(conv(y, w1, first=first), p1, first))
            return jax.nn.relu(scaled(conv(y, w2, first=first), p2, first))

        return block

    def wavenet(x: Any, w: Any, b: Any, v: Any) -> Any:
        y = conv(x, w, padding=((8, 0),), rhs_dilation=(8,)) + b
        a, g = jnp.split(y, 2, -1)
        return x + conv(jnp.tanh(a) * jax.nn.sigmoid(g), v)

    def vgg(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        y = jax.nn.relu(conv(jax.nn.relu(conv(x, w1) + b1), w2) + b2)
        return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def stem(first: bool) -> Any:
        window, strides = ((1, 1, 3, 3), (1, 1, 2, 2)) if first else ((1, 3, 3, 1), (1, 2, 2, 1))

        def block(x: Any, w: Any, p: Any) -> Any:
            y = jax.nn.relu(scaled(conv(x, w, 2, first=first), p, first))
            return lax.reduce_window(y, -jnp.inf, lax.max, window, strides, "SAME")

        return block

    def resnext(x: Any, w1: Any, p1: Any, w2: Any, p2: Any, w3: Any, p3: Any) -> Any:
        y = jax.nn.relu(scaled(conv(x, w1), p1))
        y = jax.nn.relu(scaled(conv(y, w2, groups=32), p2))
        return jax.nn.relu(x + scaled(conv(y, w3), p3))

    def dense_layer(x: Any, p: Any, w: Any) -> Any:
        return jnp.concatenate([x, conv(jax.nn.relu(scaled(x, p)), w)], -1)

    def classifier(x: Any, w: Any, b: Any) -> Any:
        return x.mean((1, 2)) @ w + b

    def gradient(block: Any) -> Any:
        """By all that the block takes but its last normalisation's factors: input and weights."""
        return lambda *given: jax.grad(lambda given: (block(*given) ** 2).mean())(given)

    def laid(first: bool, b: int, side: int, channels: int) -> Given:
        return n(b, channels, side, side) if first else n(b, side, side, channels)

    def kernel(first: bool, k: int, i: int, o: int) -> Given:
        s = (k * k * i) ** -0.5
        return n(o, i, k, k, s=s) if first else n(k, k, i, o, s=s)

    found: Table = {}
    for first, tag in ((False, ""), (True, ", NCHW")):
        pair = (kernel(first, 3, 64, 64), n(2, 64))
        found[f"basic block{tag}"] = (basic(first), laid(first, 4, 56, 64), *pair, *pair)
        found[f"basic block, gradient{tag}"] = (gradient(basic(first)), laid(first, 4, 28, 64), *pair, *pair)
        down = (kernel(first, 3, 64, 128), n(2, 128), kernel(first, 3, 128, 128), n(2, 128), kernel(first, 1, 64, 128), n(2, 128))
        found[f"basic block, down{tag}"] = (basic(first, 2), laid(first, 4, 56, 64), *down)
        found[f"basic block, down, gradient{tag}"] = (gradient(basic(first, 2)), laid(first, 4, 28, 64), *down)
        found[f"basic block, batch norm{tag}"] = (basic(first, norm=normalised), laid(first, 8, 28, 64), *pair, *pair)
        found[f"basic block, batch norm, gradient{tag}"] = (
            gradient(basic(first, norm=normalised)), laid(first, 8, 28, 64), *pair, *pair
        )  # fmt: skip
        wide = (kernel(first, 1, 32, 192), n(2, 192), kernel(first, 3, 1, 192), n(2, 192), kernel(first, 1, 192, 32), n(2, 32))
        found[f"inverted residual{tag}"] = (inverted(first), laid(first, 4, 28, 32), *wide)
        found[f"inverted residual, stride 2{tag}"] = (inverted(first, 2), laid(first, 4, 56, 32), *wide)
        found[f"inverted residual, gradient{tag}"] = (gradient(inverted(first)), laid(first, 4, 28, 32), *wide)
        found[f"inverted residual, stride 2, gradient{tag}"] = (gradient(inverted(first, 2)), laid(first, 4, 28, 32), *wide)
        ups = (kernel(first, 2, 128, 64), kernel(first, 3, 128, 64), n(2, 64), *pair)
        found[f"UNet up{tag}"] = (up(first), laid(first, 2, 28, 128), laid(first, 2, 56, 64), *ups)
        found[f"UNet up, gradient{tag}"] = (gradient(up(first)), laid(first, 2, 14, 128), laid(first, 2, 28, 64), *ups)
        found[f"stem and pool{tag}"] = (stem(first), laid(first, 2, 224, 3), kernel(first, 7, 3, 64), n(2, 64))
    sizes = (kernel(False, 3, 64, 64), n(64), kernel(False, 3, 64, 64), n(64))
    gate = (n(4, 2048, 64), n(2, 64, 128, s=0.09), n(128), n(1, 64, 64, s=0.12))
    groups = (kernel(False, 1, 256, 128), n(2, 128), kernel(False, 3, 4, 128), n(2, 128), kernel(False, 1, 128, 256), n(2, 256))
    return {
        **found,
        "VGG block": (vgg, n(2, 56, 56, 64), *sizes),
        "VGG block, gradient": (gradient(vgg), n(2, 28, 28, 64), *sizes),
        "WaveNet layer": (wavenet, *gate),
        "WaveNet layer, gradient": (gradient(wavenet), *gate),
        "ResNeXt block": (resnext, n(4, 28, 28, 256), *groups),
        "ResNeXt block, gradient": (gradient(resnext), n(4, 14, 14, 256), *groups),
        "dense layer": (dense_layer, n(4, 28, 28, 160), n(2, 160), kernel(False, 3, 160, 32)),
        "pooled classifier": (classifier, n(8, 7, 7, 512), n(512, 1000, s=0.05), n(1000)),
    }
