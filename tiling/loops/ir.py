"""Schedules: what a fusion computes where, in which loops, into which buffers. Plain data that prints.

    Schedule   = buffers + phases, one after the other
    Phase      = a grid of tasks that may run in parallel + the steps of one task
    Nest       = loops around stores and folds
    Contract   = a sum of products over a register-blocked micro-kernel
    Turn       = a tile transposed in registers
    Ordering   = a row sorted, or its largest elements
    Scatter    = updates folded in at places that values name
    Selection  = updates folded in at places that windows choose
    MatrixStep = a small matrix factored, or a system solved
    Measure    = the greatest magnitude in each piece of a buffer
    Sequential = steps that run block by block along a dimension; with limits that are read for each block

A phase's flags are 1 where inputs are within limits; then a nest's `skip` says where nothing need be computed.
All bounds are closed intervals. Index expressions are in the loops' variables and the task's tile numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from hlo.access import Condition
from hlo.display import as_html, as_text
from hlo.module import Op, Value
from indexing.expr import Const, Expr, Interval, Var
from tiling.loops.buffers import Buffer, Scope
from tiling.loops.element_ir import Load, Node
from tiling.loops.micro_kernels import MicroKernel
from tiling.loops.nest import ZERO, FoldStep, Loop, LoopKind, Nest, Segment, Skip, Store

__all__ = [
    "ZERO",
    "Block2D",
    "Buffer",
    "Contract",
    "Flag",
    "FoldStep",
    "Limit",
    "Loop",
    "LoopKind",
    "Matrix",
    "MatrixStep",
    "Measure",
    "Nest",
    "Ordering",
    "Phase",
    "Scatter",
    "Schedule",
    "Scope",
    "Segment",
    "Selection",
    "Sequential",
    "Skip",
    "Start",
    "Store",
    "Transform",
    "Turn",
]


@dataclass(frozen=True)
class Block2D:
    """A matrix inside a buffer: element (i, j) lies at base + i * row_stride + j * column_stride."""

    buffer: Buffer
    base: Expr
    row_stride: int
    column_stride: int


@dataclass(frozen=True, eq=False)
class Contract:
    """out[m, n] = sum over k of left[m, k] * right[k, n], in blocks of `k_block` along k.

    `right` is read in panels of `columns` columns, `panel_stride` apart, whose rows lie as `kernel` wants them, a row stride from
    one group of steps of k to the next.
    `pack` steps run before each block of k, with `k_start` as the block's first k; they fill `left`.
    `rows` x `columns` is the register block. `loops` are around it all (batch dimensions). Where a mask bounds it only the
    columns from `columns_lower` on, and k in [`depth_lower`, `depth_upper`], are computed.
    `levels` are (count, step in left, step in right) of loops around k, outermost first, that sum into the same block: a window's
    rows. The whole depth is `depth`. `left` steps by its column stride along k. Where `is_swapped`, `left` is the op's second
    operand. `row_dimensions` and `column_dimension` are the result's dimensions that only the left, only the right operand has;
    columns that are one group's have the dimension of all groups.
    Sums that are kept apart, at positions `places` of their buffer, are the elements `element` of the result.
    """

    op: Op
    value: Value
    kernel: MicroKernel
    loops: tuple[Loop, ...]
    rows_upper: Expr  # how many rows and columns this task has
    columns_upper: Expr
    m: int
    n: int
    k: int
    k_block: int
    left: Block2D
    right: Block2D
    panel_stride: int
    out: Block2D
    rows: int
    columns: int
    k_start: Var
    pack: tuple[Nest, ...] = ()
    columns_lower: Expr = ZERO
    depth_lower: Expr = ZERO
    depth_upper: Expr | None = None  # k - 1 where it is None
    levels: tuple[tuple[int, int, int], ...] = ()
    is_swapped: bool = False
    row_dimensions: tuple[int, ...] = ()
    column_dimension: tuple[int, ...] = ()
    accumulate: bool = False  # add to what is in `out`
    places: tuple[Var, ...] = ()
    element: tuple[Expr, ...] = ()
    asks_ahead: bool = False  # of several blocks of k: for the right operand's next one, while one is multiplied
    column_block: int = 0  # columns, of whole panels, that meet all blocks of k before the next ones do; 0: all of them at once
    shares_code: bool = False  # levels are passed at run time: contractions that differ in nothing else are one function

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def last_depth(self) -> Expr:
        """The last k that is summed up to."""
        return Const(self.k - 1) if self.depth_upper is None else self.depth_upper

    @property
    def depth(self) -> int:
        """How many products make up a sum."""
        return self.k * prod(n for n, _, _ in self.levels)

    def __repr__(self) -> str:
        return f"<Contract of %{self.value.name or '?'}: {self.m}x{self.n}, sums of {self.depth}, by {self.rows}x{self.columns}>"


@dataclass(frozen=True, eq=False)
class Turn:
    """target[c, r] = source[r, c], r over the loop `rows`, c over the loop `columns`: a tile transposed in registers.

    What moves as one are `together` elements side by side: both blocks' column strides are as many.
    """

    value: Value
    rows: Loop
    columns: Loop
    source: Block2D
    target: Block2D
    together: int = 1

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops over all of its elements: columns, rows and, where several move as one, these."""
        return (self.columns, self.rows, *(() if (x := self._inside) is None else (x,)))

    @property
    def places(self) -> tuple[Expr, Expr]:
        """Where an element of these loops is read, and where it is written."""
        r, c, x = self.rows.variable, self.columns.variable, self._inside
        inside: Expr = Const(0) if x is None else x.variable
        read = self.source.base + r * self.source.row_stride + c * self.source.column_stride + inside
        return read, self.target.base + c * self.target.row_stride + r * self.target.column_stride + inside

    @property
    def _inside(self) -> Loop | None:
        name = f"{self.columns.variable.name}_inside"
        return Loop(Var(name), Const(0), Const(self.together - 1), self.together) if self.together > 1 else None


