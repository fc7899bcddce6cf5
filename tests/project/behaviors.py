"""Which code does what: the groups of special paths that general mechanisms took the place of, then and now.

    python -m tests.project.counts 641c94c --by-behavior

A place is `file` for a whole file, or `file: Name, Class.method, -Name` for some of its definitions, those with a minus left out.
No definition stands in two groups. What a group does now and did not do then is counted by itself, and said in words.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["BEHAVIORS", "Behavior", "definitions", "statements"]


@dataclass(frozen=True)
class Behavior:
    """A group: where what it does stood, where the same stands, where what has come since stands, and what that is."""

    name: str
    then: tuple[str, ...]
    now: tuple[str, ...]
    new: tuple[str, ...]
    came: str


def statements(text: str) -> int:
    """The statements of a source without its docstrings; a compound one and each in its body count one.

    >>> statements('"of a file"\\ndef f(x):\\n    "of f"\\n    if x:\\n        return 1\\n')
    3
    """
    return _statements(ast.parse(text))


def _statements(tree: ast.AST) -> int:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    alone = [n.value for n in found if isinstance(n, ast.Expr)]
    return len(found) - sum(isinstance(x, ast.Constant) and isinstance(x.value, str) for x in alone)


def definitions(root: pathlib.Path, places: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The definitions of places and their statements; a file's own statements stand under its name. Raises KeyError for a name
    that its file has not, OSError for a file that is not there."""
    for place in places:
        path, _, wanted = place.partition(":")
        tree = ast.parse((root / path).read_text("utf-8"))
        found: dict[str, int] = {}
        for n in tree.body:
            if isinstance(n, (ast.FunctionDef, ast.ClassDef)):
                found[n.name] = _statements(n)
                for m in n.body if isinstance(n, ast.ClassDef) else ():
                    if isinstance(m, ast.FunctionDef):
                        found[f"{n.name}.{m.name}"] = _statements(m)
        names = [w.strip() for w in wanted.split(",") if w.strip()]
        kept = [w for w in names if not w.startswith("-")]
        if kept:
            yield from ((f"{path}: {w}", found[w]) for w in kept)
            continue
        yield path, _statements(tree) - sum(found[w[1:]] for w in names)
        yield from ((f"{path}: {w}", 0) for w in found if not any(w == x[1:] or w.startswith(f"{x[1:]}.") for x in names))


