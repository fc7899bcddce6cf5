"""Steps whose places are data (slices, gathers, scatters, selections of windows), and steps with regions that are run or not."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.hostile.elementwise import numbers_of
from tests.hostile.folds import COUNTED, extent, folded, scalar_body
from tests.hostile.writer import UNSIGNED, Declines, Shape, Val, Writer, tensor


def places(w: Writer, shape: Shape) -> Val:
    """Integers that are places, or not quite."""
    found = [v for v in w.values if v.shape == shape and v.is_integer]
    if found and w.chance(0.5):
        return w.random.choice(found)
    if w.depth or len(w.arguments) > 6:
        return w.constant(w.random.choice((0, 1, 3, 100)), shape, "i32")
    element = w.random.choice(("i32", "i32", "i64", "i8", "ui8", "ui32", "ui64"))
    return w.argument(shape, element, w.random.choice(("index", "index", "ends")))


def starts(w: Writer, rank: int) -> list[Val]:
    first = places(w, ())
    alike = [v for v in w.values if v.shape == () and v.element == first.element]
    return [w.random.choice(alike) if alike else first for _ in range(rank)]


def dynamic_slice(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape)
    at = starts(w, len(x.shape))
    sizes = tuple(w.random.randint(min(1, n), n) for n in x.shape)
    return w.op("dynamic_slice", [x, *at], replace(x, shape=sizes), numbers_of("slice_sizes", sizes))


def dynamic_update_slice(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape)
    smaller = [v for v in w.values if v.element == x.element and len(v.shape) == len(x.shape)
               and all(a <= b for a, b in zip(v.shape, x.shape, strict=True))]  # fmt: skip
    if smaller and w.chance(0.7):
        u = w.random.choice(smaller)
    else:
        u = w.constant(w.number(x), tuple(w.random.randint(min(1, n), n) for n in x.shape), x.element, 3.0)
    like = replace(x, most=max(x.most, u.most), special=x.special or u.special, exact=x.exact and u.exact)
    return w.op("dynamic_update_slice", [x, u, *starts(w, len(x.shape))], like)


def gather(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape and v.elems)
    rank = len(x.shape)
    named = w.random.sample(range(rank), w.random.randint(1, rank))
    collapsed = sorted(k for k in named if w.chance(0.6))
    sizes = [1 if k in collapsed else w.random.randint(1, n) if k in named or w.chance(0.3) else n for k, n in enumerate(x.shape)]
    batch = tuple(w.random.choice((1, 2, 3, 5, 17, 40)) for _ in range(w.random.randint(0, 2)))
    vector = w.random.randint(0, len(batch))
    index_shape = (*batch[:vector], len(named), *batch[vector:])
    if len(named) == 1 and w.chance(0.3):
        vector, index_shape = len(batch), batch
    i = places(w, index_shape)
    kept = [s for k, s in enumerate(sizes) if k not in collapsed]
    total = len(batch) + len(kept)
    offset = sorted(w.random.sample(range(total), len(kept)))
    rest, left = iter(batch), iter(kept)
    shape = tuple(next(left) if k in offset else next(rest) for k in range(total))
    if math.prod(shape) > w.most_elems:
        raise Declines
    attributes = (
        f"dimension_numbers = #stablehlo.gather<offset_dims = {offset}, collapsed_slice_dims = {collapsed}, "
        f"start_index_map = {named}, index_vector_dim = {vector}>, {numbers_of('slice_sizes', sizes)}, indices_are_sorted = false"
    )
    return w.op("gather", [x, i], replace(x, shape=shape), attributes)


def scatter(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape and v.elems and v.element != "i1")
    rank = len(x.shape)
    named = w.random.sample(range(rank), w.random.randint(1, rank))
    inserted = sorted(k for k in named if w.chance(0.6))
    window = [w.random.randint(1, n) if k in named or w.chance(0.2) else n for k, n in enumerate(x.shape) if k not in inserted]
    batch = tuple(w.random.choice((1, 2, 5, 17, 40)) for _ in range(w.random.randint(0, 2)))
    vector = w.random.randint(0, len(batch))
    i = places(w, (*batch[:vector], len(named), *batch[vector:]))
    total = len(batch) + len(window)
    dims = sorted(w.random.sample(range(total), len(window)))
    rest, left = iter(batch), iter(window)
    shape = tuple(next(left) if k in dims else next(rest) for k in range(total))
    if math.prod(shape) > w.most_elems:
        raise Declines
    found = [v for v in w.values if v.shape == shape and v.element == x.element]
    if found:
        u = w.random.choice(found)
    elif not w.depth and len(w.arguments) < 7:
        u = w.argument(shape, x.element, "normal" if x.is_complex else "small")
    else:
        u = w.constant(w.number(x), shape, x.element, 3.0)
    both = replace(x, most=max(x.most, u.most), special=x.special or u.special, exact=x.exact and u.exact)
    name, wide, like, _ = folded(w, both,
                                 min(math.prod(batch), COUNTED) + 1)  # fmt: skip
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {dims}, inserted_window_dims = {inserted}, "
        f"scatter_dims_to_operand_dims = {named}, index_vector_dim = {vector}>, indices_are_sorted = false"
        ", unique_indices = false"
    )
    return w.op("scatter", [x, i, u], replace(like, shape=x.shape), attributes, scalar_body(w, wide, name))


def select_and_scatter(w: Writer) -> Val:
    x = w.pick(lambda v: v.shape and v.elems and v.exact and not v.special and (v.is_float or v.is_integer))
    size = [w.random.choice((1, 2, 3)) for _ in x.shape]
    stride = [w.random.choice((1, 2, 3)) for _ in x.shape]
    ones = [1] * len(size)
    pads = [[w.random.randint(0, s - 1), w.random.randint(0, s - 1)] for s in size]
    shape = extent(w, x.shape, size, stride, ones, ones, pads)
    u = w.argument(shape, x.element, "small") if not w.depth and len(w.arguments) < 7 else w.constant(1, shape, x.element, 3.0)
    z = w.constant(0, (), x.element)
    if x.is_float and 400 * max(u.most, 4.0) > x.greatest:
        raise Declines
    name, wide, like, _ = folded(w, u, 81)
    t, a, b, c = tensor((), x.element), w.fresh(), w.fresh(), w.fresh()
    kind = "UNSIGNED" if x.element in UNSIGNED else "FLOAT" if x.is_float else "SIGNED"
    select = (
        f" ({{ ^bb0({a}: {t}, {b}: {t}):\n    {c} = stablehlo.compare {w.random.choice(('GE', 'GT', 'LE'))}, {a}, {b}, {kind}"
        f" : ({t}, {t}) -> tensor<i1>\n    stablehlo.return {c} : tensor<i1>\n  }},"
    )
    attributes = f"{numbers_of('window_dimensions', size)}, {numbers_of('window_strides', stride)}"
    attributes += f", padding = dense<{pads}> : tensor<{len(size)}x2xi64>"
    combine = scalar_body(w, wide, name)
    return w.op("select_and_scatter", [x, u, z], replace(like, shape=x.shape), attributes, f"{select} {combine.lstrip()[1:]}")


# ---------------------------------------------------------------- regions


def inner_value(w: Writer, like: Val) -> Val:
    """A value of like's type made by some steps in a region."""
    from_here = len(w.values)
    for _ in range(w.random.randint(0, 3)):
        w.step_inside()
    fitting = [v for v in w.values[from_here:] if (v.shape, v.element) == (like.shape, like.element)]
    return w.random.choice(fitting) if fitting and w.chance(0.8) else w.partner(like)


