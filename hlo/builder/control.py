"""Control flow, calls, folds with sub-computations, collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlo.attributes import ChannelHandle
from hlo.builder.core import BuilderCore, Region, Results, _caller, flat
from hlo.errors import VerificationError
from hlo.module import Value
from hlo.types import TensorType

__all__ = ["Control"]

Groups = Sequence[Sequence[int]]


def unpacked(values: tuple[Value, ...]) -> Results:
    """One result as itself, several as a tuple."""
    return values[0] if len(values) == 1 else values


class Control(BuilderCore):
    """while, conditional, call, map, reduce, sort, collectives."""

    def while_(self, condition: Region, body: Region, init: Value | Sequence[Value]) -> Results:
        """body again and again, from init, while condition holds; both take and body returns values of init's types."""
        values = flat((init,))
        types = [v.type for v in values]
        regions = (self.region(condition, types), self.region(body, types))
        return unpacked(self.emit("stablehlo.while", values, {}, regions))

    def conditional(self, selector: Value, *rest: Any) -> Results:
        """`(pred, true_operand, true_computation, false_operand, false_computation)` runs one of two;
        `(branch_index, branch_computations, branch_operands)` one of several, the last where the index is out of range.

        An operand may be a sequence: the computation then takes that many arguments.
        """
        if len(rest) == 4:
            t, on_true, f, on_false = rest
            regions = tuple(self.region(self._applied(c, x), ()) for c, x in ((on_true, t), (on_false, f)))
            return unpacked(self.emit("stablehlo.if", (selector,), {}, regions))
        if len(rest) != 2 or not all(isinstance(r, tuple | list) for r in rest) or len(rest[0]) != len(rest[1]):
            raise VerificationError(
                "expected (pred, operand, computation, operand, computation) or (index, computations, operands), one operand for "
                f"each computation, found {len(rest) + 1} arguments", _caller(), op="stablehlo.case", constraint="arguments",
            )  # fmt: skip
        branches = [self.region(self._applied(c, x), ()) for c, x in zip(*rest, strict=True)]
        return unpacked(self.emit("stablehlo.case", (selector,), {}, branches))

    @staticmethod
    def _applied(computation: Region, operand: Any) -> Callable[[], Any]:
        return lambda: computation(*flat((operand,)))

    def if_(self, pred: Value, true_branch: Region, false_branch: Region) -> Results:
        """One of two computations without arguments; they use values from outside of them."""
        return unpacked(self.emit("stablehlo.if", (pred,), {}, [self.region(c, ()) for c in (true_branch, false_branch)]))

    def case(self, index: Value, branches: Sequence[Region]) -> Results:
        """One of several computations without arguments, the last where the index is out of range."""
        return unpacked(self.emit("stablehlo.case", (index,), {}, [self.region(c, ()) for c in branches]))

    def call(self, computation: Region | str, *operands: Value) -> Results:
        """The results of a function of the module: the one that `computation` builds, or the one of that name."""
        args = flat(operands)
        name = computation if isinstance(computation, str) else self.function(computation, [v.type for v in args])
        if name not in self.module.functions:
            raise VerificationError(
                f"expected a function of the module, found @{name}", _caller(), op="func.call", constraint="callee"
            )
        types = self.module.functions[name].result_types
        return unpacked(self.emit("func.call", args, {"callee": name}, (), types))

    def composite_call(
        self, computation: Region | str, operands: Sequence[Value], name: str, composite_attributes: Any = None, version: int = 0
    ) -> Results:
        """`call` under a name of its own (stablehlo.composite), which a compiler may know better than its decomposition."""
        args = flat(operands)
        callee = computation if isinstance(computation, str) else self.function(computation, [v.type for v in args])
        attributes = {"name": name, "decomposition": callee, "composite_attributes": composite_attributes, "version": version}
        types = self.module.functions[callee].result_types
        return unpacked(self.emit("stablehlo.composite", args, attributes, (), types))

    def map(self, operands: Sequence[Value], computation: Region, dimensions: Sequence[int] | None = None) -> Value:
        """computation on the scalars of each index."""
        values = flat((operands,))
        body = self.region(computation, [TensorType((), v.tensor.element) for v in values])
        dims = tuple(range(values[0].rank)) if dimensions is None else tuple(dimensions)
        return self.emit("stablehlo.map", values, {"dimensions": dims}, (body,))[0]

    def reduce(
        self, operands: Value | Sequence[Value], init_values: Value | Sequence[Value], computation: Region,
        dimensions: Sequence[int] | None = None,
    ) -> Results:  # fmt: skip
        """Every operand folded over `dimensions` (all of them unless given), beginning with its init value."""
        values, inits = flat((operands,)), flat((init_values,))
        body = self.region(computation, [v.type for v in inits] * 2)
        dims = tuple(range(values[0].rank)) if dimensions is None else tuple(dimensions)
        return unpacked(self.emit("stablehlo.reduce", (*values, *inits), {"dimensions": dims}, (body,)))

    def reduce_all(self, operand: Value, init_value: Value, computation: Region) -> Results:
        """`reduce` over every dimension."""
        return self.reduce(operand, init_value, computation)

    def reduce_window(
        self, operands: Value | Sequence[Value], init_values: Value | Sequence[Value], computation: Region,
        window_dimensions: Sequence[int], window_strides: Sequence[int] | None = None,
        padding: str | Sequence[tuple[int, int]] = "VALID",
        base_dilations: Sequence[int] | None = None, window_dilations: Sequence[int] | None = None,
    ) -> Results:  # fmt: skip
        """A fold over every position of a window; padding in numbers, "SAME" or "VALID"."""
        values, inits = flat((operands,)), flat((init_values,))
        n = len(window_dimensions)
        attributes = {
            "window_dimensions": tuple(window_dimensions), "window_strides": tuple(window_strides or (1,) * n),
            "base_dilations": tuple(base_dilations or (1,) * n), "window_dilations": tuple(window_dilations or (1,) * n),
        }  # fmt: skip
        attributes["padding"] = self._window_padding(values[0], attributes, padding)
        body = self.region(computation, [v.type for v in inits] * 2)
        return unpacked(self.emit("stablehlo.reduce_window", (*values, *inits), attributes, (body,)))

    @staticmethod
    def _window_padding(operand: Value, a: dict[str, Any], padding: str | Sequence[tuple[int, int]]) -> Any:
        if not isinstance(padding, str):
            return tuple((low, high) for low, high in padding)
        window = a["window_dimensions"]
        if padding.upper() == "VALID":
            return ((0, 0),) * len(window)
        if padding.upper() != "SAME" or len(window) != operand.rank or any(s < 1 for s in a["window_strides"]):
            raise VerificationError(
                f"expected padding SAME or VALID and positive strides, found {padding!r}", _caller(),
                op="stablehlo.reduce_window", constraint="padding",
            )  # fmt: skip
        pairs = []
        for size, w, stride, base, dilation in zip(
            operand.shape, window, a["window_strides"], a.get("base_dilations", (1,) * len(window)),
            a.get("window_dilations", (1,) * len(window)), strict=True,
        ):  # fmt: skip
            wide = max(0, (size - 1) * base + 1)
            total = max(0, (-(-wide // stride) - 1) * stride + (w - 1) * dilation + 1 - wide)
            pairs.append((total // 2, total - total // 2))
        return tuple(pairs)

    def select_and_scatter(
        self, operand: Value, select: Region, window_dimensions: Sequence[int], window_strides: Sequence[int],
        padding: str | Sequence[tuple[int, int]], source: Value, init_value: Value, scatter: Region,
    ) -> Value:  # fmt: skip
        """source's elements added by `scatter` where `select` picks an element of each window."""
        a = {"window_dimensions": tuple(window_dimensions), "window_strides": tuple(window_strides)}
        attributes = {**a, "padding": self._window_padding(operand, a, padding)}
        picks = self.region(select, [TensorType((), operand.tensor.element)] * 2)
        adds = self.region(scatter, [TensorType((), source.tensor.element)] * 2)
        return self.emit("stablehlo.select_and_scatter", (operand, source, init_value), attributes, (picks, adds))[0]

    def sort(
        self, operands: Value | Sequence[Value], comparator: Region, dimension: int = -1, is_stable: bool = False
    ) -> Results:
        """The operands put in the order of `comparator` together, along one dimension (the last unless given)."""
        values = flat((operands,))
        types = [TensorType((), v.tensor.element) for v in values for _ in range(2)]
        body = self.region(comparator, types)
        return unpacked(self.emit("stablehlo.sort", values, {"dimension": dimension, "is_stable": is_stable}, (body,)))

    # ------------------------------------------------------------ collectives

    @staticmethod
    def _named(replica_groups: Groups, channel_id: int | None) -> dict[str, Any]:
        channel = None if channel_id is None else ChannelHandle(channel_id, 1)
        return {"replica_groups": tuple(tuple(g) for g in replica_groups), "channel_handle": channel}

    def all_reduce(
        self, operand: Value | Sequence[Value], computation: Region, replica_groups: Groups = (), channel_id: int | None = None
    ) -> Results:
        """Across replicas, folded by `computation`."""
        values = flat((operand,))
        body = self.region(computation, [TensorType((), values[0].tensor.element)] * 2)
        return unpacked(self.emit("stablehlo.all_reduce", values, self._named(replica_groups, channel_id), (body,)))

    def cross_replica_sum(self, operand: Value, replica_groups: Groups = ()) -> Results:
        """all_reduce with a sum."""
        return self.all_reduce(operand, lambda x, y: self.one("stablehlo.add", x, y), replica_groups)

    def all_gather(
        self, operand: Value, all_gather_dim: int, shard_count: int, replica_groups: Groups = (), channel_id: int | None = None
    ) -> Value:
        """The operands of a group of `shard_count` replicas one after the other along a dimension."""
        shape = list(operand.tensor.shape)
        if 0 <= all_gather_dim < len(shape) and shape[all_gather_dim] is not None:
            shape[all_gather_dim] = (shape[all_gather_dim] or 0) * shard_count
        a = {"all_gather_dim": all_gather_dim, **self._named(replica_groups, channel_id)}
        return self.emit("stablehlo.all_gather", (operand,), a, (), [TensorType(tuple(shape), operand.tensor.element)])[0]

    def reduce_scatter(
        self, operand: Value, computation: Region, scatter_dimension: int, shard_count: int, replica_groups: Groups = (),
        channel_id: int | None = None,
    ) -> Value:  # fmt: skip
        """all_reduce, of which each replica keeps its part of a dimension."""
        shape = list(operand.tensor.shape)
        if 0 <= scatter_dimension < len(shape) and shape[scatter_dimension] is not None and shard_count > 0:
            shape[scatter_dimension] = (shape[scatter_dimension] or 0) // shard_count
        body = self.region(computation, [TensorType((), operand.tensor.element)] * 2)
        a = {"scatter_dimension": scatter_dimension, **self._named(replica_groups, channel_id)}
        made = TensorType(tuple(shape), operand.tensor.element)
        return self.emit("stablehlo.reduce_scatter", (operand,), a, (body,), [made])[0]

    def all_to_all(
        self, operand: Value, split_dimension: int, concat_dimension: int, split_count: int, replica_groups: Groups = (),
        channel_id: int | None = None,
    ) -> Results:  # fmt: skip
        """Block i of the split dimension goes to replica i; the blocks received are put one after the other."""
        a = {"split_dimension": split_dimension, "concat_dimension": concat_dimension, "split_count": split_count}
        return unpacked(self.emit("stablehlo.all_to_all", (operand,), {**a, **self._named(replica_groups, channel_id)}))
