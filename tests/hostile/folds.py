"""Steps that fold many elements into one: reductions, windows, contractions, convolutions, cumulative sums; and sorts."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.hostile.elementwise import numbers_of, widened
from tests.hostile.writer import GREATEST, UNSIGNED, Declines, Shape, Val, Writer, tensor

INTEGER_FOLDS = ("add", "add", "maximum", "minimum", "multiply", "xor", "and", "or", "max plus min", "plus and minus", "chosen")
COUNTED = 4000  # what a sum may have of terms


def scalar_body(w: Writer, element: str, name: str) -> str:
    """The region of a fold; some of the names are written in a roundabout way."""
    t = tensor((), element)
    p, q = w.fresh(), w.fresh()
    lines: list[str] = []

    def line(op: str, a: str, b: str) -> str:
        lines.append(f"{w.fresh()} = stablehlo.{op} {a}, {b} : {t}")
        return lines[-1].split(" ")[0]

    if name == "max plus min":
        made = line("add", line("maximum", p, q), line("minimum", p, q))
    elif name == "plus and minus":  # modulo 2^n only
        made = line("subtract", line("add", line("add", p, q), p), p)
    elif name == "chosen":
        kind = "UNSIGNED" if element in UNSIGNED else "FLOAT" if element in GREATEST else "SIGNED"
        c = w.fresh()
        lines.append(f"{c} = stablehlo.compare LT, {p}, {q}, {kind} : ({t}, {t}) -> tensor<i1>")
        made = w.fresh()
        lines.append(f"{made} = stablehlo.select {c}, {q}, {p} : tensor<i1>, {t}")
    else:
        made = line(name, p, q)
    return f" ({{ ^bb0({p}: {t}, {q}: {t}):\n    " + "\n    ".join(lines) + f"\n    stablehlo.return {made} : {t}\n  }})"


def folded(w: Writer, x: Val, count: int) -> tuple[str, str, Val, object]:
    """How x may be folded, `count` elements at a time: the body's name and type, what is known of the result, where it starts."""
    wide = widened(w, x) or x.element
    like = replace(x, element=wide)
    unsigned = x.element in UNSIGNED
    if x.is_integer or x.element == "i1":
        if x.element == "i1":
            return w.random.choice(("and", "or")), wide, like, w.random.choice(("true", "false"))
        name = w.random.choice(INTEGER_FOLDS)
        low, high = w.limits(x.element)
        start = {"maximum": low, "minimum": high, "chosen": low, "multiply": 1, "and": high if unsigned else -1}.get(name, 0)
        return name, wide, replace(like, most=math.inf), start if w.chance(0.7) else w.number(x)
    names = ["add", "add"] if count * max(x.most, 1.0) * 4 < min(x.greatest, replace(x, element=wide).greatest) else []
    if x.is_float:
        names += ["maximum", "minimum"] + ([] if x.special else ["chosen"])
        names += ["max plus min"] if names[0] == "add" and not x.special else []
    if not names:
        raise Declines
    name = w.random.choice(names)
    if name in ("maximum", "minimum", "chosen"):
        return name, wide, replace(like, most=max(3.0, x.most)), w.random.choice((-3.0, 0.0, -1.0))
    return name, wide, replace(like, most=(count * x.most + 3) * 1.1, exact=False), w.random.choice((0, 0, 1))


def reduce(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape)
    dims = sorted(w.random.sample(range(len(x.shape)), w.random.randint(1, len(x.shape))))
    name, wide, like, start = folded(w, x, math.prod(x.shape[k] for k in dims))
    shape = tuple(n for k, n in enumerate(x.shape) if k not in dims)
    z = w.constant(start, (), x.element)
    return w.op("reduce", [x, z], replace(like, shape=shape), numbers_of("dimensions", dims), scalar_body(w, wide, name))