def region(w: Writer, like: Val, heads: str = "", inside: tuple[Val, ...] = ()) -> tuple[str, Val]:
    outside, lines = w.values, w.lines
    w.values, w.lines, w.depth = [*outside, *inside], [], w.depth + 1
    try:
        made = inner_value(w, like)
        body = [*w.lines, f"stablehlo.return {made.name} : {made.type}"]
    finally:
        w.values, w.lines, w.depth = outside, lines, w.depth - 1
    return "{" + heads + "\n    " + "\n    ".join(body) + "\n  }", made


def branches(w: Writer) -> Val:
    like = w.pick(lambda v: v.element != "i1")
    if w.chance(0.5):
        q = w.constant(w.random.choice(("true", "false")), (), "i1") if w.chance(0.3) else condition(w)
        name, count = "if", 2
    else:
        q, name, count = int32(w), "case", w.random.randint(1, 4)
    texts, made = zip(*(region(w, like) for _ in range(count)), strict=True)
    known = replace(like, most=max(v.most for v in made), special=any(v.special for v in made), exact=all(v.exact for v in made))
    return w.op(name, [q], known, "", " (" + ", ".join(texts) + ")")


def int32(w: Writer) -> Val:
    found = [v for v in w.values if v.shape == () and v.element == "i32"]
    if found:
        return w.random.choice(found)
    return w.argument((), "i32", w.random.choice(("index", "ends"))) if not w.depth else w.constant(1, (), "i32")


