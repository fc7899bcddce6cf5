"""Products of rows that lie in groups one behind the other, and their gradients, as JAX writes them: with masks."""

from __future__ import annotations

__all__ = ["KINDS", "gated", "gathered", "operands", "ragged", "two_products"]

KINDS = ("product", "by rows", "by weights")
"""y[m, n] = sum of x[m, k] w[g, k, n] for the row's group g; and from y's gradient c those of x and of w."""


def _masked(name: str, source: str, groups: int, rows: int, width: int, element: str) -> str:
    """`name`[g, m, :] = source[m, :] where row m is in group g, else 0."""
    number, truth, value = (f"tensor<{groups}x{rows}x{width}x{t}>" for t in ("i32", "i1", element))
    ends = f"tensor<{groups}xi32>"
    return f"""
  %{name}_b = stablehlo.broadcast_in_dim {source}, dims = [1, 2] : (tensor<{rows}x{width}x{element}>) -> {value}
  %{name}_i = stablehlo.iota dim = 1 : {number}
  %{name}_e = stablehlo.broadcast_in_dim %ends, dims = [0] : ({ends}) -> {number}
  %{name}_s = stablehlo.broadcast_in_dim %starts, dims = [0] : ({ends}) -> {number}
  %{name}_from = stablehlo.compare LE, %{name}_s, %{name}_i, SIGNED : ({number}, {number}) -> {truth}
  %{name}_upto = stablehlo.compare LT, %{name}_i, %{name}_e, SIGNED : ({number}, {number}) -> {truth}
  %{name}_in = stablehlo.and %{name}_from, %{name}_upto : {truth}
  %{name}_z = stablehlo.constant dense<0.0> : {value}
  %{name} = stablehlo.select %{name}_in, %{name}_b, %{name}_z : {truth}, {value}"""


def ragged(kind: str, rows: int, depth: int, columns: int, groups: int, element: str = "f32") -> str:
    """The text of a program of one of these `KINDS`; its last argument is how many rows each group has."""
    sizes = f"tensor<{groups}xi32>"
    x, w, y = (f"tensor<{s}x{element}>" for s in (f"{rows}x{depth}", f"{groups}x{depth}x{columns}", f"{rows}x{columns}"))
    given = {"product": f"%x: {x}, %w: {w}", "by rows": f"%w: {w}, %c: {y}", "by weights": f"%x: {x}, %c: {y}"}[kind]
    result = {"product": y, "by rows": x, "by weights": w}[kind]
    xs, cs = f"tensor<{groups}x{rows}x{depth}x{element}>", f"tensor<{groups}x{rows}x{columns}x{element}>"
    body = {
        "product": _masked("xm", "%x", groups, rows, depth, element)
        + f"\n  %0 = stablehlo.dot_general %xm, %w, contracting_dims = [2, 0] x [1, 0] : ({xs}, {w}) -> {y}",
        "by rows": _masked("cm", "%c", groups, rows, columns, element)
        + f"\n  %0 = stablehlo.dot_general %cm, %w, contracting_dims = [2, 0] x [2, 0] : ({cs}, {w}) -> {x}",
        "by weights": _masked("xm", "%x", groups, rows, depth, element) + _masked("cm", "%c", groups, rows, columns, element)
        + "\n  %0 = stablehlo.dot_general %xm, %cm, batching_dims = [0] x [0], contracting_dims = [1] x [1]"
        f" : ({xs}, {cs}) -> {w}",
    }[kind]
    return f"""func.func @main({given}, %sizes: {sizes}) -> {result} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %ends = "stablehlo.reduce_window"(%sizes, %zero) <{{padding = dense<[[{groups - 1}, 0]]> : tensor<1x2xi64>,
    window_dimensions = array<i64: {groups}>}}> ({{
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %sum = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %sum : tensor<i32>
  }}) : ({sizes}, tensor<i32>) -> {sizes}
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %before = stablehlo.slice %ends [0:{groups - 1}] : ({sizes}) -> tensor<{groups - 1}xi32>
  %starts = stablehlo.concatenate %none, %before, dim = 0 : (tensor<1xi32>, tensor<{groups - 1}xi32>) -> {sizes}{body}
  return %0 : {result} }}"""


def operands(kind: str, rows: int, depth: int, columns: int, groups: int) -> list[tuple[int, ...]]:
    """The shapes of the arguments but for the groups' sizes."""
    x, w, y = (rows, depth), (groups, depth, columns), (rows, columns)
    return {"product": [x, w], "by rows": [w, y], "by weights": [x, y]}[kind]


def two_products(rows: int, depth: int, columns: int, groups: int) -> str:
    """tanh of a ragged product by weights w, times weights v of the same groups: two layers of experts."""
    y, v, x = f"tensor<{rows}x{columns}xf32>", f"tensor<{groups}x{columns}x{depth}xf32>", f"tensor<{rows}x{depth}xf32>"
    first, _, _ = ragged("product", rows, depth, columns, groups).partition("\n  return")
    second = f"""
  %1 = stablehlo.tanh %0 : {y}{_masked("ym", "%1", groups, rows, columns, "f32")}
  %2 = stablehlo.dot_general %ym, %v, contracting_dims = [2, 0] x [1, 0] : (tensor<{groups}x{rows}x{columns}xf32>, {v}) -> {x}
  return %2 : {x} }}"""
    return first.replace("@main(", f"@main(%v: {v}, ").replace(f"-> {y} {{", f"-> {x} {{", 1) + second


def gated(rows: int, depth: int, columns: int, groups: int) -> str:
    """A ragged product by weights w times one by weights v, of the same rows."""
    y, v, xs = f"tensor<{rows}x{columns}xf32>", f"tensor<{groups}x{depth}x{columns}xf32>", f"tensor<{groups}x{rows}x{depth}xf32>"
    first, _, _ = ragged("product", rows, depth, columns, groups).partition("\n  return")
    second = f"""
  %1 = stablehlo.dot_general %xm, %v, contracting_dims = [2, 0] x [1, 0] : ({xs}, {v}) -> {y}
  %2 = stablehlo.multiply %0, %1 : {y}
  return %2 : {y} }}"""
    return first.replace("@main(", f"@main(%v: {v}, ") + second


def gathered(rows: int, depth: int, columns: int, groups: int) -> str:
    """A ragged product of rows that are gathered, and these rows."""
    x, y, at = f"tensor<{rows}x{depth}xf32>", f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}x1xi32>"
    text = ragged("product", rows, depth, columns, groups).replace(f"%x: {x}", f"%from: {x}, %at: {at}")
    gather = f"""{{
  %x = "stablehlo.gather"(%from, %at) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, {depth}>}}> : ({x}, {at}) -> {x}
"""
    text = text.replace(f"-> {y} {{\n", f"-> ({y}, {x}) {gather}", 1)
    return text.replace(f"return %0 : {y}", f"return %0, %x : {y}, {x}")