def arg_reduce(w: Writer) -> Val:
    """The greatest number and its place, the first of equal ones: two outputs of one reduction."""
    x = w.pick(lambda v: v.shape and v.exact and (v.is_float or v.is_integer) and not v.special and v.elems)
    k = w.random.randrange(len(x.shape))
    place = w.op("iota", [], Val("", x.shape, "i32", float(x.shape[k])), f"iota_dimension = {k} : i64")
    start = w.constant(-1e2 if x.is_float and x.most <= 8 else w.number(x), (), x.element)
    first = w.constant(-1, (), "i32")
    t, a, b, i, j = tensor((), x.element), w.fresh(), w.fresh(), w.fresh(), w.fresh()
    kind = "UNSIGNED" if x.element in UNSIGNED else "FLOAT" if x.is_float else "SIGNED"
    n = [w.fresh() for _ in range(7)]
    body = f"""({{ ^bb0({a}: {t}, {i}: tensor<i32>, {b}: {t}, {j}: tensor<i32>):
    {n[0]} = stablehlo.compare GT, {a}, {b}, {kind} : ({t}, {t}) -> tensor<i1>
    {n[1]} = stablehlo.compare EQ, {a}, {b}, {kind} : ({t}, {t}) -> tensor<i1>
    {n[2]} = stablehlo.compare LT, {i}, {j}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    {n[3]} = stablehlo.and {n[1]}, {n[2]} : tensor<i1>
    {n[4]} = stablehlo.or {n[0]}, {n[3]} : tensor<i1>
    {n[5]} = stablehlo.select {n[0]}, {a}, {b} : tensor<i1>, {t}
    {n[6]} = stablehlo.select {n[4]}, {i}, {j} : tensor<i1>, tensor<i32>
    stablehlo.return {n[5]}, {n[6]} : {t}, tensor<i32>
  }})"""
    shape = tuple(m for d, m in enumerate(x.shape) if d != k)
    r = w.fresh()
    values = replace(x, name=f"{r}#0", shape=shape, most=max(x.most, 100.0))
    places = Val(f"{r}#1", shape, "i32", float(x.shape[k]))
    given, types = f"{x.name}, {place.name}, {start.name}, {first.name}", f"{x.type}, {place.type}, {t}, tensor<i32>"
    w.lines.append(
        f'{r}:2 = "stablehlo.reduce"({given}) {body} {{dimensions = array<i64: {k}>}}'
        f" : ({types}) -> ({values.type}, {places.type})"
    )
    w.values.append(values)
    return places


def windows(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape and v.elems)
    rank = len(x.shape)
    size = [w.random.choice((1, 1, 2, 3, 5)) for _ in x.shape]
    stride = [w.random.choice((1, 1, 2, 3)) for _ in x.shape]
    holes = [w.random.choice((1, 1, 1, 2)) for _ in x.shape]
    spread = [w.random.choice((1, 1, 2)) for _ in x.shape]
    pads = [[w.random.choice((0, 0, 1, 2)), w.random.choice((0, 0, 1, 2))] for _ in x.shape]
    if w.chance(0.25):  # a cumulative sum, one way or the other
        k = w.random.randrange(rank)
        size, stride, holes, spread, pads = ([1] * rank for _ in range(5))  # type: ignore[misc]
        pads = [[0, 0] for _ in x.shape]
        size[k] = x.shape[k]
        pads[k] = w.random.choice(([x.shape[k] - 1, 0], [0, x.shape[k] - 1]))
    shape = extent(w, x.shape, size, stride, holes, spread, pads)
    name, wide, like, start = folded(w, x, math.prod(size))
    z = w.constant(start, (), x.element)
    attributes = ", ".join(
        numbers_of(n, v) for n, v in (("window_dimensions", size), ("window_strides", stride), ("base_dilations", holes))
    )
    attributes += f", {numbers_of('window_dilations', spread)}, padding = dense<{pads}> : tensor<{rank}x2xi64>"
    return w.op("reduce_window", [x, z], replace(like, shape=shape), attributes, scalar_body(w, wide, name))


def extent(
    w: Writer, shape: Shape, size: list[int], stride: list[int], holes: list[int], spread: list[int], pads: list[list[int]]
) -> Shape:
    """How often windows fit. Raises Declines where that is too often."""
    rows = zip(shape, size, stride, holes, spread, pads, strict=True)
    found = tuple(
        max(0, ((n - 1) * h + 1 if n else 0) + a + b - ((s - 1) * d + 1)) // t + 1
        if ((n - 1) * h + 1 if n else 0) + a + b >= (s - 1) * d + 1 else 0
        for n, s, t, h, d, (a, b) in rows
    )  # fmt: skip
    if math.prod(found) > w.most_elems or math.prod(found) * math.prod(size) > 20 * w.most_elems:
        raise Declines
    return found


