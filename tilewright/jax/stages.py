"""What `jax.jit(f).lower(...)` and `.compile()` give, of `tilewright.jit`: a module that is compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from hlo.lazy import cached_property
from hlo.module import Module
from hlo.text import parse

__all__ = ["CompiledFunction", "LoweredModule", "MemoryStats"]


class MemoryStats(NamedTuple):
    """Bytes of a compiled function's arguments, of its results, and of what lies between them."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int


class _Stage:
    """What JAX tells of a function that is lowered: `_stage` gives its own object for that."""

    _stage: Any

    @property
    def in_tree(self) -> Any:
        """The tree of (positional arguments, named ones), without static ones."""
        return self._stage.in_tree

    @property
    def in_avals(self) -> Any:
        """The arguments' types, in that tree."""
        return self._stage.in_avals

    @property
    def args_info(self) -> Any:
        """The arguments' types and whether they are donated, in that tree."""
        return self._stage.args_info

    @property
    def donate_argnums(self) -> Any:
        """The numbers of the arrays that are donated."""
        return self._stage.donate_argnums

    @property
    def out_tree(self) -> Any:
        """The tree of results."""
        return self._stage.out_tree

    @property
    def out_info(self) -> Any:
        """The results' types, in their tree."""
        return self._stage.out_info

    def cost_analysis(self) -> Any:
        """XLA's counts of the program as JAX wrote it."""
        return self._stage.cost_analysis()


class LoweredModule(_Stage, Module):
    """The module of a function for some arguments, with what JAX's `Lowered` has.

    The module itself is lowered for a neutral target; the texts are those that JAX would compile for its own.
    """

    @classmethod
    def of(cls, module: Module, make: Callable[[], Any], compile: Callable[[Any], CompiledFunction]) -> LoweredModule:
        """`make` lowers the function as JAX does, `compile` compiles it here, given that."""
        made = cls.__new__(cls)
        made.__dict__.update(module.__dict__)
        made.__dict__.update(_make=make, _compile=compile)
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return parse, (str(self),), {"entry_name": self.entry_name}

    @cached_property
    def _stage(self) -> Any:
        return self.__dict__["_make"]()

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The text that JAX would compile, as `stablehlo` or `hlo`; `str(module)` is what is compiled here."""
        return str(self._stage.as_text(dialect, debug_info=debug_info))

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The same as jaxlib's object."""
        return self._stage.compiler_ir(dialect)

    def compile(self, compiler_options: Any = None) -> CompiledFunction:
        """The function of these types of arguments alone. Raises what compiling raises.

        XLA's options make no difference to kernels that are not XLA's: what they may be is not looked at.
        """
        compiled: CompiledFunction = self.__dict__["_compile"](self._stage)
        return compiled


class CompiledFunction(_Stage):
    """A function that is compiled for types of arguments: `compiled(*args, **kwargs)`, static arguments left out.

    Raises TypeError for arguments of other types, another tree or more or fewer than those, and within JAX's transformations, as
    what JAX compiles ahead of time does.
    """

    def __init__(
        self, jax: Any, call: Callable[..., Any], stage: Any, executable: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any],
        numbers: Collection[int], names: Collection[str],
    ) -> None:  # fmt: skip
        self._jax, self._call, self._stage, self._executable = jax, call, stage, executable
        static = {n % len(args) if n < 0 else n for n in numbers} if args else set()
        self._fixed = {k: a for k, a in enumerate(args) if k in static}
        self._named = {k: v for k, v in kwargs.items() if k in names}
        self._avals = jax.tree_util.tree_leaves(stage.in_avals)

    def runtime_executable(self) -> Any:
        """The `codegen.Executable`."""
        return self._executable

    def as_text(self) -> str:
        """The source of the kernels."""
        return str(self._executable.source)

    def memory_analysis(self) -> MemoryStats:
        """What a call takes."""
        sizes = [
            sum(a.size * a.dtype.itemsize for a in self._jax.tree_util.tree_leaves(t)) for t in (self.in_avals, self.out_info)
        ]
        return MemoryStats(sizes[0], sizes[1], self._executable.stats.scratch_bytes)

    @property
    def input_shardings(self) -> Any:
        """Where arguments are, in the tree of arguments."""
        return self._everywhere(self.in_tree)

    @property
    def output_shardings(self) -> Any:
        """Where results are, in their tree."""
        return self._everywhere(self.out_tree)

    def _everywhere(self, tree: Any) -> Any:
        one = self._jax.sharding.SingleDeviceSharding(self._jax.devices()[0])
        return self._jax.tree_util.tree_unflatten(tree, [one] * tree.num_leaves)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results as JAX has them."""
        util = self._jax.tree_util
        leaves, tree = util.tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise TypeError(f"the function was compiled for the arguments {self.in_tree} and is called with {tree}")
        if any(isinstance(x, self._jax.core.Tracer) for x in leaves):
            raise TypeError("what is compiled for some types is not transformed by JAX: an argument is one of JAX's tracers")
        wrong = []
        for k, (leaf, aval) in enumerate(zip(leaves, self._avals, strict=True)):
            found = self._jax.typeof(leaf)
            if (found.shape, found.dtype) != (aval.shape, aval.dtype):
                wrong.append(f"argument {k} compiled with {aval.str_short()} and called with {found.str_short()}")
            elif found.weak_type != aval.weak_type:  # the same program takes both
                leaves[k] = self._jax._src.lax.lax._convert_element_type(leaf, aval.dtype, weak_type=aval.weak_type)
        if wrong:
            raise TypeError(f"Argument types differ from the types for which this computation was compiled: {'; '.join(wrong)}")
        given, named = util.tree_unflatten(tree, leaves)
        rest = iter(given)
        count = len(given) + len(self._fixed)
        positional = [self._fixed[k] if k in self._fixed else next(rest) for k in range(count)]
        return self._call(*positional, **named, **self._named)