@dataclass(frozen=True, eq=False)
class Ordering:
    """A row of `count` elements, `step` apart, put into the order of the op's comparator; the first `kept` are stored.

    The row starts at `start` in the sources and at `target_start` in the targets; `places` (or None) takes the elements' old
    numbers. `scratch` is keys, room for them, and counts.
    """

    op: Op
    row: Var
    start: Expr
    target_start: Expr
    count: int
    step: int
    kept: int
    sources: tuple[Buffer, ...]
    targets: tuple[Buffer, ...]
    places: Buffer | None
    scratch: tuple[Buffer, ...]


@dataclass(frozen=True, eq=False)
class Start:
    """`variable` is the integer `node`; an update outside of [lower, upper] is left out. An expression is only tested.

    A start that `clamps` is moved into [lower, upper] instead.
    """

    variable: Var | None
    node: Node | Expr
    lower: Expr
    upper: Expr
    clamps: bool = False


@dataclass(frozen=True, eq=False)
class Scatter:
    """target[index] = body(target[index], node) for each update in order; the first `outer` loops choose the places.

    `more` are further targets and nodes, folded together with the first; `tests` hold for an update that has any effect.
    """

    op: Op
    loops: tuple[Loop, ...]
    outer: int
    starts: tuple[Start, ...]
    target: Buffer
    index: tuple[Expr, ...]
    node: Node
    more: tuple[tuple[Buffer, Node], ...] = ()
    tests: tuple[Start, ...] = ()
    ahead: tuple[Load, ...] = ()  # as in a nest

    @property
    def targets(self) -> tuple[Buffer, ...]:
        return (self.target, *(b for b, _ in self.more))

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node, *(n for _, n in self.more))


@dataclass(frozen=True, eq=False)
class Measure:
    """target[piece] = the greatest |x| of the elements [piece * size, piece * size + size - 1] of `source`; NaN where one is."""

    source: Buffer
    target: Buffer
    piece: Var
    size: int


@dataclass(frozen=True, eq=False)
class Flag:
    """`variable` is 1 when every element of each buffer is at most the limit beside it, else 0 (also for a NaN)."""

    variable: Var
    limits: tuple[tuple[Buffer, float], ...]

    def __str__(self) -> str:
        return f"{self.variable} = " + " and ".join(f"{b.name} <= {limit:.6g}" for b, limit in self.limits)


@dataclass(frozen=True, eq=False)
class Selection:
    """target[chosen] = body(target[chosen], node), where `chosen` is the place in its window that the op's comparison prefers.

    For each element of the loops the window's loops run over operand[index]; where a test fails there is only padding.
    """

    op: Op
    loops: tuple[Loop, ...]
    window: tuple[Loop, ...]
    tests: tuple[Condition, ...]
    operand: Buffer
    index: tuple[Expr, ...]
    target: Buffer
    node: Node
    ahead: tuple[Load, ...] = ()


@dataclass(frozen=True, eq=False)
class Limit:
    """A bound that is read when the program runs: `variable` is the integer `node` less `origin`, moved into [lower, upper].

    While `flag` is 0 the loops that it bounds run over everything: it is then `whole`, an end `upper`, a beginning 0.
    """

    variable: Var
    node: Node
    origin: Expr
    lower: Expr
    upper: Expr
    is_end: bool
    flag: Var | None = None  # None: what is left out counts for nothing, whatever the inputs are

    @property
    def whole(self) -> Expr:
        return self.upper if self.is_end else ZERO