def product_type(w: Writer, x: Val, y: Val, count: int) -> Val:
    """What a sum of `count` products of x's and y's elements is. Raises Declines where it may overflow."""
    wide = widened(w, x) or x.element
    if x.is_integer:
        return Val("", (), wide)
    most = max(count, 1) * x.most * y.most
    like = replace(x, element=wide, most=most * 1.1, special=x.special or y.special, exact=False)
    if 4 * most > min(x.greatest, like.greatest):
        raise Declines
    return like


def dot(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape and v.element != "i1")
    roles = [w.random.choice("bkf") if x.shape[k] < 40 else w.random.choice("kf") for k in range(len(x.shape))]
    order = [k for k, r in enumerate(roles) if r != "f"] + [-1] * w.random.randint(0, 2)
    w.random.shuffle(order)
    shape = tuple(w.size() if k < 0 else x.shape[k] for k in order)
    if math.prod(shape) > w.most_elems:
        raise Declines
    fitting = [v for v in w.values if v.shape == shape and v.element == x.element]
    if fitting and w.chance(0.5):
        y = w.random.choice(fitting)
    elif not w.depth and len(w.arguments) < 6:
        how = w.random.choice(["small", "normal"] if x.is_float else ["normal"] if x.is_complex else ["small", "ends"])
        y = w.argument(shape, x.element, how)
    else:
        y = w.constant(w.number(x), shape, x.element, 3.0)
    batch, summed = ([k for k, r in enumerate(roles) if r == c] for c in "bk")
    right_batch, right_summed = ([order.index(k) for k in found] for found in (batch, summed))
    free = [x.shape[k] for k, r in enumerate(roles) if r == "f"]
    result = (*(x.shape[k] for k in batch), *free, *(n for n, k in zip(shape, order, strict=True) if k < 0))
    count = math.prod(x.shape[k] for k in summed)
    if math.prod(result) > w.most_elems or math.prod(result) * count > 150 * w.most_elems:
        raise Declines
    like = product_type(w, x, y, count)
    attributes = (
        f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {right_batch}, "
        f"lhs_contracting_dimensions = {summed}, rhs_contracting_dimensions = {right_summed}>"
    )
    return w.op("dot_general", [x, y], replace(like, shape=result), attributes)


