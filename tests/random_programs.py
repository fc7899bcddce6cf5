"""Random programs with a seed: tensors of small odd shapes through every kind of op that the planner knows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from hlo import Block, Function, Module, Op, TensorType, Value, element_type
from hlo.attributes import DotDimensions
from hlo.module import DenseArray
from hlo.registry import definition
from hlo.types import ElementType, Type

F32, I32, I1 = element_type("f32"), element_type("i32"), element_type("i1")
SIZES = (1, 2, 3, 5, 7, 8, 12, 16, 17, 33)
UNARY = ("exponential", "tanh", "negate", "logistic", "sqrt", "rsqrt", "log_plus_one", "floor", "cosine")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide")


class ProgramBuilder:
    """Appends ops to a function; every op is chosen and sized by `random`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shapes = [tuple(self.random.choice(SIZES) for _ in range(self.random.randint(1, 3))) for _ in range(3)]
        self.block = Block([TensorType(s, F32) for s in self.shapes], [f"x{k}" for k in range(3)])
        self.values: list[Value] = list(self.block.arguments)

    def op(self, name: str, operands: Sequence[Value], attributes: dict[str, object], *types: Type,
           regions: Sequence[Block] = ()) -> Value:  # fmt: skip
        op = Op(definition(name), operands, attributes, regions, types)
        self.block.ops.append(op)
        return op.results[0]

    def constant(self, data: object, element: ElementType = F32) -> Value:
        array = np.array(data, element.dtype)
        t = TensorType(array.shape, element)
        return self.op("stablehlo.constant", [], {"value": DenseArray(t, array)}, t)

    def pick(self, rank: int | None = None) -> Value:
        fitting = [v for v in self.values if rank is None or v.rank == rank]
        # Recent values are preferred, so that chains get deep.
        return fitting[-1 - min(int(self.random.expovariate(0.5)), len(fitting) - 1)] if fitting else self.values[0]

    def step(self) -> None:
        kinds = [self.unary, self.binary, self.binary, self.transpose, self.reshape, self.broadcast, self.reduce, self.reduce,
                 self.dot, self.slice, self.concatenate, self.pad, self.reverse, self.mask, self.normalise]  # fmt: skip
        made = self.random.choice(kinds)()
        if made is not None and made.tensor.size_elems <= 40_000:
            self.values.append(made)

    def unary(self) -> Value:
        x = self.pick()
        name = self.random.choice(UNARY)
        if name in ("sqrt", "rsqrt", "log_plus_one"):
            x = self.op("stablehlo.multiply", [x, x], {}, x.type)
            if name == "rsqrt":
                x = self.op("stablehlo.add", [x, self.spread(self.constant(1.5), x)], {}, x.type)
        if name == "exponential":
            x = self.op("stablehlo.tanh", [x], {}, x.type)
        return self.op(f"stablehlo.{name}", [x], {}, x.type)

    def spread(self, scalar: Value, like: Value) -> Value:
        t = TensorType(like.shape, scalar.tensor.element)
        return self.op("stablehlo.broadcast_in_dim", [scalar], {"broadcast_dimensions": ()}, t)

    def partner(self, x: Value) -> Value:
        same = [v for v in self.values if v.shape == x.shape and v.tensor.element == x.tensor.element]
        if same and self.random.random() < 0.7:
            return self.random.choice(same)
        return self.spread(self.constant(self.random.choice((0.5, 2.0, -1.25))), x)

    def binary(self) -> Value:
        x = self.pick()
        y = self.partner(x)
        name = self.random.choice(BINARY)
        if name == "divide":
            y = self.op("stablehlo.exponential", [self.op("stablehlo.tanh", [y], {}, y.type)], {}, y.type)
        return self.op(f"stablehlo.{name}", [x, y], {}, x.type)

    def transpose(self) -> Value:
        x = self.pick()
        p = list(range(x.rank))
        self.random.shuffle(p)
        return self.op(
            "stablehlo.transpose", [x], {"permutation": tuple(p)}, TensorType(tuple(x.shape[k] for k in p), F32)
        )

    def reshape(self) -> Value:
        x = self.pick()
        n = x.tensor.size_elems
        shape = []
        for _ in range(self.random.randint(0, 2)):
            divisor = self.random.choice([d for d in range(1, n + 1) if n % d == 0])
            shape.append(divisor)
            n //= divisor
        return self.op("stablehlo.reshape", [x], {}, TensorType((*shape, n), F32))

    def broadcast(self) -> Value | None:
        x = self.pick()
        if x.rank > 2:
            return None
        place = self.random.randint(0, x.rank)
        shape = list(x.shape)
        shape.insert(place, self.random.choice(SIZES))
        dims = tuple(k if k < place else k + 1 for k in range(x.rank))
        return self.op(
            "stablehlo.broadcast_in_dim", [x], {"broadcast_dimensions": dims}, TensorType(tuple(shape), F32)
        )

    def body(self, name: str) -> Block:
        scalar = TensorType((), F32)
        block = Block([scalar, scalar])
        result = Op(definition(name), block.arguments, {}, (), (scalar,))
        block.ops += [result, Op(definition("stablehlo.return"), result.results)]
        return block

    def reduce(self) -> Value | None:
        x = self.pick()
        if not x.rank:
            return None
        dims = tuple(sorted(self.random.sample(range(x.rank), self.random.randint(1, x.rank))))
        name, start = self.random.choice((("add", 0.0), ("maximum", -np.inf), ("minimum", np.inf), ("add", 0.5)))
        init = self.constant(start)
        shape = tuple(n for k, n in enumerate(x.shape) if k not in dims)
        return self.op("stablehlo.reduce", [x, init], {"dimensions": dims}, TensorType(shape, F32),
                       regions=[self.body(f"stablehlo.{name}")])  # fmt: skip

    def dot(self) -> Value | None:
        x = self.pick()
        if not x.rank:
            return None
        k = self.random.randrange(x.rank)
        free = self.random.choice(SIZES)
        shape = [x.shape[k], free] if self.random.random() < 0.5 else [free, x.shape[k]]
        contracted = shape.index(x.shape[k])
        fitting = [v for v in self.values if v.rank == 2 and x.shape[k] in v.shape]
        if fitting and self.random.random() < 0.6:
            y = self.random.choice(fitting)
            contracted = y.shape.index(x.shape[k])
        else:
            data = np.random.default_rng(self.random.randrange(1 << 30)).standard_normal(shape).astype(np.float32)
            y = self.constant(data)
        dims = DotDimensions((), (), (k,), (contracted,))
        out = (*(n for i, n in enumerate(x.shape) if i != k), *(n for i, n in enumerate(y.shape) if i != contracted))
        return self.op("stablehlo.dot_general", [x, y], {"dot_dimension_numbers": dims}, TensorType(out, F32))

    def slice(self) -> Value:
        x = self.pick()
        starts, limits, strides = [], [], []
        for n in x.shape:
            a = self.random.randint(0, n - 1)
            starts.append(a)
            limits.append(self.random.randint(a + 1, n))
            strides.append(self.random.choice((1, 1, 2, 3)))
        shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, strides, strict=True))
        attributes = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(strides)}
        return self.op("stablehlo.slice", [x], attributes, TensorType(shape, F32))

    def concatenate(self) -> Value | None:
        x = self.pick()
        if not x.rank:
            return None
        axis = self.random.randrange(x.rank)
        parts = [x, self.partner(x)]
        shape = tuple(2 * n if k == axis else n for k, n in enumerate(x.shape))
        return self.op("stablehlo.concatenate", parts, {"dimension": axis}, TensorType(shape, F32))

    def pad(self) -> Value:
        x = self.pick()
        low = tuple(self.random.choice((0, 1, 2, -1 if n > 3 else 0)) for n in x.shape)
        high = tuple(self.random.choice((0, 1, 3)) for _ in x.shape)
        inner = tuple(self.random.choice((0, 0, 1)) for _ in x.shape)
        shape = tuple(a + n + (n - 1) * i + b for n, a, b, i in zip(x.shape, low, high, inner, strict=True))
        attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
        return self.op("stablehlo.pad", [x, self.constant(0.25)], attributes, TensorType(shape, F32))

    def reverse(self) -> Value:
        x = self.pick()
        dims = tuple(k for k in range(x.rank) if self.random.random() < 0.5)
        return self.op("stablehlo.reverse", [x], {"dimensions": dims}, x.type)

    def mask(self) -> Value | None:
        x = self.pick()
        if x.rank < 2:
            return None
        a, b = self.random.sample(range(x.rank), 2)
        t = TensorType(x.shape, I32)
        rows = self.op("stablehlo.iota", [], {"iota_dimension": a}, t)
        columns = self.op("stablehlo.iota", [], {"iota_dimension": b}, t)
        direction = self.random.choice(("GE", "GT", "LE", "LT", "EQ", "NE"))
        attributes = {"comparison_direction": direction, "compare_type": "SIGNED"}
        p = self.op("stablehlo.compare", [rows, columns], attributes, TensorType(x.shape, I1))
        return self.op("stablehlo.select", [p, x, self.partner(x)], {}, x.type)

    def normalise(self) -> Value | None:
        """Softmax-like: an exponential read by a reduction and by what divides by it."""
        x = self.pick()
        if not x.rank:
            return None
        e = self.op("stablehlo.exponential", [self.op("stablehlo.tanh", [x], {}, x.type)], {}, x.type)
        axis = self.random.randrange(x.rank)
        shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
        z = self.op("stablehlo.reduce", [e, self.constant(0)], {"dimensions": (axis,)},
                    TensorType(shape, F32), regions=[self.body("stablehlo.add")])  # fmt: skip
        dims = tuple(k for k in range(x.rank) if k != axis)
        wide = self.op("stablehlo.broadcast_in_dim", [z], {"broadcast_dimensions": dims}, x.type)
        return self.op("stablehlo.divide", [e, wide], {}, x.type)


def random_program(seed: int, steps: int = 12) -> tuple[Module, list[np.ndarray]]:
    """A program of about `steps` ops with one to three results, and its inputs."""
    builder = ProgramBuilder(seed)
    for _ in range(steps):
        builder.step()
    made = builder.values[3:] or builder.values
    results = list(
        dict.fromkeys([made[-1], *builder.random.sample(made, min(len(made), builder.random.randint(0, 2)))])
    )
    builder.block.ops.append(Op(definition("func.return"), results))
    module = Module({"main": Function("main", builder.block, result_types=tuple(r.type for r in results))})
    generator = np.random.default_rng(seed)
    return module, [generator.standard_normal(s).astype(np.float32) for s in builder.shapes]
