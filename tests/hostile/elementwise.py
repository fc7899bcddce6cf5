"""Steps element by element, and steps that move elements."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.hostile.writer import FLOATS, GREATEST, SIGNED, UNSIGNED, WIDER, Declines, Shape, Val, Writer

SMOOTH = ("tanh", "logistic", "sine", "cosine", "exponential", "exponential_minus_one", "log_plus_one", "cbrt", "sqrt", "rsqrt",
          "log", "tan")  # fmt: skip
AGAIN = ("tanh", "logistic", "sine", "cosine")  # of numbers that are not exact: nowhere steeper than 1
PLAIN = ("negate", "abs")
JUMPS = ("floor", "ceil", "sign", "round_nearest_even", "round_nearest_afz")
SAME_BITS = {
    "f32": ("i32", "ui32", "i16"), "i32": ("f32", "ui32", "ui16"), "f64": ("i64", "ui32"), "i64": ("f64", "ui64", "i32"),
    "f16": ("ui16", "ui8"), "bf16": ("i16", "ui8"), "i16": ("bf16", "f16", "ui8"), "ui8": ("i8",), "ui32": ("f32", "i16"),
}  # fmt: skip
HALVES = {"f32": ("i16",), "i32": ("ui16",), "f64": ("ui32",), "i64": ("i32",), "f16": ("ui8",), "bf16": ("ui8",),
          "i16": ("ui8",), "ui32": ("i16",)}  # fmt: skip


def unary(w: Writer) -> Val:
    x = w.pick(lambda v: v.is_float)
    kind = w.random.choice(["smooth", "smooth", "plain", "jump", "precision"])
    if kind == "plain":
        return w.op(w.random.choice(PLAIN), [x], x)
    if kind == "jump" and x.exact:
        return w.op(w.random.choice(JUMPS), [x], replace(x, most=x.most + 1))
    if kind == "precision" and x.exact:
        bits = w.random.choice([(5, 2), (8, 7), (5, 10), (4, 3), (2, 1)])
        special = True
        return w.op("reduce_precision", [x], replace(x, most=2 * x.most, special=special),
                    f"exponent_bits = {bits[0]} : i32, mantissa_bits = {bits[1]} : i32")  # fmt: skip
    if x.exact:
        name = w.random.choice(SMOOTH)
        calm = name in AGAIN or (name == "cbrt" and x.most < math.inf)
        most = max(2.0, x.most) if calm else math.inf
        return w.op(name, [x], replace(x, exact=False, most=most, special=x.special or not calm))
    if x.most > 1e4:
        raise Declines
    return w.op(w.random.choice(AGAIN), [x], replace(x, most=1.0))


def binary(w: Writer) -> Val:
    x = w.pick(lambda v: v.element != "i1")
    y = w.partner(x)
    if x.is_integer:
        names = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor",
                 "shift_left", "shift_right_logical", "shift_right_arithmetic")  # fmt: skip
        return w.op(w.random.choice(names), [x, y], replace(x, most=math.inf))
    special, exact = x.special or y.special, x.exact and y.exact
    if x.is_complex:
        name = w.random.choice(("add", "subtract", "multiply"))
        most = x.most * y.most if name == "multiply" else x.most + y.most
        if 8 * most > x.greatest:
            raise Declines
        return w.op(name, [x, y], replace(x, most=2 * most, special=special, exact=False))
    name = w.random.choice(("add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "atan2", "power"))
    if name in ("maximum", "minimum"):
        return w.op(name, [x, y], replace(x, most=max(x.most, y.most), special=special, exact=exact))
    if name in ("divide", "remainder", "atan2", "power") and not exact:
        raise Declines
    bounds = {"add": x.most + y.most, "subtract": x.most + y.most, "multiply": x.most * y.most, "atan2": 4.0}
    most = bounds.get(name, math.inf)
    if most > x.greatest / 4:
        if not exact:
            raise Declines
        most, special = math.inf, True
    return w.op(name, [x, y], replace(x, most=most, special=special, exact=exact and name not in ("atan2", "power")))


def integer(w: Writer) -> Val:
    x = w.pick(lambda v: v.is_integer)
    names = ["not", "popcnt", "count_leading_zeros", "negate", *(["abs", "sign"] if x.element in SIGNED else [])]
    return w.op(w.random.choice(names), [x], replace(x, most=math.inf))


def convert(w: Writer) -> Val:
    x = w.pick(lambda v: not v.is_complex)
    if x.is_float and w.chance(0.3):
        if not x.exact or x.special or x.most > 100:
            raise Declines
        return w.op("convert", [x], replace(x, element=w.random.choice(("i8", "i32", "i64", "i16")), most=x.most))
    if x.is_float:
        goal = w.random.choice(FLOATS)
        narrow = x.most > GREATEST[goal] / 2
        if narrow and not x.exact:
            raise Declines
        most = math.inf if narrow else x.most * 2
        return w.op("convert", [x], replace(x, element=goal, special=x.special or narrow, most=most))
    goal = w.random.choice((*SIGNED, *UNSIGNED, *FLOATS, "i1"))
    most = float(max(map(abs, w.limits(x.element)))) if x.is_integer else 1.0
    over = goal in GREATEST and most > GREATEST[goal] / 2
    return w.op("convert", [x], replace(x, element=goal, most=math.inf if over else most, special=over))


def choose(w: Writer) -> Val:
    x = w.pick(lambda v: v.exact and not v.is_complex)
    kind = "UNSIGNED" if x.element in UNSIGNED or x.element == "i1" else "FLOAT" if x.is_float else "SIGNED"
    if x.is_float and not (x.special and x.name[1] == "v") and w.chance(0.3):
        kind = "TOTALORDER"
    direction = w.random.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
    attributes = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
    attributes += f", compare_type = #stablehlo<comparison_type {kind}>"
    p = w.op("compare", [x, w.partner(x, lambda v: v.exact)], Val("", x.shape, "i1", 1.0), attributes)
    w.values.append(p)
    a = w.pick(lambda v: v.shape == x.shape)
    b = w.partner(a)
    most = max(a.most, b.most)
    return w.op("select", [p, a, b], replace(a, most=most, special=a.special or b.special, exact=a.exact and b.exact))


def clamp(w: Writer) -> Val:
    x = w.pick(lambda v: v.is_float or v.is_integer)
    low, high = (0, 3) if x.element in UNSIGNED else (-2, 3)
    a, b = (w.constant(n, () if w.chance(0.5) else x.shape, x.element) for n in (low, high))
    return w.op("clamp", [a, x, b], replace(x, most=3.0))


def bitcast(w: Writer) -> Val:
    """The same bits as integers of the same or of half the size, and integers as floats."""
    x = w.pick(lambda v: v.element in SAME_BITS and (v.is_integer or (v.exact and not v.special)))
    goal = w.random.choice(SAME_BITS[x.element])
    shape = x.shape
    if goal in HALVES.get(x.element, ()):
        shape = (*x.shape, 2)
    is_float = goal in GREATEST
    like = replace(x, element=goal, shape=shape, most=math.inf, special=is_float)
    return w.op("bitcast_convert", [x], like)


def parts(w: Writer) -> Val:
    """Complex numbers from their parts, or one of their parts."""
    x = w.pick(lambda v: v.is_complex or v.element in ("f32", "f64"))
    if x.is_complex:
        name = w.random.choice(("real", "imag", "abs"))
        return w.op(name, [x], replace(x, element=x.element[8:11], most=2 * x.most, exact=x.exact and name != "abs"))
    y = w.partner(x)
    if max(x.most, y.most) > 1e6 or x.special or y.special:
        raise Declines
    return w.op("complex", [x, y], replace(x, element=f"complex<{x.element}>", most=max(x.most, y.most), exact=False))


# ---------------------------------------------------------------- moves


def transpose(w: Writer) -> Val:
    x = w.pick()
    order = list(range(len(x.shape)))
    w.random.shuffle(order)
    like = replace(x, shape=tuple(x.shape[k] for k in order))
    return w.op("transpose", [x], like, "permutation = array<i64" + (": " + ", ".join(map(str, order)) if order else "") + ">")


def reshape(w: Writer) -> Val:
    x = w.pick()
    n = x.elems
    if n == 0:
        shape = list(x.shape) or [0]
        w.random.shuffle(shape)
        return w.op("reshape", [x], replace(x, shape=(*shape, w.random.choice((1, 3)))))
    shape = []
    for _ in range(w.random.randint(0, 3)):
        shape.append(w.random.choice([d for d in range(1, n + 1) if n % d == 0]))
        n //= shape[-1]
    shape.append(n)
    w.random.shuffle(shape)
    return w.op("reshape", [x], replace(x, shape=tuple(shape)))


def broadcast(w: Writer) -> Val:
    x = w.pick(lambda v: len(v.shape) <= 3)
    shape = [w.size() if n == 1 and w.chance(0.5) else n for n in x.shape]
    dims = list(range(len(shape)))
    for _ in range(w.random.randint(0, 2)):
        place = w.random.randint(0, len(shape))
        shape.insert(place, w.size())
        dims = [d + (d >= place) for d in dims]
    return w.op("broadcast_in_dim", [x], replace(x, shape=tuple(shape)), numbers_of("broadcast_dimensions", dims))


def numbers_of(name: str, values: list[int] | tuple[int, ...]) -> str:
    return f"{name} = array<i64{': ' if values else ''}{', '.join(map(str, values))}>"


def slices(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape)
    starts = [w.random.randint(0, n) if w.chance(0.05) else w.random.randint(0, max(0, n - 1)) for n in x.shape]
    ends = [w.random.randint(a if w.chance(0.05) else min(a + 1, n), n) for a, n in zip(starts, x.shape, strict=True)]
    steps = [w.random.choice((1, 1, 2, 3, 7)) for _ in x.shape]
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, ends, steps, strict=True))
    attributes = ", ".join(numbers_of(n, v) for n, v in (("start_indices", starts), ("limit_indices", ends), ("strides", steps)))
    return w.op("slice", [x], replace(x, shape=shape), attributes)


def pad(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape and v.element != "i1")
    low = [w.random.choice((0, 1, 2, -1, -2)) for _ in x.shape]
    high = [w.random.choice((0, 1, 3, -1)) for _ in x.shape]
    inner = [w.random.choice((0, 0, 1, 2)) for _ in x.shape]
    shape = [a + max(n, n + (n - 1) * i) + b if n else a + b for n, a, b, i in zip(x.shape, low, high, inner, strict=True)]
    if min(shape) < 0:
        raise Declines
    c = w.constant(w.number(x), (), x.element)
    attributes = ", ".join(
        numbers_of(n, v) for n, v in (("edge_padding_low", low), ("edge_padding_high", high), ("interior_padding", inner))
    )
    return w.op("pad", [x, c], replace(x, shape=tuple(shape), most=max(x.most, 3.0)), attributes)


def reverse(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape)
    return w.op("reverse", [x], x, numbers_of("dimensions", [k for k in range(len(x.shape)) if w.chance(0.5)]))


def without(shape: Shape, axis: int) -> tuple[Shape, Shape]:
    return shape[:axis], shape[axis + 1 :]


def concatenate(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape)
    axis = w.random.randrange(len(x.shape))
    found = [x]
    for _ in range(w.random.randint(0, 3)):
        found.append(
            w.pick(
                lambda v: (
                    v.element == x.element and len(v.shape) == len(x.shape) and without(v.shape, axis) == without(x.shape, axis)
                ),
                make=False,
            )
        )
    shape = tuple(sum(v.shape[axis] for v in found) if k == axis else n for k, n in enumerate(x.shape))
    like = replace(x, shape=shape, most=max(v.most for v in found), special=any(v.special for v in found),
                   exact=all(v.exact for v in found))  # fmt: skip
    return w.op("concatenate", found, like, f"dimension = {axis} : i64")


def iota(w: Writer) -> Val:
    shape = w.shape(1, 3)
    element = w.random.choice(("i32", "i64", "ui8", "f32", "bf16", "i8"))
    k = w.random.randrange(len(shape))
    return w.op("iota", [], Val("", shape, element, float(shape[k])), f"iota_dimension = {k} : i64")


def widened(w: Writer, x: Val) -> str | None:
    """A type that a body may have instead of x's."""
    return w.random.choice(WIDER[x.element]) if x.element in WIDER and w.chance(0.5) else None
