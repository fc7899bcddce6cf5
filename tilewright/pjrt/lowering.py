"""Which of JAX's lowering rules the platform `tilewright` has.

JAX keeps rules by platform in one table and the rest in another. This platform looks into a table of its own first, and then into
the CPU's, whatever comes into that later: LAPACK's routines by their targets, sparse products, callbacks. Its own rules are few:

* linear algebra and random bits that the CPU's rules hide behind calls and loops stay ops or plain arithmetic (`_NEUTRAL`);
* callbacks are lowered as for the CPU, but stay with the plugin: jaxlib does not hear of them (`tilewright.pjrt.callbacks`);
* a choice by platform that does not name this one goes as on the CPU: of a program's branches, and of rules that a package
  keeps for some platforms (`mlir.lower_per_platform`), and exports that were made for the CPU.

It relies on these names of JAX's insides, which `install` looks up first and misses in words: `_platform_specific_lowerings`,
`_lowerings`, `_platforms_with_donation`, `LoweringRuleEntry` and `lower_per_platform` of `jax._src.interpreters.mlir`,
`emit_python_callback` of `jax._src.callback`, and on a table of rules being asked by `in` and `[]` alone.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import ChainMap
from typing import Any

from hlo.errors import TilewrightError
from tilewright.pjrt.callbacks import CallbackList, OnBuffers

__all__ = ["install"]

_NEUTRAL = (
    "cholesky conv_general_dilated dot_general geqrf householder_product lu random_gamma select_and_scatter_add threefry2x32"
    " triangular_solve"
).split()
_NEUTRAL_PLATFORM = "tpu"
_CALLBACKS = ("pure_callback", "io_callback", "debug_callback", "debug_print")
_CHOICES = {"platform_index": "platforms", "cond": "branches_platforms"}
"""Primitives with branches by platform, and the parameter that names the platforms of each."""
_LATER = ("buffer_callback", "call_exported")
"""Primitives that are there only when a program asks for them."""
_NAMES = ("_platform_specific_lowerings", "_lowerings", "_platforms_with_donation", "LoweringRuleEntry", "lower_per_platform")

_numbering = threading.RLock()


def install(platform: str) -> None:
    """Gives the platform its rules. Raises TilewrightError where this JAX keeps its rules otherwise."""
    from jax._src import callback
    from jax._src.interpreters import mlir

    missing = [f"mlir.{name}" for name in _NAMES if not hasattr(mlir, name)]
    missing += [] if hasattr(callback, "emit_python_callback") else ["callback.emit_python_callback"]
    if missing:
        raise TilewrightError(f"this version of JAX keeps its lowering rules otherwise: {missing[0]} is not there")
    tables: Any = mlir._platform_specific_lowerings
    cpu, neutral, default = tables["cpu"], tables[_NEUTRAL_PLATFORM], mlir._lowerings
    primitives = {p.name: p for table in (cpu, default) for p in table}
    own: dict[Any, Any] = {}
    for name in _NEUTRAL:
        primitive = primitives[name]
        entry = neutral.get(primitive) or default.get(primitive)
        if entry is not None:
            own[primitive] = entry
    for name in (*_CALLBACKS, *_CHOICES):
        primitive = primitives[name]
        entry = cpu.get(primitive) or default[primitive]
        rule = _as_on_cpu(entry.rule, platform, _CHOICES[name]) if name in _CHOICES else _callback(entry.rule)
        own[primitive] = mlir.LoweringRuleEntry(rule, entry.inline)
    tables[platform] = _Rules(platform, own, cpu)
    _follow_cpu(platform)
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)


class _Rules(ChainMap[Any, Any]):
    """The platform's own rules before the CPU's; those of `_LATER` are made when they are asked for."""

    def __init__(self, platform: str, *tables: Any) -> None:
        super().__init__(*tables)
        self._platform = platform

    def __contains__(self, primitive: Any) -> bool:
        return super().__contains__(primitive) or primitive.name in _LATER

    def __missing__(self, primitive: Any) -> Any:
        if primitive.name not in _LATER:
            raise KeyError(primitive)
        from jax._src.interpreters import mlir
        from jax._src.lib import ffi
        from jax.errors import JaxRuntimeError

        entry = mlir._lowerings[primitive]
        if primitive.name == "call_exported":
            rule = _exported_for_cpu(entry.rule, self._platform)
        else:
            rule = _callback(entry.rule, OnBuffers(ffi.Buffer, ffi.ExecutionContext, ffi.ExecutionStage.EXECUTE, JaxRuntimeError))
        made = self.maps[0][primitive] = mlir.LoweringRuleEntry(rule, entry.inline)
        return made


def _follow_cpu(platform: str) -> None:
    """Has rules that ask for the platform themselves, and know the CPU and not this one, take it for the CPU."""
    from jax._src import callback
    from jax._src.interpreters import mlir
    from jax.interpreters import mlir as shown

    lower, emit = mlir.lower_per_platform, _callback(callback.emit_python_callback)
    names: Any = mlir

    def lower_per_platform(ctx: Any, description: str, rules: Any, *args: Any, **params: Any) -> Any:
        if "cpu" in rules and platform not in rules:
            rules = {**rules, platform: rules["cpu"]}
        return lower(ctx, description, rules, *args, **params)

    def emit_python_callback(ctx: Any, *args: Any, **params: Any) -> Any:
        is_own = tuple(ctx.module_context.platforms) == (platform,)
        return (emit if is_own else others)(ctx, *args, **params)

    others = callback.emit_python_callback
    names.lower_per_platform = lower_per_platform
    for module in (callback, shown):
        names = module
        names.emit_python_callback = emit_python_callback


def _for_cpu(ctx: Any, **others: Any) -> Any:
    """The same context of a lowering, for the CPU."""
    return ctx.replace(module_context=ctx.module_context.replace(platforms=("cpu",), backend=None, **others), platforms=None)


def _callback(rule: Any, on_buffers: OnBuffers | None = None) -> Any:
    """A callback's rule for the CPU, with functions kept here."""

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        taken = CallbackList(on_buffers)
        with _numbering:
            inner = _for_cpu(ctx, host_callbacks=taken)
            results = rule(inner, *args, **params)
        if inner.tokens_out is not None:
            ctx.set_tokens_out(inner.tokens_out)
        if taken.last is not None:
            ctx.module_context.add_keepalive(taken.last)
        return results

    return lower


def _exported_for_cpu(rule: Any, platform: str) -> Any:
    """The rule that calls an export: one that was made for the CPU, and not for this platform, is as good here."""

    def lower(ctx: Any, *args: Any, exported: Any, **params: Any) -> Any:
        if platform not in exported.platforms:
            platforms = tuple(platform if p == "cpu" else p for p in exported.platforms)
            exported = dataclasses.replace(exported, platforms=platforms)
        return rule(ctx, *args, exported=exported, **params)

    return lower


def _as_on_cpu(rule: Any, platform: str, parameter: str) -> Any:
    """A rule about branches by platform: a choice that knows the CPU, and not this platform, takes the CPU's branch."""

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        groups = params.get(parameter)
        if groups is not None and not any(platform in (group or ()) for group in groups):
            params[parameter] = tuple((*group, platform) if group and "cpu" in group else group for group in groups)
        return rule(ctx, *args, **params)

    return lower