def condition(w: Writer) -> Val:
    i = int32(w)
    n = w.constant(w.random.choice((0, 2, 7)), (), "i32")
    attributes = "comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>"
    return w.op("compare", [i, n], Val("", (), "i1", 1.0), attributes)


def loop(w: Writer) -> Val:
    """A counted loop over one to three values; what is no integer stays within [-8, 8] or is moved only."""
    if w.depth > 1:
        raise Declines
    carried = [w.pick(lambda v: v.element != "i1" and v.elems <= 4000 and (v.is_integer or v.most <= 8.0))
               for _ in range(w.random.randint(1, 3))]  # fmt: skip
    trips = w.constant(w.random.choice((0, 1, 2, 3, 5)), (), "i32")
    zero, one = w.constant(0, (), "i32"), w.constant(1, (), "i32")
    i = Val(w.fresh(), (), "i32")
    inside = [replace(v, name=w.fresh(), most=v.most if v.is_integer else 8.0, exact=v.is_integer) for v in carried]
    types = ", ".join(v.type for v in (i, *inside))
    heads = ", ".join(f"{v.name} = {s.name}" for v, s in zip((i, *inside), (zero, *carried), strict=True))
    test, following = w.fresh(), w.fresh()
    outside, lines = w.values, w.lines
    w.values, w.lines, w.depth = [*outside, *inside], [], w.depth + 1
    try:
        made = []
        for v in inside:
            new = inner_value(w, v)
            if not v.is_integer:
                new = kept_small(w, new, v)
            made.append(new)
        body = w.lines
    finally:
        w.values, w.lines, w.depth = outside, lines, w.depth - 1
    r = w.fresh()
    w.lines.append(f"{r}:{len(inside) + 1} = stablehlo.while({heads}) : {types} cond {{")
    w.lines.append(f"  {test} = stablehlo.compare LT, {i.name}, {trips.name}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>")
    w.lines += [f"  stablehlo.return {test} : tensor<i1>", "} do {", *(f"  {line}" for line in body)]
    w.lines.append(f"  {following} = stablehlo.add {i.name}, {one.name} : tensor<i32>")
    w.lines.append(f"  stablehlo.return {', '.join(v.name for v in (replace(i, name=following), *made))} : {types}")
    w.lines.append("}")
    found = [
        replace(v, name=f"{r}#{k + 1}", special=v.special or m.special) for k, (v, m) in enumerate(zip(inside, made, strict=True))
    ]
    w.values += found[1:]
    return found[0]


def kept_small(w: Writer, new: Val, v: Val) -> Val:
    if new.most <= v.most and not (new.special and not v.special):
        return new
    if v.is_complex or new.most > 1e4 or new.special != v.special:
        return v
    return w.op("tanh", [new], replace(new, most=1.0, exact=False))
