"""`tilewright.jit(f)`, or `@tilewright.jit`: its options are those of `jax.jit`, and a few of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack, overload

from tilewright.jax.bridge import Jitted

__all__ = ["JitOptions", "jit"]


class JitOptions(TypedDict, total=False):
    """The options of `jit` by name, for type checkers."""

    static_argnums: Any
    static_argnames: Any
    donate_argnums: Any
    donate_argnames: Any
    in_shardings: Any
    out_shardings: Any
    keep_unused: bool
    inline: bool
    output: str
    threads: int | None
    mesh: Any
    custom_calls: Mapping[str, Callable[..., Any]] | None


@overload
def jit(f: Any, /, **options: Unpack[JitOptions]) -> Jitted: ...


@overload
def jit(**options: Unpack[JitOptions]) -> Callable[[Any], Jitted]: ...


def jit(
    f: Any = None,
    /,
    *,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    inline: bool = False,
    output: str = "jax",
    threads: int | None = None,
    mesh: Any = None,
    custom_calls: Mapping[str, Callable[..., Any]] | None = None,
) -> Jitted | Callable[[Any], Jitted]:
    """f, compiled by Tilewright: the same arguments and results as `jax.jit(f)`, for every tree of arrays.

    Compiled once for each signature: tree, shapes, types, static arguments, and JAX's settings for 64-bit types, precision and
    random numbers. Arrays of JAX, NumPy and anything with DLPack come in without a copy where they are contiguous. Results are
    JAX arrays, or NumPy's with output="numpy". Donated JAX arrays are deleted after the call where JAX could have reused them.
    Inside another JAX transformation (`jax.grad(tilewright.jit(f))`) JAX traces through f. f may be a `jax.export.Exported`:
    symbolic dimensions are specialised for the shapes of each call. Without f, a decorator with these options.

    Shardings are of the one device that there is, or over a mesh of JAX's (an AbstractMesh, too), whose devices are the processes
    that `mpiexec` has started; a function that names its shardings inside is given its `mesh`. Each process calls such a function
    alike, with whole arrays or `ShardedArray`s, and the results are `ShardedArray`s (docs/howto-mesh.md).
    Unused arguments are taken and not looked at, whatever `keep_unused` says; `inline` matters inside another transformation. On
    JAX's platform `tilewright` (`tilewright.pjrt`) this is `jax.jit`.

    `custom_calls` maps targets of `jax.ffi.ffi_call` to functions (op, *arrays) that return an array or a tuple of them; the
    arrays are copies, as those that callbacks get.

    Calls are JAX's calls, so a child of a fork that was made after JAX had started makes none: it may call Executables on NumPy
    arrays (`jit(f).executable(*args)`, made before the fork), or be spawned.

    Raises JaxError without JAX, in such a child, or for static arguments that cannot be hashed, ValueError for fewer than one
    thread, and what JAX raises while tracing.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads: expected a positive number, found {threads}")
    options = {
        name: value
        for name, value in (
            ("static_argnums", static_argnums), ("static_argnames", static_argnames),
            ("donate_argnums", donate_argnums), ("donate_argnames", donate_argnames), ("in_shardings", in_shardings),
            ("out_shardings", out_shardings), ("keep_unused", keep_unused or None), ("inline", inline or None),
        )
        if value is not None
    }  # fmt: skip
    if f is None:
        return lambda g: Jitted(g, output, threads, options, custom_calls, mesh)
    return Jitted(f, output, threads, options, custom_calls, mesh)