def convolution(w: Writer) -> Val:
    rank = w.random.choice((1, 1, 2, 2, 3))
    element = w.random.choice(("f32", "f32", "f32", "f64", "bf16", "f16", "i8", "i32", "ui8", "f8E5M2", "complex<f32>"))
    groups, batch_groups = w.random.choice(((1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (5, 1), (1, 2), (1, 3)))
    depth = w.random.choice((1, 2, 3, 4, 7, 8, 16, 33)) if groups < 5 else w.random.choice((1, 1, 2))
    outs = w.random.choice((24, 40, 48, 64, 96) if w.is_large else (1, 2, 3, 5, 8, 16, 17, 32)) * groups * batch_groups
    batch = w.random.choice((1, 1, 2, 3)) * batch_groups if not w.chance(0.02) else 0
    size = [w.random.choice((1, 2, 3, 3, 4, 5, 7)) for _ in range(rank)]
    stride = [w.random.choice((1, 1, 2, 3)) for _ in range(rank)]
    holes = [w.random.choice((1, 1, 2, 3)) for _ in range(rank)]
    spread = [w.random.choice((1, 1, 1, 2, 3)) for _ in range(rank)]
    pads = [[w.random.choice((0, 0, 1, 2, 5, -1)), w.random.choice((0, 0, 1, 2, 4, -1))] for _ in range(rank)]
    space = tuple(w.random.choice((1, 2, 3, 5, 7, 9, 11, 13, 14, 17, 23)) for _ in range(rank))
    if w.chance(0.02):
        space = (0, *space[1:])
    places = extent(w, space, size, stride, holes, spread, pads)
    taps = math.prod(size) * depth
    if batch * outs * math.prod(places) > w.most_elems or batch * outs * math.prod(places) * taps > 400 * w.most_elems:
        raise Declines
    if math.prod(space) * depth * groups * batch > w.most_elems or taps * outs > w.most_elems:
        raise Declines
    names = [("b", batch), ("f", depth * groups), *((str(k), n) for k, n in enumerate(space))]
    kernels = [("i", depth), ("o", outs), *((str(k), n) for k, n in enumerate(size))]
    results = [("b", batch // batch_groups), ("f", outs), *((str(k), n) for k, n in enumerate(places))]
    if w.chance(0.5):  # channels last, as frameworks write it
        names, kernels, results = ([*v[:1], *v[2:], v[1]] for v in (names, kernels, results))
        kernels = [*kernels[1:-1], kernels[0], kernels[-1]]
    elif w.chance(0.3):
        for v in (names, kernels, results):
            w.random.shuffle(v)
    data = tuple(n for _, n in names)
    how = None if element in ("i8", "i32", "ui8") else w.random.choice(("small", "normal"))
    how = "normal" if element.startswith("complex") else how
    fitting = [v for v in w.values if v.shape == data and v.element == element]
    x = fitting[-1] if fitting and w.chance(0.6) else w.argument(data, element, how)
    y = w.argument(tuple(n for _, n in kernels), element, how)
    like = product_type(w, x, y, taps)
    listed = ["[" + ", ".join(n for n, _ in v) + "]" for v in (names, kernels, results)]
    attributes = ", ".join(
        numbers_of(n, v) for n, v in (("window_strides", stride), ("lhs_dilation", holes), ("rhs_dilation", spread))
    )
    turned = [w.random.choice(("true", "false", "false", "false")) for _ in range(rank)]
    attributes += (
        f", padding = dense<{pads}> : tensor<{rank}x2xi64>, window_reversal = array<i1: {', '.join(turned)}>, "
        f"dimension_numbers = #stablehlo.conv<{listed[0]}x{listed[1]}->{listed[2]}>, "
        f"feature_group_count = {groups} : i64, batch_group_count = {batch_groups} : i64"
    )
    return w.op("convolution", [x, y], replace(like, shape=tuple(n for _, n in results)), attributes)


def sort(w: Writer) -> Val:
    # The sign of a computed NaN is nobody's promise, and the total order asks for it.
    x = w.pick(lambda v: v.shape and v.exact and (v.is_integer or v.is_float) and not (v.special and v.name[1] == "v"))
    k = w.random.randrange(len(x.shape))
    kind = "UNSIGNED" if x.element in UNSIGNED else "SIGNED" if x.is_integer else "TOTALORDER" if x.special else "FLOAT"
    t, a, b, c = tensor((), x.element), w.fresh(), w.fresh(), w.fresh()
    less = f"{c} = stablehlo.compare {w.random.choice(('LT', 'GT'))}, {a}, {b}, {kind} : ({t}, {t}) -> tensor<i1>"
    tail = f"\n    {less}\n    stablehlo.return {c} : tensor<i1>\n  }})"
    companions = [v for v in w.values if v.shape == x.shape and v is not x]
    attributes = f"dimension = {k} : i64, is_stable = true"
    if not companions or w.chance(0.5):
        return w.op("sort", [x], x, attributes, f" ({{ ^bb0({a}: {t}, {b}: {t}):{tail}")
    y = w.random.choice(companions)
    u = tensor((), y.element)
    r = w.fresh()
    first, second = replace(x, name=f"{r}#0"), replace(y, name=f"{r}#1")
    heads = f"{a}: {t}, {b}: {t}, {w.fresh()}: {u}, {w.fresh()}: {u}"
    w.lines.append(f'{r}:2 = "stablehlo.sort"({x.name}, {y.name}) ({{ ^bb0({heads}):{tail} '
                   f"{{{attributes}}} : ({x.type}, {y.type}) -> ({x.type}, {y.type})")  # fmt: skip
    w.values.append(first)
    return second
