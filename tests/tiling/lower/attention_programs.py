"""Masked attention as StableHLO text, and inputs for it: for the tests of masks and of online forms."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}


def mask_text(kind: str, n: int, m: int) -> str:
    """%keep: which of m keys each of n queries sees."""
    lines = [f"%i = stablehlo.iota dim = 0 : tensor<{n}x{m}xi32>", f"%j = stablehlo.iota dim = 1 : tensor<{n}x{m}xi32>"]
    t, b = f"tensor<{n}x{m}xi32>", f"tensor<{n}x{m}xi1>"

    def compare(name: str, direction: str, a: str, c: str) -> str:
        return f"%{name} = stablehlo.compare {direction}, {a}, {c}, SIGNED : ({t}, {t}) -> {b}"

    def shifted(by: int) -> list[str]:
        return [f"%c = stablehlo.constant dense<{by}> : {t}", f"%s = stablehlo.add %i, %c : {t}"]

    if kind == "causal":
        lines.append(compare("keep", "GE", "%i", "%j"))
    elif kind == "anti":
        lines.append(compare("keep", "LE", "%i", "%j"))
    elif kind == "offset":  # the last query sees every key; with more queries than keys the first ones see none
        lines += [*shifted(m - n), compare("keep", "GE", "%s", "%j")]
    elif kind == "padding":
        lines += [f"%c = stablehlo.constant dense<{m // 3}> : {t}", compare("keep", "LT", "%j", "%c")]
    elif kind == "none":
        lines.append(f"%keep = stablehlo.constant dense<true> : {b}")
    elif kind == "window":
        lines += [*shifted(-m // 4), compare("near", "LE", "%s", "%j"), compare("past", "GE", "%i", "%j")]
        lines.append(f"%keep = stablehlo.and %near, %past : {b}")
    return "\n    ".join(lines)


def attention(kind: str, form: str, fill: str, n: int, m: int, d: int = 16, heads: int = 2, dtype: str = "f32",
              capped: bool = False) -> str:  # fmt: skip
    """Masked attention: `form` is additive or select, `fill` what is added to (or stands for) masked scores.

    With `capped` the scores pass through 20 tanh first: computing them twice is dear, so that they become a stage.
    """
    s, nm = f"tensor<{heads}x{n}x{m}x{dtype}>", f"tensor<{n}x{m}x{dtype}>"
    rows = f"tensor<{heads}x{n}x{dtype}>"
    wide = f"stablehlo.broadcast_in_dim %keep, dims = [1, 2] : (tensor<{n}x{m}xi1>) -> tensor<{heads}x{n}x{m}xi1>"
    cap = ""
    if capped:
        cap = f"""
    %t = stablehlo.tanh %small : {s}
    %twenty = stablehlo.constant dense<20.0> : {s}
    %scaled = stablehlo.multiply %t, %twenty : {s}"""
    if form == "additive":
        masked = f"""%zero = stablehlo.constant dense<0.0> : {nm}
    %low = stablehlo.constant dense<{fill}> : {nm}
    %bias = stablehlo.select %keep, %zero, %low : tensor<{n}x{m}xi1>, {nm}
    %all = stablehlo.broadcast_in_dim %bias, dims = [1, 2] : ({nm}) -> {s}
    %x = stablehlo.add %scaled, %all : {s}"""
    else:
        masked = f"""%low = stablehlo.constant dense<{fill}> : {s}
    %all = {wide}
    %x = stablehlo.select %all, %scaled, %low : tensor<{heads}x{n}x{m}xi1>, {s}"""
    return f"""func.func @main(%q: tensor<{heads}x{n}x{d}x{dtype}>, %k: tensor<{heads}x{m}x{d}x{dtype}>,
      %v: tensor<{heads}x{m}x{d}x{dtype}>) -> tensor<{heads}x{n}x{d}x{dtype}> {{
    {mask_text(kind, n, m)}
    %scores = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<{heads}x{n}x{d}x{dtype}>, tensor<{heads}x{m}x{d}x{dtype}>) -> {s}
    %scale = stablehlo.constant dense<0.25> : {s}
    %{"small" if capped else "scaled"} = stablehlo.multiply %scores, %scale : {s}{cap}
    {masked}
    %least = stablehlo.constant dense<{"0xFF800000" if dtype == "f32" else "0xFFF0000000000000" if dtype == "f64" else "0xFF80"}>
      : tensor<{dtype}>
    %max = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [2] : ({s}, tensor<{dtype}>) -> {rows}
    %maxes = stablehlo.broadcast_in_dim %max, dims = [0, 1] : ({rows}) -> {s}
    %less = stablehlo.subtract %x, %maxes : {s}
    %e = stablehlo.exponential %less : {s}
    %none = stablehlo.constant dense<0.0> : tensor<{dtype}>
    %sum = stablehlo.reduce(%e init: %none) applies stablehlo.add across dimensions = [2] : ({s}, tensor<{dtype}>) -> {rows}
    %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({rows}) -> {s}
    %p = stablehlo.divide %e, %sums : {s}
    %out = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : ({s}, tensor<{heads}x{m}x{d}x{dtype}>) -> tensor<{heads}x{n}x{d}x{dtype}>
    return %out : tensor<{heads}x{n}x{d}x{dtype}>
  }}"""


def with_gradients(kind: str, form: str, fill: str, n: int, d: int = 16, heads: int = 2) -> str:
    """The same of n queries and keys with its gradients, as a program has them whose kernels store the probabilities: results are
    the rows, and the gradients of %q, %k and %v for %g."""
    text = attention(kind, form, fill, n, n, d, heads)
    t, s, rows = f"tensor<{heads}x{n}x{d}xf32>", f"tensor<{heads}x{n}x{n}xf32>", f"tensor<{heads}x{n}xf32>"
    text = text.replace(f"%v: {t})", f"%v: {t}, %g: {t})").replace(f"-> {t} {{", f"-> ({t}, {t}, {t}, {t}) {{", 1)
    ds = "%ds = stablehlo.multiply %dx, %scale"
    if form == "select":
        ds = f"""%nothing = stablehlo.constant dense<0.0> : {s}
    %kept = stablehlo.select %all, %dx, %nothing : tensor<{heads}x{n}x{n}xi1>, {s}
    %ds = stablehlo.multiply %kept, %scale"""
    head = text[: text.index("    return %out")]
    return f"""{head}
    %dv = stablehlo.dot_general %p, %g, batching_dims = [0] x [0], contracting_dims = [1] x [1] : ({s}, {t}) -> {t}
    %dp = stablehlo.dot_general %g, %v, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({t}, {t}) -> {s}
    %weighted = stablehlo.multiply %dp, %p : {s}
    %row = stablehlo.reduce(%weighted init: %none) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> {rows}
    %of_row = stablehlo.broadcast_in_dim %row, dims = [0, 1] : ({rows}) -> {s}
    %apart = stablehlo.subtract %dp, %of_row : {s}
    %dx = stablehlo.multiply %p, %apart : {s}
    {ds} : {s}
    %dq = stablehlo.dot_general %ds, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {t}) -> {t}
    %dk = stablehlo.dot_general %ds, %q, batching_dims = [0] x [0], contracting_dims = [1] x [1] : ({s}, {t}) -> {t}
    return %out, %dq, %dk, %dv : {t}, {t}, {t}, {t}
  }}"""


def inputs(n: int, m: int, d: int = 16, heads: int = 2, dtype: str = "f32") -> list[np.ndarray]:
    rng = np.random.default_rng(n * m)
    return [rng.standard_normal((heads, r, d)).astype(DTYPES[dtype]) for r in (n, m, m)]


def bits(a: np.ndarray) -> np.ndarray:
    """The bits, with one NaN for all of them and one zero: an underflow's sign is not promised."""
    a = np.where(np.isnan(a), np.nan, a) + np.zeros((), a.dtype)
    return a.view(f"u{a.dtype.itemsize}")
