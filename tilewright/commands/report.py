"""Results as tables for people and as plain data for programs; both are made from the same values."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilewright.check import Comparison, Tolerance

if TYPE_CHECKING:
    from tilewright.bisect import Culprit, KernelCheck
    from tiling import Plan, Proof

__all__ = [
    "checks",
    "fusions",
    "jsonable",
    "printable",
    "proof",
    "show_check",
    "show_fusions",
    "show_kernel_checks",
    "show_maps",
    "show_run",
]


# ---------------------------------------------------------------- plain data


def fusions(plan: Plan) -> list[dict[str, Any]]:
    """A plan's fusions: name, ops in program order, tile sizes, bytes of scratch and of traffic."""
    return [
        {
            "name": f.name,
            "ops": [op.name for op in f.ops],
            "tile_sizes": _tile_sizes(f.tile_sizes),
            "scratch_bytes": int(f.scratch_bytes),
            "bytes_unfused": int(f.bytes_unfused),
            "bytes_fused": int(f.bytes_fused),
        }
        for p in plan.nested()
        for f in p.fusions
    ]


def _tile_sizes(sizes: Any) -> Any:
    if isinstance(sizes, Mapping):
        return {str(k): int(v) for k, v in sizes.items()}
    return [int(v) for v in sizes]


