"""Makes `docs/gallery.md`, and draws the pictures in `docs/pictures`: python docs/draw.py (needs the notebook extra).

They are of the shipped examples, by the project itself (`tilewright.pictures`), for a machine that is named, so that every
computer draws the same ones.
"""

from __future__ import annotations

import html
import pathlib
from collections.abc import Callable
from typing import Any

import codegen
import hlo
import indexing
import tiling
import tiling.words
from tilewright import pictures

ROOT = pathlib.Path(__file__).resolve().parent.parent
WINDOWS = """
func.func @main(%x: tensor<8x12xf32>) -> tensor<8x12xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "stablehlo.reduce_window"(%x, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 3, 5>, padding = dense<[[1, 1], [2, 2]]> : tensor<2x2xi64>}
    : (tensor<8x12xf32>, tensor<f32>) -> tensor<8x12xf32>
  return %s : tensor<8x12xf32>
}"""


def planned(name: str) -> tiling.Plan:
    """The plan of a shipped example for two cores with vectors of 256 bits."""
    module = hlo.load(ROOT / "examples" / f"{name}.mlir")
    return tiling.plan(module, supports=codegen.supports, machine=tiling.Machine(cores=2))


EXPLORED = ("softmax", "layer_norm", "causal_attention")  # as in docs/hooks.py, which makes these pages

DRAWN: dict[str, Callable[[], Any]] = {
    "map-of-windows": lambda: pictures.reads(hlo.parse(WINDOWS).root, at=(3, 6)),
    "map-at-the-edge": lambda: pictures.reads(hlo.parse(WINDOWS).root, at=(0, 11)),
    "tiles-of-softmax": lambda: pictures.tile_grid(planned("softmax").fusions[0]),
    "tiles-of-layer-norm": lambda: pictures.tile_grid(planned("layer_norm").fusions[0]),
    "plan-of-mlp": lambda: pictures.fusion_graph(planned("gelu_mlp")),
    "tiles-of-attention": lambda: pictures.tile_grid(planned("causal_attention").fusions[-1]),
    "plan-of-encoder": lambda: pictures.fusion_graph(planned("encoder_block")),
    "roofline-of-encoder": lambda: pictures.roofline(planned("encoder_block")),
}


# Program -> what it is, and the line in the table of measured performance that is of the same program.
GALLERY = {
    "softmax": ("The softmax of the rows of a matrix: nine ops, one kernel, one pass over rows that stay in a cache.", "softmax"),
    "layer_norm": ("Each row less its mean by its deviation, scaled and shifted: twenty-odd ops, one kernel.", "layer_norm"),
    "gelu_mlp": ("A perceptron with one hidden layer: two products, the activation in the first one's epilogue.", "mlp"),
    "causal_attention": (
        "Attention with a causal mask: scores that never leave the cache, and a mask that became a loop's bound.",
        "attention_2048",
    ),
    "encoder_block": ("A transformer's encoder layer: the five kernels of the picture, and what flows between them.", ""),
}  # fmt: skip

# Of a program that is not in that table: what its command printed, and where.
TIMED = {"encoder_block": "68.1 ms, JAX 81.3 ms, on two cores of an Intel server CPU with AVX-512"}

HEAD = """# Gallery

Made from the shipped examples by `python docs/draw.py`, planned for two cores with vectors of 256 bits; a test says when it is
out of date. To look at one yourself: `tilewright explore examples/softmax.mlir --open` ([what to click](howto-explore.md)).
"""


def gallery() -> str:
    """The page: of each program its text, a picture, the map from its result to its arguments, the plan, loops, source, times."""
    measured_page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    rows = [line.split("|") for line in measured_page.splitlines() if line.startswith("| `")]
    times = {cells[1].strip(" `"): (cells[2].strip(), cells[4].strip(), cells[6].strip()) for cells in rows}
    parts = [HEAD]
    for name, (what, measured) in GALLERY.items():
        plan = planned(name)
        root = plan.program.results[0]
        reads = [
            f"    %{v.name}: {m}" for v, maps in indexing.maps_from(root).items() if v in plan.program.arguments for m in maps
        ]
        kernels = [f"    {f.name}: {tiling.words.op_summary(f.ops)}; tiles {list(f.tile_sizes)}" for f in plan.fusions]
        shortest = min(plan.fusions, key=lambda f: len(str(f.schedule)))
        loops = ["    " + line for line in str(shortest.schedule).splitlines()]
        link = f'<p><a href="../explore/{name}.html">Open it in the explorer</a></p>' if name in EXPLORED else ""
        text = (ROOT / "examples" / f"{name}.mlir").read_text("utf-8")
        source = next(k.source for k in codegen.compile(plan).kernels if k.name == shortest.name)
        parts += [f"## `{name}`", what, link, _folded("The program", text)]
        if name in PICTURED:
            parts.append(f"![{PICTURED[name][1]}](pictures/{PICTURED[name][0]}.png)")
        parts += ["What an element of the result reads of each argument:", "\n".join(reads), "The plan:", "\n".join(kernels)]
        parts += [f"The loops of `{shortest.name}`:", "\n".join(loops), _folded(f"The source of {shortest.name}", source)]
        if measured:
            shape, mine, jax = times[measured]
            parts.append(f"Time, measured as `{measured}` ({shape}): {mine} ms, JAX {jax} ms ([how](performance.md)).")
        else:
            parts.append(f"Time, measured as `python3 dev.py bench --only {name}`: {TIMED[name]} ([how](benchmarks.md)).")
    return "\n\n".join(p for p in parts if p).replace("\n\n\n", "\n\n").rstrip() + "\n"


def _folded(title: str, text: str) -> str:
    """Text under a title that opens by a click; without empty lines, since one would end the HTML."""
    lines = "\n".join(line for line in text.splitlines() if line.strip())
    return f"<details><summary>{title}</summary><pre><code>{html.escape(lines)}</code></pre></details>"


PICTURED = {
    "softmax": ("tiles-of-softmax", "The tiles of the result: bands of sixteen whole rows, two hundred and fifty-six of them"),
    "layer_norm": ("tiles-of-layer-norm", "The tiles of the result: bands of sixty-four whole rows"),
    "gelu_mlp": ("plan-of-mlp", "Two kernels, one for each product, with the bytes on each edge"),
    "causal_attention": ("tiles-of-attention", "The tiles of the result of one head: bands of whole rows"),
    "encoder_block": ("plan-of-encoder", "Five kernels from the arguments to the result, with the bytes on each edge"),
}


def main() -> None:
    """Writes the page and every picture."""
    (ROOT / "docs" / "gallery.md").write_text(gallery(), "utf-8")
    for name, draw in DRAWN.items():
        draw().savefig(ROOT / "docs" / "pictures" / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