@dataclass(frozen=True, eq=False)
class Sequential:
    """`steps` once for each block number that `loop` runs over, in order; what they keep in scratch goes from block to block.

    Bounds of the steps' loops, and where a contraction's rows begin, may name `limits`, which are read in order for each block.
    """

    loop: Loop
    steps: tuple[Nest | Contract, ...]
    reason: str
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, eq=False)
class Transform:
    """target = Fourier transforms of source: one for each line of the loop `lanes`.

    Element k of line i lies at base + i * row_stride + k * column_stride. `form` is complex, to half (real lines of `size`
    elements become size // 2 + 1 complex ones) or from half. Where lines are the columns of one that was cut in `columns`, the
    first of them number `column`, each element is turned by its angle as well. `scratch` is room for complex lines, for real
    ones, and twice for parts.
    """

    op: Op
    form: str
    size: int
    sign: int
    scale: float
    lanes: Loop
    element: Var
    source: Block2D
    target: Block2D
    roots: Buffer | None
    column: Expr | None
    columns: int
    scratch: tuple[Buffer, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """Elements of a line in the source and in the target."""
        half = self.size // 2 + 1
        return (half if self.form == "from half" else self.size), (half if self.form == "to half" else self.size)


@dataclass(frozen=True, eq=False)
class Matrix:
    """A small matrix in memory (a vector is a column); `row` and `column` number its elements."""

    block: Block2D
    rows: int
    columns: int
    row: Var
    column: Var


@dataclass(frozen=True, eq=False)
class MatrixStep:
    """One matrix is factored, or a triangular system solved: what `kind` says, with `options` (lower, left, unit, …).

    `scratch` is room for the matrix (for the right sides of a system), and for a row of sums.
    """

    op: Op
    kind: str
    options: frozenset[str]
    sources: tuple[Matrix, ...]
    targets: tuple[Matrix, ...]
    scratch: tuple[Buffer, ...]

    @property
    def products(self) -> int:
        """Multiplications of one matrix, about."""
        return self.sources[0].rows * max(m.rows * m.columns for m in self.sources)


Step = Nest | Contract | Turn | Ordering | Scatter | Measure | Selection | Sequential | Transform | MatrixStep


@dataclass(frozen=True, eq=False)
class Phase:
    """Tasks over a grid of tile numbers, and what one task does. Tiles of `descending` numbers are taken from the last one.

    With a `group`, a task takes that many tiles in order: first `before`, on the number of its first tile, then for each tile the
    steps. A phase that is `rest` only puts together what an earlier one made in parts.
    """

    tiles: tuple[tuple[Var, int], ...]
    steps: tuple[Step, ...]
    flags: tuple[Flag, ...] = ()
    descending: tuple[Var, ...] = ()
    group: int = 1
    before: tuple[Step, ...] = ()
    rest: bool = False

    @property
    def tasks(self) -> int:
        return -(-prod(n for _, n in self.tiles) // self.group)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps, those inside sequential loops in place of the loops."""
        return tuple(x for s in self.steps for x in (s.steps if isinstance(s, Sequential) else (s,)))

    def __repr__(self) -> str:
        grid = " × ".join(f"{v} < {n}" for v, n in self.tiles) or "one"
        return f"<Phase: {self.tasks} tasks ({grid}), {', '.join(type(s).__name__ for s in self.steps)}>"


@dataclass(frozen=True, eq=False)
class Schedule:
    """A fusion's whole computation. `ranges` bounds every variable that occurs; `notes` say why it has this form."""

    phases: tuple[Phase, ...]
    buffers: tuple[Buffer, ...]
    tile_sizes: tuple[int, ...]
    ranges: Mapping[Var, Interval] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    form: str = ""  # which of a fusion's forms this is, where there is a choice (`tiling.planning.forms`)
    kept: frozenset[Value] = frozenset()  # values that calls with the same arguments find made, and packed
    rows_at_a_time: int = 1  # how many long rows of memory the final loops read side by side, where there are any (`Machine`)

    @property
    def main(self) -> Phase:
        """The phase that computes the root's tiles."""
        return next(p for p in reversed(self.phases) if not p.rest)

    def buffers_in(self, scope: Scope) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.scope is scope)

    @property
    def thread_scratch_bytes(self) -> int:
        """Scratch of one thread, each buffer on a cache line of its own."""
        return sum(-(-b.size_bytes // 64) * 64 for b in self.buffers_in(Scope.THREAD))

    @property
    def shared_scratch_bytes(self) -> int:
        return sum(-(-b.size_bytes // 64) * 64 for b in self.buffers_in(Scope.SHARED))

    def scratch_bytes(self, threads: int) -> int:
        """All scratch that `threads` threads need together."""
        return self.shared_scratch_bytes + threads * self.thread_scratch_bytes

    def __repr__(self) -> str:
        tasks, buffers = ", ".join(str(p.tasks) for p in self.phases), ", ".join(b.name for b in self.buffers)
        return f"<Schedule: tiles {list(self.tile_sizes)}, tasks by phase {tasks}, buffers {buffers}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)