BEHAVIORS = (
    Behavior(
        "cutting a loop at a condition",
        (
            "codegen/split.py", "tiling/inside.py", "tiling/residues.py", "tiling/linear.py: when",
            "tiling/windows.py: _bounded, settled, reduced, _is_cut_along_rows", "tiling/neutral.py: bounds_by, is_hole",
            "tiling/contract_residues.py: _points, _Part", "tiling/positions.py: _stays_inside",
        ),
        (
            "tiling/loops/domains/split_domain.py", "tiling/loops/domains/conditions.py: -translated",
            "tiling/passes/split_innermost.py: -_makes_few_parts, -_ends_whole_vectors",
            "tiling/passes/split_borders.py: -_steps_over, -_around_rows, -_edges",
            "tiling/passes/unrolling/split_residues.py: -_side_by_side", "tiling/loops/nest.py: Segment",
            "tiling/loops/affine.py: when",
            "tiling/passes/tighten_bounds.py: _bounded, _is_cut_along_rows", "tiling/contract/residues.py: _points, _Part",
            "tiling/loops/domains/positions.py: _stays_inside",
        ),
        (
            "tiling/loops/domains/inside.py", "tiling/passes/split_innermost.py: _makes_few_parts, _ends_whole_vectors",
            "tiling/passes/split_borders.py: _steps_over, _around_rows, _edges",
            "tiling/passes/unrolling/split_residues.py: _side_by_side",
        ),
        "proofs of bounds under conditions; operands side by side, a loop each; rows that an edge cuts or surrounds",
    ),
    Behavior(
        "may a fold be split",
        (
            "tiling/growing.py", "tiling/monoids.py", "tiling/windows.py: combined_function, is_neutral, _is_monoid",
            "codegen/fold.py: _is_rounded_each_time",
        ),
        (
            "tiling/elements/monoids.py: -_groups, -_part, -_of_several, -_is_narrow", "tiling/elements/monoids_by_cases.py",
            "tiling/loops/monoid.py", "tiling/elements/folds.py",
        ),
        ("tiling/elements/monoids_by_algebra.py", "tiling/elements/monoids.py: _groups, _part, _of_several, _is_narrow"),
        "proofs by algebra (then: samples of numbers); bodies of several values",
    ),
    Behavior(
        "taking a fold apart, and state that goes on",
        (
            "tiling/split_fold.py", "tiling/split_product.py", "tiling/lane_folds.py", "tiling/windows.py: _scanned",
            "tiling/siblings.py: _parts, _splits_in_parts, start_steps, carried_fold, last_steps, _piece",
            "tiling/lower_online.py", "tiling/online.py", "codegen/rows.py", "codegen/scan.py", "tiling/contract.py: accumulates",
        ),
        (
            "tiling/passes/rfactor.py", "tiling/passes/split_fold.py", "tiling/passes/lane_folds.py: -_rows_in_lanes",
            "tiling/passes/tighten_bounds.py: _scanned", "tiling/lower/online.py", "tiling/lower/rescaling.py",
            "tiling/lower/siblings.py: _parts, _monoid, _fold, _factored, start_steps, carried_fold, last_steps, _piece",
            "tiling/loops/carry.py: -taken_on",
            "tiling/passes/group_rows.py: -scan_rows_together, -_is_brief, -_lines_in_a_set, -results_together, "
            "-_is_short_of_vectors, -long_rows_together, -_lies_in_long_rows, -windows_together, -_shares_kernel",
            "codegen/source/rows.py", "codegen/source/scan.py",
        ),
        (
            "tiling/passes/group_rows.py: scan_rows_together, _is_brief, _lines_in_a_set, results_together, "
            "_is_short_of_vectors, long_rows_together, _lies_in_long_rows, windows_together, _shares_kernel",
            "tiling/passes/lane_folds.py: _rows_in_lanes", "tiling/loops/carry.py: taken_on",
        ),
        "scans of several rows at a time; rows by what they take of a cache; few results in registers; four long rows of memory; "
        "windows of channels side by side; lanes of several short rows; what a block takes on, for proofs",
    ),
    Behavior(
        "copies into another layout",
        (
            "tiling/operands.py: window_tile", "tiling/contract_residues.py: _with_one_tile, _with_one_copy, _padded_read",
            "tiling/contract.py: Contraction._tile, Contraction._left_packed, Contraction._block_of,"
            " Contraction._walks_along_rows, Contraction._is_made_inside, Contraction._expands,"
            " Contraction._pack_in_task, Contraction._kept_element,"
            " Contraction._pack_ahead, Contraction._panels, Contraction._at, Contraction._turned, _computes, _Panels",
            "tiling/contract_bytes.py: ByteContraction.quads, ByteContraction._bytes_in_place, ByteContraction._bytes_copied,"
            " ByteContraction._or_zero, ByteContraction._quads",
            "tiling/turn.py",
        ),
        (
            "tiling/loops/staging.py", "tiling/contract/operands.py: window_tile, moved, copied_element",
            "tiling/contract/panels.py: Contraction._tile",
            "tiling/contract/residues.py: _with_one_tile, _with_one_copy, _padded_read, _reading",
            "tiling/contract/packing.py: -Packing._is_packed_once, -Packing.takes_narrow, -Packing._is_kept_narrow,"
            " -Packing._runs_along_depth, -Packing._while_flag, -Packing._left_in_place, -Packing._is_lean",
            "tiling/passes/turn_tiles.py",
        ),
        # No micro-kernel read 16 bits as they are, and nothing asked which way a factor runs but what turned it.
        (
            "tiling/contract/packing.py: Packing._is_packed_once, Packing.takes_narrow, Packing._is_kept_narrow,"
            " Packing._runs_along_depth, Packing._is_lean",
        ),
        "columns packed block by block inside of a task; pairs of 16 bits; bands of a factor that runs along its columns;"
        " in strips, what is large by each task",
    ),
    Behavior(
        "contraction matchers",
        (
            # Two files that this group and the copies share: but for the copies all of them, imports and constants too, as their
            # successors `panels` and `packing` count (34 statements that were not counted at first).
            "tiling/contract.py: -accumulates, -Contraction._tile, -Contraction._left_packed, -Contraction._block_of,"
            " -Contraction._walks_along_rows, -Contraction._is_made_inside, -Contraction._expands,"
            " -Contraction._pack_in_task, -Contraction._kept_element, -Contraction._pack_ahead, -Contraction._panels,"
            " -Contraction._at, -Contraction._turned, -_computes, -_Panels",
            "tiling/contract_bytes.py: -ByteContraction.quads, -ByteContraction._bytes_in_place, -ByteContraction._bytes_copied,"
            " -ByteContraction._or_zero, -ByteContraction._quads",
            "tiling/contract_dots.py", "tiling/roles.py", "tiling/operands.py: -window_tile",
        ),
        (
            # (The rows of a task and where they begin were passages of `run`, what the factors read one of two others.)
            "tiling/contract/panels.py: -Contraction._tile, -Contraction._for_few_rows, -Contraction._packs_weights,"
            " -Contraction._asks_ahead, -Contraction._stays_cached, -Contraction._column_block",
            "tiling/contract/dots.py",
            "tiling/contract/table.py: -_cost_of_block, -_cost_of_bytes, -_cost_of_dots, -_sums_of_pairs, -_cost_of_pairs,"
            " -_block_of_bytes",
            "tiling/contract/micro_kernels.py: -_why", "tiling/contract/roles.py", "tiling/loops/micro_kernels.py",
            # In this group then, too; the file is one of copies.
            "tiling/contract/packing.py: Packing._while_flag, Packing._left_in_place",
            "tiling/contract/operands.py: -window_tile, -moved, -copied_element",
        ),
        (
            "tiling/contract/panels.py: Contraction._for_few_rows, Contraction._packs_weights, Contraction._asks_ahead,"
            " Contraction._stays_cached, Contraction._column_block",
            "tiling/contract/register_blocks.py",
            "tiling/contract/table.py: _cost_of_block, _cost_of_bytes, _cost_of_dots, _sums_of_pairs, _cost_of_pairs,"
            " _block_of_bytes",
            "tiling/contract/micro_kernels.py: _why",
        ),
        "blocks for few rows, the next block of weights asked for; micro-kernels weighed; tile registers,"
        " and why they are taken",
    ),
    Behavior(
        "facts about scalar functions",
        (
            "tiling/values.py", "tiling/stages.py: _is_placed", "codegen/scalars.py", "tiling/sizes.py: weight_nodes",
        ),
        (
            "tiling/elements/scalar_functions.py", "tiling/elements/ranges.py: -Order",
            "codegen/source/scalars.py", "tiling/planning/sizes.py: weight_nodes",
        ),
        ("tiling/elements/ranges.py: Order",),
        "what is known of two elements beside each other",
    ),
    Behavior(
        "late rewrites",
        (
            "codegen/ahead.py", "codegen/unroll.py", "codegen/two_looks.py", "tiling/collapse.py", "tiling/order.py",
            "tiling/merge.py",
        ),
        (
            "tiling/passes/prefetch_rows.py: -prefetch_rows_of_updates", "tiling/passes/read_rows_again.py",
            "tiling/passes/unrolling/write_out_sums.py: -is_window_over_an_edge", "tiling/passes/collapse_loops.py",
            "tiling/passes/order_loops.py", "tiling/passes/merge_nests.py: -Skipping, -merged",
            "codegen/source/values.py: ValueWriter._prefetch",
            "codegen/source/nest.py: NestEmitter._second_look, NestEmitter._again",
        ),
        (
            "tiling/loops/marks.py", "tiling/passes/prefetch_rows.py: prefetch_rows_of_updates",
            "tiling/passes/unrolling/write_out_sums.py: is_window_over_an_edge", "tiling/passes/each_nest.py",
            "tiling/passes/merge_nests.py: Skipping, merged",  # the pass's walk over a schedule; the rest is what was done then
        ),
        "rewrites as passes that are printed, left out, proved and weighed from maps; rules of marks; prefetches of updates",
    ),
    Behavior(
        "from loops to LLVM's input: by text, now by data",
        (
            "codegen/structured.py", "codegen/native.py", "codegen/scope.py", "codegen/front.py", "codegen/whole_loops.py",
            "codegen/emit.py", "codegen/nest.py",
        ),
        (
            "codegen/kernel/ir.py: -printed", "codegen/kernel/parse.py: -_tree, -_buffers", "codegen/kernel/rename.py",
            "codegen/native/front_walk.py",
            "codegen/native/front_numba.py: -NumbaBuf, -_BufModel, -_to_numba, -_from_numba, -_tell_numba",
            "codegen/native/lower.py: -plain_object, -library_module, -loaded_text, -_has_nothing_to_vectorise,"
            " -provide_interrupts, -prepare",
            "codegen/native/passes.py: -of_its_context, -run_named, -_run, -of_this_thread, -optimise_marked",
            "codegen/native/memory_hints.py", "codegen/source/writer.py", "codegen/call/program/whole_loops.py",
            "codegen/source/emit.py", "codegen/source/nest.py: -NestEmitter._second_look, -NestEmitter._again",
            "codegen/source/values.py: -ValueWriter._prefetch", "codegen/source/phase.py: -_short_names, -_scopes",
        ),
        (
            "codegen/kernel/typed.py", "codegen/kernel/types.py", "codegen/kernel/spec.py", "codegen/kernel/print_numba.py",
            "codegen/kernel/straight.py", "codegen/kernel/ir.py: printed",
            "codegen/kernel/parse.py: _tree, _buffers", "codegen/source/phase.py: _short_names, _scopes",
            "codegen/native/front_numba.py: NumbaBuf, _BufModel, _to_numba, _from_numba, _tell_numba",
            "codegen/native/lower.py: plain_object, library_module, loaded_text, _has_nothing_to_vectorise, provide_interrupts,"
            " prepare",
            "codegen/native/passes.py: of_its_context, run_named, _run, of_this_thread, optimise_marked",
        ),
        "types and a library without numba, which C and LLVM share; invariants; kernels read back; short pipelines, and one for"
        " marked loops; interrupts; steps that are LLVM's text; no memory kept; names of loops that no"
        " argument has",
    ),
)  # fmt: skip
