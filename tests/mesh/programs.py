# ruff: noqa: E501  (programs are written as they are printed)
"""Programs with collectives for n processes: every collective, grouping and body, in text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Case", "cases"]


@dataclass(frozen=True)
class Case:
    """A program on a grid of (replicas, partitions); `by_mpi` tells whether its collectives are steps of their own,
    `overlaps` whether kernels run beside them,
    `infeed` names the functions that each process is fed by."""

    name: str
    text: str
    grid: tuple[int, int]
    by_mpi: bool = True
    overlaps: bool = False
    infeed: tuple[str, ...] = ()


def _body(ops: str, element: str) -> str:
    return f"""({{ ^bb0(%p: tensor<{element}>, %q: tensor<{element}>):
      {ops.replace("T", f"tensor<{element}>")}
      stablehlo.return %s : tensor<{element}> }})"""


def _binary(name: str, element: str) -> str:
    return _body(f"%s = stablehlo.{name} %p, %q : T", element)


def _dense(rows: list[list[int]]) -> str:
    return f"dense<{rows}> : tensor<{len(rows)}x{len(rows[0])}xi64>" if rows else "dense<> : tensor<0x0xi64>"


def _channel(handle: int, kind: int = 0) -> str:
    return f"channel_handle = #stablehlo.channel_handle<handle = {handle}, type = {kind}>"


def _one(op: str, operand: str, result: str) -> str:
    return f"""func.func @main(%x: tensor<{operand}>) -> tensor<{result}> {{
      %r = {op} : (tensor<{operand}>) -> tensor<{result}>
      return %r : tensor<{result}>
    }}"""


def _reduced(element: str, body: str, groups: list[list[int]], more: str = "", size: int = 5, result: str = "") -> str:
    op = f'"stablehlo.all_reduce"(%x) {body} {{replica_groups = {_dense(groups)}{more}}}'
    return _one(op, f"{size}x{element}", f"{size}x{result or element}")


def cases(n: int) -> list[Case]:
    """All programs for n processes, n a power of two from 2 on."""
    row, half = list(range(n)), n // 2
    grids = [(n, 1), (1, n), *([(2, half)] if n > 2 else [])]
    made: list[Case] = []

    def add(name: str, text: str, grid: tuple[int, int] = (n, 1), by_mpi: bool = True) -> None:
        made.append(Case(name, text, grid, by_mpi))

    # Groupings.
    add_i64 = _binary("add", "i64")
    for r, p in grids:
        at = f"on {r}x{p}"
        replicas, partitions = list(range(r)), list(range(p))
        flat = f", use_global_device_ids, {_channel(1)}"
        add(f"all_reduce cross_replica {at}", _reduced("i64", add_i64, [replicas]), (r, p))
        add(f"all_reduce cross_replica_and_partition {at}", _reduced("i64", add_i64, [replicas], f", {_channel(1)}"), (r, p))
        add(f"all_reduce flattened_ids {at}", _reduced("i64", add_i64, [row[::-1]], flat), (r, p))
        add(f"all_reduce of two groups {at}", _reduced("i64", add_i64, [row[::2], row[1::2]], flat), (r, p))
        add(f"all_reduce without groups {at}", _reduced("i64", add_i64, []), (r, p))
        ring = _dense([[s, (s + 1) % p] for s in partitions])
        op = f'"stablehlo.collective_permute"(%x) {{source_target_pairs = {ring}, {_channel(1)}}}'
        add(f"collective_permute cross_partition {at}", _one(op, "2x3xf32", "2x3xf32"), (r, p))
        op = f""""stablehlo.all_to_all"(%x) {{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = {p} : i64,
          replica_groups = {_dense([partitions])}, {_channel(1)}}}"""
        add(f"all_to_all cross_partition {at}", _one(op, f"3x{2 * p}xf32", f"{3 * p}x2xf32"), (r, p))
    groups = _dense([row])

    # Bodies and element types.
    for element in ("f16", "bf16", "f8E4M3FN", "f32", "f64", "i4", "i8", "ui8", "i32", "ui64", "complex<f32>", "i1"):
        name = "or" if element == "i1" else "add"
        add(f"all_reduce {name} {element}", _reduced(element, _binary(name, element), [row], size=7))
    for name, element in (
        ("maximum", "f32"), ("minimum", "bf16"), ("maximum", "i32"), ("multiply", "f32"), ("multiply", "i32"), ("and", "i32"),
        ("xor", "i1"), ("xor", "ui8"),
    ):  # fmt: skip
        add(f"all_reduce {name} {element}", _reduced(element, _binary(name, element), [row]))
    own = _body("%m = stablehlo.multiply %p, %q : T\n%a = stablehlo.add %p, %q : T\n%s = stablehlo.add %a, %m : T", "i64")
    add("all_reduce by a body of its own", _reduced("i64", own, [row]))
    add("all_reduce by a wider body", _reduced("bf16", _binary("add", "f32"), [row], result="f32"))
    for name, element in (("add", "f32"), ("maximum", "f32"), ("add", "bf16")):
        op = f'"stablehlo.reduce_scatter"(%x) {_binary(name, element)} {{scatter_dimension = 1 : i64, replica_groups = {groups}}}'
        add(f"reduce_scatter {name} {element}", _one(op, f"3x{2 * n}x2x{element}", f"3x2x2x{element}"))

    # Moves.
    for element in ("f32", "bf16", "i1", "complex<f64>", "i4"):
        op = f'"stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, replica_groups = {groups}}}'
        add(f"all_gather {element}", _one(op, f"2x3x{element}", f"2x{3 * n}x{element}"))
    add("all_gather of two values", f"""func.func @main(%x: tensor<2xf32>, %y: tensor<2xi32>) -> (tensor<{2 * n}xf32>, tensor<{2 * n}xi32>) {{
      %r:2 = "stablehlo.all_gather"(%x, %y) {{all_gather_dim = 0 : i64, replica_groups = {groups}}}
        : (tensor<2xf32>, tensor<2xi32>) -> (tensor<{2 * n}xf32>, tensor<{2 * n}xi32>)
      return %r#0, %r#1 : tensor<{2 * n}xf32>, tensor<{2 * n}xi32> }}""")
    op = f"""all_to_all"(%x) {{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {n} : i64,
      replica_groups = {groups}}}"""
    add("all_to_all in one dimension", _one(f'"stablehlo.{op}', f"{2 * n}x3xf32", f"{2 * n}x3xf32"))
    chain = _dense([[s, s + 1] for s in range(n - 1)])
    op = f'"stablehlo.collective_permute"(%x) {{source_target_pairs = {chain}}}'
    add("collective_permute along a chain", _one(op, "4xf64", "4xf64"))
    op = f'"stablehlo.collective_broadcast"(%x) {{replica_groups = {_dense([[n - 1, 0]])}}}'
    add("collective_broadcast, not to all", _one(op, "1x2xf32", "1x2xf32"))
    # Its groups meet for the first time, after the broadcast above, in which not all took part.
    crossed, flat = [[k + half, k] for k in range(half)], f", use_global_device_ids, {_channel(1)}"
    add("all_reduce of groups that are new", _reduced("f64", _binary("add", "f64"), crossed, flat))
    add("all_reduce of nothing", _reduced("f32", _binary("add", "f32"), [row], size=0))
    op = f'"stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, replica_groups = {groups}}}'
    add("all_gather of nothing", _one(op, "0x3xf32", f"0x{3 * n}xf32"))
    op = f'"stablehlo.cross-replica-sum"(%x) {{replica_groups = {groups}}}'
    add("cross-replica-sum", _one(op, "4xf32", "4xf32"), by_mpi=False)
    roots = ", ".join(str(k % n) for k in (1, 0))
    add("collective_broadcast from roots that are values", f"""func.func @main(%x: tensor<1xf32>, %y: tensor<2xi32>) -> (tensor<1xf32>, tensor<2xi32>) {{
      %c = stablehlo.constant dense<[{roots}]> : tensor<2xi32>
      %r:2 = "stablehlo.collective_broadcast"(%x, %y, %c) {{replica_groups = {groups}, has_dynamic_root}}
        : (tensor<1xf32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<1xf32>, tensor<2xi32>)
      return %r#0, %r#1 : tensor<1xf32>, tensor<2xi32> }}""")
    quantized = "!quant.uniform<i8:f32, 0.5:1>"
    op = f'"stablehlo.all_gather"(%y) {{all_gather_dim = 0 : i64, replica_groups = {groups}}}'
    add("all_gather of quantized values", f"""func.func @main(%x: tensor<2xf32>) -> tensor<{2 * n}xf32> {{
      %y = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x{quantized}>
      %g = {op} : (tensor<2x{quantized}>) -> tensor<{2 * n}x{quantized}>
      %r = stablehlo.uniform_dequantize %g : (tensor<{2 * n}x{quantized}>) -> tensor<{2 * n}xf32>
      return %r : tensor<{2 * n}xf32> }}""", by_mpi=False)

    # With kernels around them, in loops and branches.
    for r, p in grids:
        add(f"each process knows its place on {r}x{p}", """func.func @main() -> (tensor<ui32>, tensor<ui32>) {
          %r = stablehlo.replica_id : tensor<ui32>
          %p = stablehlo.partition_id : tensor<ui32>
          return %r, %p : tensor<ui32>, tensor<ui32> }""", (r, p))
    add("softmax over all processes", f"""func.func @main(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {{
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %m0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<6x8xf32>, tensor<f32>) -> tensor<6xf32>
      %m = "stablehlo.all_reduce"(%m0) {_binary("maximum", "f32")} {{replica_groups = {groups}}} : (tensor<6xf32>) -> tensor<6xf32>
      %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<6xf32>) -> tensor<6x8xf32>
      %d = stablehlo.subtract %x, %mb : tensor<6x8xf32>
      %e = stablehlo.exponential %d : tensor<6x8xf32>
      %z0 = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x8xf32>, tensor<f32>) -> tensor<6xf32>
      %z = "stablehlo.all_reduce"(%z0) {_binary("add", "f32")} {{replica_groups = {groups}}} : (tensor<6xf32>) -> tensor<6xf32>
      %zb = stablehlo.broadcast_in_dim %z, dims = [0] : (tensor<6xf32>) -> tensor<6x8xf32>
      %y = stablehlo.divide %e, %zb : tensor<6x8xf32>
      return %y : tensor<6x8xf32> }}""")
    ring = _dense([[s, (s + 1) % n] for s in row])
    add("a ring in a loop", f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %end = stablehlo.constant dense<{n - 1}> : tensor<i32>
      %r:3 = stablehlo.while(%i = %zero, %a = %x, %s = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
        cond {{ %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1> }}
        do {{ %j = stablehlo.add %i, %one : tensor<i32>
          %b = "stablehlo.collective_permute"(%a) {{source_target_pairs = {ring}}} : (tensor<4xf32>) -> tensor<4xf32>
          %t = stablehlo.add %s, %b : tensor<4xf32>
          stablehlo.return %j, %b, %t : tensor<i32>, tensor<4xf32>, tensor<4xf32> }}
      return %r#2 : tensor<4xf32> }}""")

    made.append(Case("a sum beside a product that has nothing to do with it", f"""func.func @main(%x: tensor<64xf32>, %y: tensor<64x64xf32>) -> tensor<64xf32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = "stablehlo.all_reduce"(%x) {_binary("add", "f32")} {{replica_groups = {groups}}} : (tensor<64xf32>) -> tensor<64xf32>
      %g = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = {groups}}} : (tensor<64xf32>) -> tensor<{64 * n}xf32>
      %p = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %q = stablehlo.dot_general %p, %s, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
      %m = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<{64 * n}xf32>, tensor<f32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %m, dims = [] : (tensor<f32>) -> tensor<64xf32>
      %r = stablehlo.add %q, %b : tensor<64xf32>
      return %r : tensor<64xf32> }}""", (n, 1), overlaps=True))

    # Tokens: the evaluator runs these programs, and its processes meet over MPI.
    pairs = f"source_target_pairs = {_dense([[0, 1], [1, 0]])}"
    add("messages in the order of tokens", f"""func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {{
      %t0 = stablehlo.create_token : !stablehlo.token
      %y = stablehlo.negate %x : tensor<3xf32>
      %t1 = "stablehlo.send"(%x, %t0) {{{_channel(1, 1)}, {pairs}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %t2 = "stablehlo.send"(%y, %t1) {{{_channel(1, 1)}, {pairs}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %a:2 = "stablehlo.recv"(%t2) {{{_channel(1, 1)}, {pairs}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      %b:2 = "stablehlo.recv"(%a#1) {{{_channel(1, 1)}, {pairs}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      return %a#0, %b#0 : tensor<3xf32>, tensor<3xf32> }}""", by_mpi=False)
    add("messages that nobody takes, which are gone in the next call", f"""func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
      %t0 = stablehlo.create_token : !stablehlo.token
      %y = stablehlo.negate %x : tensor<3xf32>
      %t1 = "stablehlo.send"(%x, %t0) {{{_channel(1, 1)}, {pairs}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %t2 = "stablehlo.send"(%y, %t1) {{{_channel(1, 1)}, {pairs}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %a:2 = "stablehlo.recv"(%t2) {{{_channel(1, 1)}, {pairs}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      return %a#0 : tensor<3xf32> }}""", by_mpi=False)
    far = _channel(1 + (1 << 14), 1)
    add("messages of channels of large numbers", f"""func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {{
      %t0 = stablehlo.create_token : !stablehlo.token
      %y = stablehlo.negate %x : tensor<3xf32>
      %t1 = "stablehlo.send"(%x, %t0) {{{_channel(1, 1)}, {pairs}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %t2 = "stablehlo.send"(%y, %t1) {{{far}, {pairs}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %a:2 = "stablehlo.recv"(%t2) {{{far}, {pairs}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      %b:2 = "stablehlo.recv"(%a#1) {{{_channel(1, 1)}, {pairs}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      return %a#0, %b#0 : tensor<3xf32>, tensor<3xf32> }}""", by_mpi=False)
    # Channels without pairs: the oldest message is whoever's asks first, in the grid's order. (XLA's host transfers are written so.)
    add("a message from the last process to the first", f"""func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
      %t0 = stablehlo.create_token : !stablehlo.token
      %me = stablehlo.replica_id : tensor<ui32>
      %zero = stablehlo.constant dense<0> : tensor<ui32>
      %last = stablehlo.constant dense<{n - 1}> : tensor<ui32>
      %is_first = stablehlo.compare EQ, %me, %zero : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      %is_last = stablehlo.compare EQ, %me, %last : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      %y = "stablehlo.if"(%is_last) ({{
        %t = "stablehlo.send"(%x, %t0) {{{_channel(7, 2)}, is_host_transfer = true}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
        stablehlo.return %x : tensor<3xf32> }}, {{
        %r = "stablehlo.if"(%is_first) ({{
          %v:2 = "stablehlo.recv"(%t0) {{{_channel(7, 3)}, is_host_transfer = true}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
          stablehlo.return %v#0 : tensor<3xf32> }}, {{
          stablehlo.return %x : tensor<3xf32> }}) : (tensor<i1>) -> tensor<3xf32>
        stablehlo.return %r : tensor<3xf32> }}) : (tensor<i1>) -> tensor<3xf32>
      return %y : tensor<3xf32> }}""", by_mpi=False)
    add("messages that all send and all take, and a sum between", f"""func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {{
      %t0 = stablehlo.create_token : !stablehlo.token
      %t1 = "stablehlo.send"(%x, %t0) {{{_channel(1, 1)}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %s = "stablehlo.all_reduce"(%x) {_binary("add", "f32")} {{replica_groups = {groups}}} : (tensor<3xf32>) -> tensor<3xf32>
      %t2 = "stablehlo.send"(%s, %t1) {{{_channel(1, 1)}}} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      %a:2 = "stablehlo.recv"(%t2) {{{_channel(1, 1)}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      %b:2 = "stablehlo.recv"(%a#1) {{{_channel(1, 1)}}} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
      return %a#0, %b#0, %s : tensor<3xf32>, tensor<3xf32>, tensor<3xf32> }}""", by_mpi=False)
    made.append(Case("sums of what is fed in", f"""module {{
      func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
        %t0 = stablehlo.create_token : !stablehlo.token
        %a:2 = "stablehlo.infeed"(%t0) : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
        %b:2 = "stablehlo.infeed"(%a#1) : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
        %d = stablehlo.subtract %a#0, %b#0 : tensor<3xf32>
        %t1 = "stablehlo.outfeed"(%d, %b#1) : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
        %m = stablehlo.multiply %d, %x : tensor<3xf32>
        %r = "stablehlo.all_reduce"(%m) {_binary("add", "f32")} {{replica_groups = {groups}}} : (tensor<3xf32>) -> tensor<3xf32>
        return %r : tensor<3xf32> }}
      func.func @feed() -> tensor<3xf32> {{
        %0 = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
        return %0 : tensor<3xf32> }}
      func.func @more() -> tensor<3xf32> {{
        %0 = stablehlo.constant dense<[-2.0, 0.0, 5.0]> : tensor<3xf32>
        return %0 : tensor<3xf32> }}
      }}""", (n, 1), by_mpi=False, infeed=("feed", "more")))
    add("an asynchronous all_gather", f"""func.func @main(%x: tensor<4xf32>) -> tensor<{4 * n}xf32> {{
      %f = "stablehlo.async_start"(%x) ({{
        ^bb0(%a: tensor<4xf32>):
          %g = "stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64, replica_groups = {groups}}} : (tensor<4xf32>) -> tensor<{4 * n}xf32>
          stablehlo.return %g : tensor<{4 * n}xf32>
      }}) : (tensor<4xf32>) -> !stablehlo.future<tensor<{4 * n}xf32>>
      %r = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<{4 * n}xf32>>) -> tensor<{4 * n}xf32>
      return %r : tensor<{4 * n}xf32> }}""", by_mpi=False)
    return made
