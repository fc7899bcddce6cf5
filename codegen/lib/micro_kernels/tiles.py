"""Products by the tile registers of AMX: C[M, N] = A[M, K] B[K, N], of bytes with sums of 32 bits, of bf16 with sums in f32.

A tile has up to 16 rows of 64 bytes. One instruction adds a tile of A (16 rows of 64 bytes along k) times a tile of B (16 groups
of steps of k, each of which has 4 bytes of 16 columns side by side) to a tile of C (16 x 16 numbers of 32 bits). A block is 2 x 2
tiles of C: four loads of tiles for four products.

    tile 0 1     C[i, j] of the block's tile i of rows and j of columns is tile 2 i + j
         2 3
    4 5          A's tiles of rows
    6 7          B's tiles of columns

How many rows and columns each tile has is loaded with a configuration of 64 bytes, which also clears all tiles: rests of rows and
columns have one of their own.

A's rows lie anywhere, and a load of a tile whose rows cross lines of the cache takes twice as long. So 64 or 32 of them are
copied to the stack first, tile by tile, with zeros after the last step of k; all panels meet the copy while it is in the cache.
What B has of k after whole tiles is copied there, too.

A process has to ask Linux once before it uses tiles. Code that finds them refused takes another way (`is_permitted`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from codegen.lib.buffer import Buf
from codegen.lib.emit import I8, I16, I32, I64, constant, counted, intrinsic_function
from codegen.lib.micro_kernels.blocks import _c, _for, _known
from codegen.lib.micro_kernels.folded import Folded
from codegen.target import current_target

__all__ = ["LEAST_ROWS", "TILE_COLUMNS", "TileProduct", "is_permitted", "tiles_for"]

TILE_ROWS = 16
TILE_COLUMNS = 16
TILE_BYTES = 64  # of a row
BLOCK_ROWS = 2 * TILE_ROWS
LEAST_ROWS = 3  # fewer use too little of a tile
LEAST_PRODUCTS = 1 << 14  # for which a configuration is not worth its 60 ns
COPY_BYTES = 1 << 16  # of A, on the stack
MOST_DEPTH_BYTES = 1 << 11  # of k in a copy: the least rows are one block
MOST_BLOCKS = 4  # of rows in a copy, where k is short
NEAR_BYTES = 1 << 20  # of B, in the second cache: CPUs with tiles have two megabytes of it

_CONFIG_BYTES, _COLUMN_BYTES_AT, _ROWS_AT = 64, 16, 48
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
_UNKNOWN, _GRANTED, _REFUSED = 0, 1, 2


def tiles_for(panel: int, known: tuple[int | None, int | None, int | None], feature: str) -> bool:
    """Whether tiles compute a product in panels of so many columns, on the current target and for extents as far as known.

    `feature` is what the target must have beside tiles: ``amx-int8`` or ``amx-bf16``.
    """
    if feature not in current_target().tile_features or panel % TILE_COLUMNS:
        return False
    rows = known[0]
    if rows is not None and rows < LEAST_ROWS:
        return False
    whole = 1
    for extent in known:
        whole *= LEAST_PRODUCTS if extent is None else extent
    return whole >= LEAST_PRODUCTS


def is_permitted(b: Any) -> Any:
    """A truth of LLVM: Linux lets this process use tiles. It is asked once; what a parent may its forked children may."""
    module = b.module
    state = module.globals.get("tilewright_tiles_state")
    if state is None:
        state = ir.GlobalVariable(module, I32, "tilewright_tiles_state")
        state.linkage, state.initializer = "internal", ir.Constant(I32, _UNKNOWN)
    found = b.load_atomic(state, "monotonic", 4)
    before = b.block
    with b.if_then(b.icmp_signed("==", found, ir.Constant(I32, _UNKNOWN)), likely=False):
        kind = ir.FunctionType(I64, [I64], var_arg=True)
        ask = module.globals.get("syscall") or ir.Function(module, kind, "syscall")
        answer = b.call(ask, [_c(_ARCH_PRCTL), _c(_ARCH_REQ_XCOMP_PERM), _c(_XFEATURE_XTILEDATA)])
        failed = b.icmp_signed("!=", answer, _c(0))
        answer = b.select(failed, ir.Constant(I32, _REFUSED), ir.Constant(I32, _GRANTED))
        b.store_atomic(answer, state, "monotonic", 4)
        asking = b.block
    merged = b.phi(I32)
    merged.add_incoming(found, before)
    merged.add_incoming(answer, asking)
    return b.icmp_signed("==", merged, ir.Constant(I32, _GRANTED))


@dataclass(frozen=True)
class _Part:
    """Blocks of rows (or of columns) with the same tiles: the sizes of their one or two tiles, how many blocks, the first one."""

    sizes: tuple[Any, ...]
    count: Any
    first: Any


class TileProduct(Folded):
    """The emission of one product. `a` to `c` are pointers to elements, distances count elements of each; k is whole groups.

    `instruction` is LLVM's name of the product without ``llvm.x86.``. With ``added`` (a truth of LLVM, or None) the product is
    added to what is in C.
    """

    def __init__(
        self, b: Any, instruction: str, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
        right: tuple[Any, Any, int], out: tuple[Any, Any], added: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(b)
        self.instruction, self.added = instruction, added
        self.m, self.n, _ = extents
        self.item = kinds[0].item_bytes
        pointer = I8.as_pointer()
        self.a, self.a_row = b.bitcast(a[0], pointer), self._scaled(a[1], self.item)
        self.right, self.right_panel, self.panel = b.bitcast(right[0], pointer), self._scaled(right[1], self.item), right[2]
        self.out, self.out_row = b.bitcast(out[0], pointer), self._scaled(out[1], 4)
        self.group_bytes = 4 * self.panel  # of a group of steps of k, in a panel
        self.depth = self._scaled(extents[2], self.item)
        self.tile_depth = self._least(self.depth, TILE_BYTES)
        known = _known(self.depth)
        self.most_depth = MOST_DEPTH_BYTES
        room = self.most_depth if known is None else min(self.most_depth, -(-known // TILE_BYTES) * TILE_BYTES)
        self.blocks = 1 << (min(MOST_BLOCKS, COPY_BYTES // (BLOCK_ROWS * room)).bit_length() - 1)  # of rows, in a copy
        with b.goto_entry_block():
            self.config = self._stack(_CONFIG_BYTES)
            self.copy = self._stack(self.blocks * BLOCK_ROWS * room)
            self.right_rest = self._stack(TILE_ROWS * self.group_bytes)

    # ------------------------------------------------------------ instructions

    def _call(self, name: str, *arguments: Any) -> None:
        kinds = [x.type for x in arguments]
        self.b.call(intrinsic_function(self.b.module, f"llvm.x86.{name}", ir.VoidType(), kinds), arguments)

    def _load(self, tile: int, base: Any, row_bytes: Any) -> None:
        self._call("tileloadd64", ir.Constant(I8, tile), base, row_bytes)

    # ------------------------------------------------------------ the product

    def all(self) -> None:
        """C = A B, or C += A B."""
        whole, *rests = (x for x in self._parts(self.n, self.panel))
        if (together := self._panels_together()) is None:
            self._all_rows([whole, *rests])
        else:
            for group in self._groups(whole, together):
                self._all_rows([group])
            self._all_rows(rests)
        self._call("tilerelease")

    def _all_rows(self, rights: list[_Part]) -> None:
        rights = [x for x in rights if _known(x.count) != 0]
        for down in self._parts(self.m, BLOCK_ROWS) if rights else []:
            if _known(down.count) != 0:
                with self._where(self._compare(">", down.count, 0)):
                    self._rows(down, rights)

    def _panels_together(self) -> int | None:
        """How many panels stay in the second cache while all rows meet them; None where all do, as far as is known."""
        panels, depth = _known(self._over(self.n, self.panel)), _known(self.depth)
        if panels is None or depth is None or panels * self.panel * depth <= NEAR_BYTES * 3 // 2:
            return None
        return max(1, NEAR_BYTES // (self.panel * depth))

    def _groups(self, whole: _Part, together: int) -> Iterator[_Part]:
        """The panels in groups: those of a loop, emitted while the part is used, and the last ones."""
        b, count = self.b, _known(whole.count) or 0
        with counted(b, _c(count // together)) as t:
            yield _Part(whole.sizes, _c(together), b.mul(t, _c(together * self.panel)))
        yield _Part(whole.sizes, _c(count % together), _c(count // together * together * self.panel))

    def _where(self, truth: Any) -> Any:
        return contextlib.nullcontext() if _known(truth) else self.b.if_then(truth)

    def _parts(self, extent: Any, block: int) -> list[_Part]:
        """Whole blocks, then what is left of more than a tile, or of no more."""
        whole, left, full = self._over(extent, block), self._modulo(extent, block), _c(TILE_ROWS)
        first = self._scaled(whole, block)
        if block == TILE_ROWS:
            return [_Part((full,), whole, _c(0)), _Part((left,), self._truth(self._compare(">", left, 0)), first)]
        if block > BLOCK_ROWS:
            raise ValueError(f"panel of {block} columns: expected {TILE_ROWS} or {BLOCK_ROWS}")
        more = self._compare(">", left, TILE_ROWS)
        known = _known(left)
        second = _c(known - TILE_ROWS) if known is not None else self.b.sub(left, full)
        few = self._and(self._compare(">", left, 0), self._compare("<", left, TILE_ROWS + 1))
        return [
            _Part((full, full), whole, _c(0)),
            _Part((full, second), self._truth(more), first),
            _Part((left,), self._truth(few), first),
        ]

    def _configure(self, rows: tuple[Any, ...], columns: tuple[Any, ...]) -> None:
        b = self.b
        b.store(
            constant(ir.VectorType(I8, _CONFIG_BYTES), 0), b.bitcast(self.config, ir.VectorType(I8, _CONFIG_BYTES).as_pointer())
        )
        b.store(ir.Constant(I8, 1), self.config)  # the palette

        def size(tile: int, rows: Any, column_bytes: Any) -> None:
            b.store(b.trunc(rows, I8), b.gep(self.config, [_c(_ROWS_AT + tile)]))
            place = b.bitcast(b.gep(self.config, [_c(_COLUMN_BYTES_AT + 2 * tile)]), I16.as_pointer())
            b.store(b.trunc(column_bytes, I16), place)

        for i, height in enumerate(rows):
            size(4 + i, height, self.tile_depth)
        for j, width in enumerate(columns):
            size(6 + j, self._over(self.tile_depth, 4), self._scaled(width, 4))
            for i, height in enumerate(rows):
                size(2 * i + j, height, self._scaled(width, 4))
        self._call("ldtilecfg", self.config)

    def _rows(self, down: _Part, rights: list[_Part]) -> None:
        """Blocks of rows that are alike, a copy after the other: all of k, all panels."""
        b = self.b
        alone = len(rights) == 1
        if alone:
            self._configure(down.sizes, rights[0].sizes)
        copies, runs = self._over_up(down.count, self.blocks), self._over_up(self.depth, self.most_depth)

        def one_copy(t: Any) -> None:
            first = b.mul(t, _c(self.blocks))
            count = self._least(b.sub(down.count, first) if _known(down.count) != 1 else _c(1), self.blocks)
            row = b.add(down.first, b.mul(first, _c(BLOCK_ROWS)))
            left = b.gep(self.a, [b.mul(row, self.a_row)])
            out = b.gep(self.out, [b.mul(row, self.out_row)])

            self._before_panels(down, count, left)

            def run(r: Any) -> None:
                begin = b.mul(r, _c(self.most_depth)) if _known(runs) != 1 else _c(0)
                depth = self.depth if _known(runs) == 1 else self._least(b.sub(self.depth, begin), self.most_depth)
                self._copy(down.sizes, count, b.gep(left, [begin]), depth)
                for right in rights:
                    with self._where(self._compare(">", right.count, 0)):
                        if not alone:
                            self._configure(down.sizes, right.sizes)
                        self._panels(down, right, count, out, begin, depth)

            _for(b, runs, run)

        _for(b, copies, one_copy)

    def _panels(self, down: _Part, right: _Part, count: Any, out: Any, begin: Any, depth: Any) -> None:
        """All panels of one configuration by the copied rows, for a run of k."""
        b = self.b
        turns, rest = self._over(depth, TILE_BYTES), self._modulo(depth, TILE_BYTES)
        shallow = self._compare("<", self.depth, TILE_BYTES)  # then a tile is as deep as all of k
        if _known(shallow) is None:
            turns, rest = b.select(shallow, _c(1), turns), b.select(shallow, _c(0), rest)
        elif _known(shallow):
            turns, rest = _c(1), _c(0)
        tile_bytes = TILE_ROWS * self.group_bytes
        added = self.added
        if not (isinstance(begin, ir.Constant) and _known(begin) == 0):
            later = b.icmp_signed(">", begin, _c(0))
            added = later if added is None else b.or_(later, added)
        block_bytes = b.mul(self._over_up(depth, TILE_BYTES), _c(BLOCK_ROWS * TILE_BYTES))

        def panel(p: Any) -> None:
            number = b.add(self._over(right.first, self.panel), p)
            base = b.gep(self.right, [b.add(b.mul(number, self.right_panel), b.mul(begin, _c(self.panel)))])
            out_at = b.gep(out, [b.mul(number, _c(self.group_bytes))])
            some = self._compare(">", rest, 0)

            def block(t: Any) -> None:
                left = b.gep(self.copy, [b.mul(t, block_bytes)])
                self._block(down.sizes, right.sizes, left, base, turns, some,
                            b.gep(out_at, [b.mul(b.mul(t, _c(BLOCK_ROWS)), self.out_row)]), added)  # fmt: skip

            def product() -> None:
                if _known(some) != 0:
                    with self._where(some):
                        self._copy_right(b.gep(base, [b.mul(turns, _c(tile_bytes))]), rest)
                _for(b, count, block)

            self._panel(product, number, right.sizes, out_at, begin)

        _for(b, right.count, panel)

    # ------------------------------------------------------------ where tiles compute something else

    def _before_panels(self, down: _Part, count: Any, left: Any) -> None:
        """Looks at the rows (``count`` blocks from ``left`` on) that all panels are going to meet: nothing to see in bytes."""

    def _panel(self, product: Callable[[], None], number: Any, columns: tuple[Any, ...], out: Any, begin: Any) -> None:
        """The product of a panel by these rows, from byte ``begin`` of k on; by tiles, unless they would give something else."""
        product()

    def _block(
        self, rows: tuple[Any, ...], columns: tuple[Any, ...], left_at: Any, right_at: Any, turns: Any, some: Any, out_at: Any,
        added: Any,
    ) -> None:  # fmt: skip
        """One block of C, over whole tiles of k and, where there are some, the steps after them."""
        b = self.b
        tiles = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
        places = {
            (i, j): b.gep(out_at, [b.add(b.mul(self.out_row, _c(i * TILE_ROWS)), _c(4 * j * TILE_COLUMNS))]) for i, j in tiles
        }

        def start() -> None:
            for i, j in tiles:
                self._call("tilezero", ir.Constant(I8, 2 * i + j))

        def start_there() -> None:
            for i, j in tiles:
                self._load(2 * i + j, places[i, j], self.out_row)

        if added is None:
            start()
        else:
            with b.if_else(added) as (then, otherwise):
                with then:
                    start_there()
                with otherwise:
                    start()

        def step(t: Any, right: Any) -> None:
            left = b.gep(left_at, [b.mul(t, _c(BLOCK_ROWS * TILE_BYTES))])
            for j in range(len(columns)):
                self._load(6 + j, b.gep(right, [_c(4 * j * TILE_COLUMNS)]), _c(self.group_bytes))
            for i in range(len(rows)):
                self._load(4 + i, b.gep(left, [_c(i * TILE_ROWS * TILE_BYTES)]), _c(TILE_BYTES))
                for j in range(len(columns)):
                    self._call(self.instruction, *(ir.Constant(I8, x) for x in (2 * i + j, 4 + i, 6 + j)))

        _for(b, turns, lambda t: step(t, b.gep(right_at, [b.mul(t, _c(TILE_ROWS * self.group_bytes))])))
        if _known(some) != 0:
            with self._where(some):
                step(turns, self.right_rest)
        for i, j in tiles:
            self._call("tilestored64", ir.Constant(I8, 2 * i + j), places[i, j], self.out_row)

    # ------------------------------------------------------------ copies

    def _copy(self, rows: tuple[Any, ...], count: Any, left: Any, depth: Any) -> None:
        """Blocks of rows, tile by tile: 64 bytes of each row side by side, zeros after the last step of k."""
        b, vector = self.b, ir.VectorType(I8, TILE_BYTES).as_pointer()
        whole, rest = self._over(depth, TILE_BYTES), self._modulo(depth, TILE_BYTES)
        some = self._compare(">", rest, 0)
        steps = self._over_up(depth, TILE_BYTES)
        height = rows[0] if len(rows) == 1 else b.add(rows[0], rows[1])

        def row(at: Any, source: Any) -> None:
            def step(t: Any) -> None:
                access = b.load(b.bitcast(b.gep(source, [b.mul(t, _c(TILE_BYTES))]), vector))
                access.align = 1
                b.store(access, b.bitcast(b.gep(at, [b.mul(t, _c(BLOCK_ROWS * TILE_BYTES))]), vector), align=TILE_BYTES)

            _for(b, whole, step)
            if _known(some) != 0:
                with self._where(some):
                    value = self._masked_load(b.gep(source, [b.mul(whole, _c(TILE_BYTES))]), self._first_bytes(rest))
                    b.store(value, b.bitcast(b.gep(at, [b.mul(whole, _c(BLOCK_ROWS * TILE_BYTES))]), vector), align=TILE_BYTES)

        def block(t: Any) -> None:
            first = b.gep(self.copy, [b.mul(b.mul(t, steps), _c(BLOCK_ROWS * TILE_BYTES))])
            base = b.gep(left, [b.mul(b.mul(t, _c(BLOCK_ROWS)), self.a_row)])
            _for(b, height, lambda r: row(b.gep(first, [b.mul(r, _c(TILE_BYTES))]), b.gep(base, [b.mul(r, self.a_row)])))

        _for(b, count, block)

    def _copy_right(self, base: Any, rest: Any) -> None:
        """The last groups of steps of a panel, with zeros after them."""
        b, vector = self.b, ir.VectorType(I8, TILE_BYTES)
        for part in range(self.group_bytes // TILE_BYTES):

            def row(t: Any, part: int = part) -> None:
                at = b.add(b.mul(t, _c(self.group_bytes)), _c(part * TILE_BYTES))
                there = b.icmp_signed("<", b.mul(t, _c(4)), rest)
                value = self._masked_load(b.gep(base, [at]), self._first_bytes(b.select(there, _c(TILE_BYTES), _c(0))))
                b.store(value, b.bitcast(b.gep(self.right_rest, [at]), vector.as_pointer()), align=64)

            _for(b, _c(TILE_ROWS), row)