def checks(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The check's outcome: whether all passed, and for each output its largest errors and what was allowed."""
    return {
        "passed": all(c.passed for c in comparisons),
        "outputs": [
            {
                "shape": list(c.shape),
                "dtype": c.dtype,
                "passed": c.passed,
                "max_abs": c.max_abs,
                "max_rel": c.max_rel,
                "max_ulp": c.max_ulp,
                "allowed_rel": c.tolerance.relative,
                "allowed_ulp": c.tolerance.ulps,
                "mismatched_elems": c.mismatched_elems,
                "worst_index": None if c.worst_index is None else list(c.worst_index),
                "worst_actual": c.worst_actual,
                "worst_expected": c.worst_expected,
            }
            for c in comparisons
        ],
    }


def jsonable(value: Any) -> Any:
    """The value in JSON's terms: no NaN or infinity (they become strings), complex numbers as pairs, NumPy scalars as numbers.

    >>> jsonable({"a": (1.5, float("inf")), "b": 2 + 1j})
    {'a': [1.5, 'inf'], 'b': [2.0, 1.0]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, complex):
        return [jsonable(value.real), jsonable(value.imag)]
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, Iterable):
        return [jsonable(v) for v in value]
    number = float(value)
    return number if math.isfinite(number) else str(number)


# ---------------------------------------------------------------- text


def printable(text: str) -> str:
    """The text with control characters spelled out, so that a program's names cannot steer a terminal.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def bytes_text(n: float) -> str:
    """A count of bytes for people.

    >>> bytes_text(512), bytes_text(67108864)
    ('512 B', '64.0 MiB')
    """
    if n < 1024:
        return f"{n:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        n /= 1024
        if n < 1024:
            return f"{n:.1f} {unit}"
    return f"{n / 1024:.1f} TiB"


def seconds_text(s: float) -> str:
    """A duration for people.

    >>> seconds_text(0.0000042), seconds_text(0.0123), seconds_text(2.5)
    ('4.2 µs', '12.3 ms', '2.50 s')
    """
    if s < 1e-3:
        return f"{s * 1e6:.1f} µs"
    return f"{s * 1e3:.1f} ms" if s < 1.0 else f"{s:.2f} s"


def ops_text(names: Sequence[str]) -> str:
    """Op names without dialects, in order of first appearance, with how often each appears.

    >>> ops_text(["stablehlo.add", "chlo.erf", "stablehlo.add"])
    'add ×2, erf'
    """
    counts = Counter(n.partition(".")[2] or n for n in names)
    return ", ".join(n if k == 1 else f"{n} ×{k}" for n, k in counts.items())


def _tiles_text(sizes: Any) -> str:
    if isinstance(sizes, dict):
        return " ".join(f"{k}={v}" for k, v in sizes.items()) or "-"
    return "×".join(map(str, sizes)) or "-"


_PIPE_WIDTH = 160  # in a pipe there is no terminal to ask
_LEAST_WIDTH = 80


def _table(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table; a column is (heading, "left" | "right" | "fold"). The cells are text, never markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Below the least width, lines that the terminal breaks say more than columns that are cut to nothing.
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH) if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(width=width, emoji=False, markup=False, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, side in columns:
        justify: Literal["left", "right"] = "right" if side == "right" else "left"
        table.add_column(heading, justify=justify, no_wrap=side != "fold", max_width=60 if side == "fold" else None)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    with console.capture() as shown:
        console.print(table)
    console.print(Text(title), style="bold")
    # rich pads every line to the table's width, which is of no use to anyone who copies from it.
    console.file.write("\n".join(line.rstrip() for line in shown.get().rstrip().split("\n")) + "\n\n")


def show_fusions(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of fusions: ops, tile sizes, scratch, bytes moved unfused and fused."""
    _table(
        "Fusions",
        [("#", "right"), ("name", "left"), ("ops", "fold"), ("tiles", "left"), ("scratch", "right"),
         ("moved unfused", "right"), ("moved fused", "right")],
        [
            (
                str(k),
                f["name"],
                ops_text(f["ops"]),
                _tiles_text(f["tile_sizes"]),
                bytes_text(f["scratch_bytes"]),
                bytes_text(f["bytes_unfused"]),
                bytes_text(f["bytes_fused"]),
            )
            for k, f in enumerate(rows)
        ],
    )  # fmt: skip


def show_run(document: Mapping[str, Any]) -> None:
    """What `tilewright run` prints for people."""
    inputs = "random inputs, seed " + str(document["seed"]) if document["seed"] is not None else "given inputs"
    print(printable(f"{document['file']}: @{document['entry']}, {inputs}, {document['threads']} threads\n"))
    show_fusions(document["fusions"])
    total = sum(k["seconds"] for k in document["steps"]) or 1.0
    _table(
        "Steps",
        [("#", "right"), ("name", "left"), ("runs in", "left"), ("median", "right"), ("least", "right"), ("share", "right")],
        [
            (
                str(i),
                k["name"],
                "the evaluator" if k["kind"] == "evaluator" else f"a {k['kind']}",
                seconds_text(k["seconds"]),
                seconds_text(k["seconds_min"]),
                f"{k['seconds'] / total:.0%}",
            )
            for i, k in enumerate(document["steps"])
        ],
    )
    shares = document["shares"]
    print(
        f"time spent    {shares['kernel']:.0%} in kernels, {shares['library']:.0%} in libraries, "
        f"{shares['evaluator']:.0%} in the evaluator" + (f", {shares['copy']:.0%} in copies" if shares["copy"] else "")
    )
    s = document["seconds"]
    code = f"{document['compiled']} compiled, {document['cache_hits']} from the cache"  # (a kernel, and what packs and launches)
    print(f"first result  {seconds_text(s['first_result'])} (plan, pieces of machine code: {code}, first run)")
    print(f"warm run      {seconds_text(s['run_median'])} median of {document['repeat']}, {seconds_text(s['run_min'])} least")
    print(f"scratch       {bytes_text(document['scratch_bytes'])}")
    for step in document["library"]:
        print(printable(f"library       {step}"))
    for path in document["files"]:
        print(printable(f"written       {path}"))
    if document["check"] is None:
        _show_fallbacks(document["fallbacks"])
    else:
        show_excess(document)
        show_check(document["check"], document["fallbacks"])


def show_excess(document: Mapping[str, Any]) -> None:
    """Says where kernels may keep more precision between two ops than the evaluator that they are compared with."""
    if document["excess_precision"]:
        print("excess         precision is allowed (TILEWRIGHT_EXCESS_PRECISION): bf16 stays f32 between ops")


def _show_fallbacks(fallbacks: Sequence[str]) -> None:
    for f in fallbacks:
        print(printable(f"not compiled  {f} (runs in the evaluator)"))


def show_check(check: Mapping[str, Any], fallbacks: Sequence[str], inputs: str = "") -> None:
    """The check's outcome, one line for each output; `inputs` says of which inputs, where they are not the usual ones."""
    _show_fallbacks(fallbacks)
    for k, c in enumerate(check["outputs"]):
        allowed = Tolerance(c["allowed_rel"], c["allowed_ulp"])
        where = f"{c['dtype']}[{', '.join(map(str, c['shape']))}]"
        errors = f"largest error abs {c['max_abs']:.2g}, rel {c['max_rel']:.2g}, {c['max_ulp']:.3g} ulp"
        print(f"check         {inputs}output {k} {where}: {'ok' if c['passed'] else 'FAILED'}, {errors} ({_bound(c, allowed)})")
        if not c["passed"]:
            at = "" if c["worst_index"] is None else f" at [{', '.join(map(str, c['worst_index']))}]"
            print(
                f"              {c['mismatched_elems']} elements differ; the worst{at}: "
                f"expected {c['worst_expected']}, found {c['worst_actual']}"
            )


def _bound(c: Mapping[str, Any], allowed: Tolerance) -> str:
    """What the errors are compared with. Where one of two bounds holds for all elements, it alone is named."""
    if not c["passed"] or not allowed.relative or (c["max_rel"] > allowed.relative and c["max_ulp"] > allowed.ulps):
        return f"allowed for each element: {allowed}"
    return f"within rel {allowed.relative:.0e}" if c["max_rel"] <= allowed.relative else f"within {allowed.ulps:g} ulp"


def show_kernel_checks(kernels: Sequence[KernelCheck], culprit: Culprit | None, right: bool) -> None:
    """The kernels one by one, and what is wrong with the first that is."""
    for k in kernels:
        error = f"largest error rel {k.max_rel:.2g}, {k.max_ulp:.3g} ulp" if not k.reason else f"not run by itself: {k.reason}"
        ops = f"{k.ops} op{'' if k.ops == 1 else 's'}"
        print(printable(f"kernel        {k.name} ({ops}): {'ok' if k.passed else 'FAILED'}, {error}"))
    if culprit is not None:
        _show_culprit(culprit)
    elif any(not k.passed for k in kernels):
        print("              no part of it is wrong by itself: the fault shows only when all of its ops are together")
    elif kernels and not right:
        print("              each kernel is right by itself: what is wrong lies between them (memory, order, a copy)")


def _show_culprit(c: Culprit) -> None:
    lines = [
        f"the smallest part of {c.kernel} that is wrong ({c.tried} parts were compiled"
        + (")" if c.whole else ", then the time was over; a smaller one may be wrong, too)"),
        *(f"  {op}" for op in c.ops),
        *(f"inside        {place}" for place in c.inside),
        f"wrong op      {c.op}" + (f"  {c.location}" if c.location else ""),
        f"element       [{', '.join(map(str, c.element))}], the first of {c.mismatched_elems} of {c.size_elems} that differ",
        f"expected      {c.expected}",
        f"found         {c.found}",
        *(f"map           {m}" for m in c.maps),
        *(f"reads         {r}" for r in c.reads),
    ]
    print(printable("\n".join(lines)))


def proof(made: Proof) -> dict[str, Any]:
    """A proof's table, and every obligation that is not proved with its witness."""
    return {
        "holds": made.holds,
        "seconds": made.seconds,
        "obligations": made.table(),
        "open": [
            {"obligation": o.name, "subject": o.subject, "verdict": o.verdict.value, "witness": o.witness}
            for o in (*made.refuted, *made.undecided)
        ],
    }


def show_maps(rows: Sequence[Mapping[str, Any]]) -> None:
    """Every op's maps, one operand under the other."""
    lines = []
    for r in rows:
        result = f"%{r['result']}" if r["result"] else f"result {r['output']}"
        lines.append(f"[{r['number']}] {result} = {r['op']} : {r['type']}" + (f"  {r['location']}" if r["location"] else ""))
        if r["declined"]:
            lines.append(f"    {r['declined']}")
        elif not r["operands"]:
            lines.append("    reads nothing")
        for k, o in enumerate(r["operands"]):
            name = f"operand {k}" + (f" %{o['operand']}" if o["operand"] else "")
            lines += [f"    {name}: {m}" for m in o["maps"]] or [f"    {name}: not read"]
    print(printable("\n".join(lines)))
