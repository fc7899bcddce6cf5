"""JAX functions lowered: the text of a program, for which platform, and what surrounds it.

JAX's lowering for the CPU hides linear algebra and random bits behind custom calls and loops, so functions are lowered for a
neutral target first; what only the CPU's lowering knows is lowered for it.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hlo.module import Module
from tilewright.jax import first_call
from tilewright.jax.kept_programs import Kept, donated
from tilewright.jax.lapack import CUSTOM_CALLS
from tilewright.jax.tokens import results_of

__all__ = ["Lowered", "lower_all"]

_log = logging.getLogger("tilewright")

# What only the CPU's lowering has, what other targets spell out as long iterations, and branches that name the CPU.
_CPU_ONLY = frozenset(
    "svd eigh eig schur hessenberg tridiagonal tridiagonal_solve pure_callback"
    " io_callback debug_callback debug_print lu_pivots_to_permutation_cpu geqp3 platform_index".split()
)
_NEUTRAL, _CPU = "tpu", "cpu"
_CALLBACK_TARGETS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")


@dataclass(eq=False)
class Lowered:
    """A program's text with what surrounds it: the tree of its results, their types, its callbacks, what the disk cache has."""

    text: str
    out_tree: Any
    out_avals: tuple[Any, ...]
    custom_calls: Mapping[str, Callable[..., Any]]
    has_callbacks: bool
    kept: Kept | None
    parsed: Module | None  # None for one that is kept, until it is asked for

    @property
    def module(self) -> Module:
        if self.parsed is None:
            self.parsed = first_call.parsed(self.text)
        return self.parsed

    @property
    def donated(self) -> tuple[bool, ...]:
        """Of each argument that is an array."""
        return self.kept.donated if self.kept is not None else donated(self.module)


def _primitives(jaxpr: Any, found: set[str]) -> set[str]:
    """The names of all primitives in a jaxpr and in those inside it; a choice by platform counts where one is the CPU."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name != "platform_index" or _CPU in str(eqn.params.get("platforms")):
            found.add(eqn.primitive.name)
        for value in eqn.params.values():
            for v in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(v, "jaxpr", v)
                if hasattr(inner, "eqns"):
                    _primitives(inner, found)
    return found


def _lower(
    traced: Any, platforms: Iterable[str] | None, look_up: Callable[[str], Kept | None]
) -> tuple[Any, str, Kept | None, Module | None]:
    """(JAX's lowering for the first platform that works, its text, what is kept of that, else the module parsed from it)."""
    if platforms is None:
        names = _primitives(traced.jaxpr.jaxpr, set())
        platforms = (_CPU,) if names & _CPU_ONLY else (_NEUTRAL, _CPU)
    platforms = tuple(platforms)
    for k, platform in enumerate(platforms):
        try:
            lowered = traced.lower(lowering_platforms=(platform,))
        except (NotImplementedError, ValueError):
            # The neutral target lacks the primitive; the CPU is the next, and its error is the one to show.
            if k == len(platforms) - 1:
                raise
            continue
        text = _text(lowered)
        kept = None if _callbacks(lowered) else look_up(text)
        module = None if kept is not None else first_call.parsed(text)
        if module is None or k == len(platforms) - 1 or not _unknown_targets(module):
            return lowered, text, kept, module
    raise AssertionError("no platform to lower for")


def _text(lowered: Any) -> str:
    state = lowered._lowering.compile_args.get("shape_poly_state")
    if state is not None and state.uses_dim_vars:
        # An export with symbolic dimensions, called with known ones: JAX's own pass puts the numbers in.
        from jax._src.interpreters import mlir

        refined = lowered.compiler_ir("stablehlo")
        with refined.context:
            return str(mlir.module_to_string(mlir.refine_polymorphic_shapes(refined.operation.clone())))
    return str(lowered.as_text())


def _unknown_targets(module: Module) -> list[str]:
    known = {
        *CUSTOM_CALLS,
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
        "shape_assertion",
    }
    return [t for f in module.functions.values() for t in _targets(f.body) if t not in known]


def _targets(block: Any) -> Iterable[str]:
    for op in block.ops:
        if op.name == "stablehlo.custom_call":
            yield str(op.attr("call_target_name"))
        for region in op.regions:
            yield from _targets(region)


def _callbacks(lowered: Any) -> dict[str, Callable[..., Any]]:
    """The program's Python callbacks, as the evaluator calls them: by the number that JAX gave each."""
    functions = lowered._lowering.compile_args.get("host_callbacks") or ()
    if not functions:
        return {}

    def call(op: Any, *operands: Any) -> Any:
        number = op.extra["mhlo.backend_config"]["index"]
        return results_of(functions[int(getattr(number, "value", number))](*operands), op)

    return dict.fromkeys(_CALLBACK_TARGETS, call)


def lower_all(
    jax: Any, function: Any, platforms: Iterable[str] | None, args: Any, kwargs: Any,
    look_up: Callable[[str], Kept | None] = lambda text: None,
) -> Lowered:  # fmt: skip
    """A staged function's program for some arguments; `look_up` is asked for what is kept of a text."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        began = time.perf_counter()
        traced = function.trace(*args, **kwargs)
        done = time.perf_counter()
        lowered, text, kept, module = _lower(traced, platforms, look_up)
    _log.info(
        "%.3f s for JAX's trace, %.3f s to lower it and to %s", done - began, time.perf_counter() - done,
        "find it in the disk cache" if kept is not None else "parse it",
    )  # fmt: skip
    out_avals, out_tree = jax.tree_util.tree_flatten(traced.out_info)
    callbacks = _callbacks(lowered)
    return Lowered(text, out_tree, tuple(out_avals), {**CUSTOM_CALLS, **callbacks}, bool(callbacks), kept, module)
