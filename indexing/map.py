"""Index maps: which elements of a tensor belong to an index, under which conditions.

    (d0, …)[s0, …]{rt0, …} -> (result_0, …)   for every variable in its interval, where all constraints hold

`d` are dimension variables (the index that is asked about), `s` range variables (every value counts: what a reduction runs
over), `rt` runtime variables (one value, known only when the program runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from hlo import Declined, Value
from hlo.display import as_html, as_latex, as_text
from hlo.lazy import cached_property
from indexing.expr import ExprLike, as_expr, evaluate, substitute
from indexing.expressions.bounds import Bounds, Interval
from indexing.expressions.terms import Expr, Var
from indexing.regions import Region

if TYPE_CHECKING:
    import islpy

__all__ = ["Constraint", "IndexingMap", "RuntimeVariable", "Variable", "build", "compose", "label_of", "usual"]


class Variable(NamedTuple):
    """A dimension or range variable and the integers it runs through."""

    var: Var
    interval: Interval


class RuntimeVariable(NamedTuple):
    """A variable whose one value is `producer[element]` at run time, known to lie in `interval`.

    `element` is an index into the producer's tensor, in the variables of the map that this belongs to. The producer is
    None for a map that came from text or from another process; `label` still names it.
    """

    var: Var
    interval: Interval
    producer: Value | None = None
    element: tuple[Expr, ...] = ()
    label: str = ""


class Constraint(NamedTuple):
    """`expression` lies in `interval`."""

    expression: Expr
    interval: Interval


_VARS: dict[tuple[str, int], Var] = {}


def usual(prefix: str, i: int) -> Var:
    """The i-th variable of a kind by its usual name: usual("d", 0) is d0."""
    found = _VARS.get((prefix, i))
    if found is None:
        found = _VARS[prefix, i] = Var(f"{prefix}{i}")
    return found


class MapOperations(Protocol):
    """What a map is asked for and files above this one know: `indexing.operations` has these functions."""

    def same_relation(self, a: IndexingMap, b: IndexingMap) -> bool: ...
    def format_document(self, m: IndexingMap) -> str: ...
    def simplify_map(self, m: IndexingMap) -> IndexingMap: ...
    def to_isl(self, m: IndexingMap) -> islpy.Map: ...
    def invert(self, m: IndexingMap, box: Sequence[int | Interval] | None = None) -> IndexingMap: ...
    def restrict(self, m: IndexingMap, conditions: Mapping[Expr, Interval]) -> IndexingMap: ...
    def select_results(self, m: IndexingMap, numbers: Sequence[int]) -> IndexingMap: ...
    def ranges_to_dims(self, m: IndexingMap) -> IndexingMap: ...
    def rescale_ranges(self, m: IndexingMap) -> IndexingMap: ...
    def image(self, m: IndexingMap, region: Region | None = None) -> Region: ...
    def preimage(self, m: IndexingMap, region: Region) -> Region: ...


@dataclass(frozen=True, eq=False)
class IndexingMap:
    """A map from dimension variables to results; see the module's text. Immutable.

    `==` is equality of relations: the same results for the same dimensions and runtime values, whatever the spelling
    (range variables are existential; isl decides where the spellings differ). `hash` agrees with it. Keys of hot tables
    are better made of `spelling`, which is compared by looking.

    `unknown` carries the reason when no map describes the reads; such a map has no variables and no results.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0, d1)[s0] -> (d0 * 4 + s0, d1), domain: d0 in [0, 2], d1 in [0, 7], s0 in [0, 3]")
    >>> m.evaluate([2, 5], [3])
    [11, 5]
    """

    dims: tuple[Variable, ...]
    results: tuple[Expr, ...]
    ranges: tuple[Variable, ...] = ()
    runtimes: tuple[RuntimeVariable, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    unknown: Declined | None = None
    is_known_empty: bool = field(default=False)
    _operations: ClassVar[MapOperations]

    # ------------------------------------------------------------ making

    @staticmethod
    def over(
        dims: Sequence[int | Interval],
        results: Sequence[ExprLike],
        ranges: Sequence[int | Interval] = (),
        constraints: Mapping[Expr, Interval] | None = None,
    ) -> IndexingMap:
        """A map with the usual names d0, …, s0, …; a size n stands for [0, n - 1].

        >>> d0, s0 = Var("d0"), Var("s0")
        >>> str(IndexingMap.over([20], [s0, d0], ranges=[10]))
        '(d0)[s0] -> (s0, d0), domain: d0 in [0, 19], s0 in [0, 9]'
        """
        return IndexingMap(
            tuple(Variable(usual("d", i), _as_interval(n)) for i, n in enumerate(dims)),
            tuple(as_expr(r) for r in results),
            tuple(Variable(usual("s", i), _as_interval(n)) for i, n in enumerate(ranges)),
            constraints=tuple(Constraint(e, b) for e, b in (constraints or {}).items()),
        )

    @staticmethod
    def identity(shape: Sequence[int]) -> IndexingMap:
        """(d0, d1, …) -> (d0, d1, …) over a tensor's index space."""
        return IndexingMap.over(shape, [usual("d", i) for i in range(len(shape))])

    @staticmethod
    def unknown_because(reason: str) -> IndexingMap:
        """The map that says that the reads are not described, and why."""
        return IndexingMap((), (), unknown=Declined(reason))

    # ------------------------------------------------------------ looking

    @cached_property
    def variable_ranges(self) -> dict[Var, Interval]:
        """Every variable's interval: what `simplify` and `interval` ask for."""
        table = {v.var: v.interval for v in self.dims}
        table.update((v.var, v.interval) for v in self.ranges)
        table.update((v.var, v.interval) for v in self.runtimes)
        return table

    @cached_property
    def bounds(self) -> Bounds:
        """Ranges of expressions in this map's variables."""
        return Bounds(self.variable_ranges)

    @cached_property
    def spelling(self) -> tuple[Any, ...]:
        """A key that is equal for maps that are written alike."""
        runtimes = tuple((v.var, v.interval, v.element, v.producer, v.label) for v in self.runtimes)
        return (self.dims, self.results, self.ranges, runtimes, self.constraints, self.unknown, self.is_known_empty)

    @property
    def is_unknown(self) -> bool:
        return self.unknown is not None

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The range variables, then the runtime variables."""
        return tuple(v.var for v in self.ranges) + tuple(v.var for v in self.runtimes)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"<IndexingMap {self}>"

    def to_document(self) -> str:
        """The text on several lines: one variable or constraint a line, a runtime variable with its producer below it."""
        return self._operations.format_document(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # The program does not travel along: a producer is left behind, its label stays.
        runtimes = tuple(v._replace(producer=None, label=v.label or label_of(v.producer)) for v in self.runtimes)
        return IndexingMap, (
            self.dims, self.results, self.ranges, runtimes, self.constraints, self.unknown, self.is_known_empty,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexingMap):
            return NotImplemented
        if self is other or self.spelling == other.spelling:
            return True
        return self._operations.same_relation(self, other)

    def __hash__(self) -> int:
        # Nothing finer is the same for every spelling of a relation and yet cheap.
        return hash((len(self.dims), len(self.results), self.unknown))

    @cached_property
    def rescaled(self) -> IndexingMap:
        """What `rescale_ranges` gives: a set of maps compares each of them with all others."""
        return self._operations.rescale_ranges(self)

    # ------------------------------------------------------------ using

    def evaluate(self, dims: Sequence[Any], symbols: Sequence[Any] = ()) -> list[Any]:
        """The results at a point: `dims` in order, `symbols` for the ranges and then the runtime variables.

        Ints give ints; integer arrays that broadcast together are evaluated elementwise. Constraints and intervals are
        not looked at: `holds` does that. Raises ValueError for a wrong number of values.
        """
        values = self._environment(dims, symbols)
        return [evaluate(r, values) for r in self.results]

    def holds(self, dims: Sequence[Any], symbols: Sequence[Any] = ()) -> Any:
        """Whether a point lies in the domain: every variable in its interval, every constraint met. Elementwise for arrays."""
        values = self._environment(dims, symbols)
        met: Any = not self.is_known_empty
        for v, b in self.variable_ranges.items():
            met = met & (b.lower <= values[v]) & (values[v] <= b.upper)
        for e, b in self.constraints:
            x = evaluate(e, values)
            met = met & (b.lower <= x) & (x <= b.upper)
        return met

    def _environment(self, dims: Sequence[Any], symbols: Sequence[Any]) -> dict[Var, Any]:
        names = self.symbols
        if len(dims) != len(self.dims) or len(symbols) != len(names):
            expected = f"{len(self.dims)} dimensions and {len(names)} symbols"
            raise ValueError(f"expected {expected}, found {len(dims)} and {len(symbols)}")
        values: dict[Var, Any] = {v.var: x for v, x in zip(self.dims, dims, strict=True)}
        values.update(zip(names, symbols, strict=True))
        return values

    def simplify(self) -> IndexingMap:
        """The same relation, written as short as the rules can make it; the variables stay. See `indexing.map_simplifier`.

        >>> from indexing import parse_map
        >>> text = "(d0, d1) -> ((d0 * 8 + d1) floordiv 8, d1 mod 8), domain: d0 in [0, 3], d1 in [0, 7], d0 + d1 in [0, 20]"
        >>> str(parse_map(text).simplify())
        '(d0, d1) -> (d0, d1), domain: d0 in [0, 3], d1 in [0, 7]'
        """
        return self._operations.simplify_map(self)

    def to_isl(self) -> islpy.Map:
        """The relation as `islpy.Map` from [dims, ranges, rts] to the results, domain and constraints included.

        Raises ValueError for an unknown map and for products of variables, which isl cannot express.
        """
        return self._operations.to_isl(self)

    def compose(self, second: IndexingMap) -> IndexingMap:
        """`second` after this map; see `indexing.compose`."""
        return compose(self, second)

    def inverse(self, box: Sequence[int | Interval] | None = None) -> IndexingMap:
        """The inverse relation, over `box` or over what the results can reach; see `indexing.invert`."""
        return self._operations.invert(self, box)

    def restrict(self, conditions: Mapping[Expr, Interval]) -> IndexingMap:
        """The map where every expression also lies in its interval; see `indexing.transform`."""
        return self._operations.restrict(self, conditions)

    def select_results(self, numbers: Sequence[int]) -> IndexingMap:
        """The map to some of the results, in the order given."""
        return self._operations.select_results(self, numbers)

    def ranges_to_dims(self) -> IndexingMap:
        """The map whose dimensions are the old dimensions and then the old ranges."""
        return self._operations.ranges_to_dims(self)

    def rescale_ranges(self) -> IndexingMap:
        """The same relation with fewer and shorter range variables; see `indexing.transform`."""
        return self.rescaled

    def image(self, region: Region | None = None) -> Region:
        """The results over a region of the dimensions (default: the domain), exactly; see `indexing.exact.images.image`."""
        return self._operations.image(self, region)

    def preimage(self, region: Region) -> Region:
        """The dimensions that have a result in the region, exactly."""
        return self._operations.preimage(self, region)

    @property
    def domain(self) -> Region:
        """The dimensions for which some range and runtime values meet all constraints."""
        return self._operations.image(replace(self, results=tuple([v.var for v in self.dims])))

    @property
    def range(self) -> Region:
        """All results."""
        return self.image()

    def _repr_latex_(self) -> str:
        return f"${as_latex(self)}$"

    def _repr_html_(self) -> str:
        return as_html(self)

    def remove_unused(self) -> IndexingMap:
        """The same relation without the range and runtime variables that occur in no result, constraint or element."""
        used: set[Var] = set()
        for e in self.results:
            used.update(e.variables)
        for e, _ in self.constraints:
            used.update(e.variables)
        keep = [v for v in self.runtimes if v.var in used]
        for v in keep:
            for e in v.element:
                used.update(e.variables)
        # A variable without any value empties the domain: it may not go.
        ranges = tuple(v for v in self.ranges if v.var in used or v.interval.is_empty)
        runtimes = tuple(v for v in self.runtimes if v.var in used or v.interval.is_empty)
        if len(ranges) == len(self.ranges) and len(runtimes) == len(self.runtimes):
            return self
        return replace(self, ranges=ranges, runtimes=runtimes).renumbered()

    def renumbered(self) -> IndexingMap:
        """The same map with the usual names: d0, d1, …; s0, s1, …; rt0, rt1, …"""
        names: dict[Var, ExprLike] = {}
        symbols = (("d", [v.var for v in self.dims]), ("s", [v.var for v in self.ranges]), ("rt", [v.var for v in self.runtimes]))
        for prefix, group in symbols:
            for i, var in enumerate(group):
                name = usual(prefix, i)
                if var is not name:
                    names[var] = name
        return self.renamed(names) if names else self

    def renamed(self, names: Mapping[Var, ExprLike]) -> IndexingMap:
        """Variables replaced by variables, all at once. Raises ValueError when two would become one."""
        known: dict[Expr, Any] = {}

        def new(e: Expr) -> Expr:
            return substitute(e, names, known)

        def var(v: Var) -> Var:
            n = names.get(v, v)
            if not isinstance(n, Var):
                raise ValueError(f"{v} can be renamed to a variable only, not to {n}")
            return n

        out = IndexingMap(
            tuple(Variable(var(v), b) for v, b in self.dims),
            tuple([new(e) for e in self.results]),
            tuple(Variable(var(v), b) for v, b in self.ranges),
            tuple(v._replace(var=var(v.var), element=tuple([new(e) for e in v.element])) for v in self.runtimes),
            tuple([Constraint(new(e), b) for e, b in self.constraints]),
            self.unknown,
            self.is_known_empty,
        )
        if len(out.variable_ranges) != len(self.variable_ranges):
            raise ValueError(f"renaming makes two variables of {self} one")
        return out


def _as_interval(n: int | Interval) -> Interval:
    return n if isinstance(n, Interval) else Interval(0, n - 1)


def label_of(producer: Value | None) -> str:
    """What a printed map calls a producer: its name and type."""
    return "" if producer is None else f"%{producer.name or '?'}: {producer.type}"


def compose(first: IndexingMap, second: IndexingMap) -> IndexingMap:
    """second after first: x -> second(first(x)), for a consumer's map and its producer's.

    Dimensions are the first's. Range and runtime variables are numbered anew, the second's before the first's. Where the
    first's results may leave the second's domain, that domain becomes a constraint. Raises ValueError when the first has
    not as many results as the second has dimensions.

    >>> from indexing import parse_map
    >>> first = parse_map("(d0)[s0] -> (d0, s0), domain: d0 in [0, 9], s0 in [0, 7]")
    >>> second = parse_map("(d0, d1) -> (d1, d0 + 2), domain: d0 in [0, 5], d1 in [0, 7]")
    >>> str(compose(first, second))
    '(d0)[s0] -> (s0, d0 + 2), domain: d0 in [0, 5], s0 in [0, 7]'
    """
    if first.unknown is not None:
        return first
    if second.unknown is not None:
        return second
    if len(first.results) != len(second.dims):
        raise ValueError(f"expected a map with {len(first.results)} dimensions after {first}, found {second}")
    inner: dict[Var, ExprLike] = {v.var: e for v, e in zip(second.dims, first.results, strict=True)}
    outer: dict[Var, ExprLike] = {}
    taken = {v.var for v in first.dims}
    ranges = _renumber("s", second.ranges, inner, first.ranges, outer, taken)
    runtimes = _renumber("rt", second.runtimes, inner, first.runtimes, outer, taken)
    outer = {v: n for v, n in outer.items() if v is not n}
    if outer:
        known: dict[Expr, Any] = {}
        for v, e in zip(second.dims, first.results, strict=True):
            inner[v.var] = substitute(e, outer, known)
    in_second, in_first = _substitution(inner), _substitution(outer)
    split = len(second.runtimes)
    constraints = [Constraint(in_first(e), b) for e, b in first.constraints]
    constraints += [Constraint(in_second(e), b) for e, b in second.constraints]
    for v, result in zip(second.dims, first.results, strict=True):
        if not v.interval.covers(first.bounds(result)):
            constraints.append(Constraint(as_expr(inner[v.var]), v.interval))
    return build(
        first.dims,
        [in_second(e) for e in second.results],
        ranges,
        [
            v._replace(element=tuple([(in_second if i < split else in_first)(e) for e in v.element]))
            for i, v in enumerate(runtimes)
        ],
        constraints,
        first.is_known_empty or second.is_known_empty,
    )


def build(
    dims: Iterable[Variable],
    results: Iterable[Expr],
    ranges: Iterable[Variable],
    runtimes: Iterable[RuntimeVariable],
    constraints: Iterable[Constraint],
    is_known_empty: bool = False,
) -> IndexingMap:
    """A map in which a constraint on a bare variable has become part of its interval, and each expression has one constraint."""
    table: dict[Expr, Interval] = {}
    for e, b in constraints:
        known = table.get(e)
        table[e] = b if known is None else known.intersect(b)
    narrower = {e: table.pop(e) for e in [e for e in table if type(e) is Var]}

    def narrow(group: Iterable[Any]) -> tuple[Any, ...]:
        if not narrower:
            return tuple(group)
        return tuple([v._replace(interval=v.interval.intersect(narrower[v.var])) if v.var in narrower else v for v in group])

    return IndexingMap(
        narrow(dims),
        tuple(results),
        narrow(ranges),
        narrow(runtimes),
        tuple([Constraint(e, b) for e, b in table.items()]),
        is_known_empty=is_known_empty,
    )


def _substitution(names: Mapping[Var, ExprLike]) -> Callable[[Expr], Expr]:
    known: dict[Expr, Any] = {}
    if not names:
        return lambda e: e
    return lambda e: substitute(e, names, known)


def _renumber(
    prefix: str,
    seconds: Sequence[Any],
    inner: dict[Var, ExprLike],
    firsts: Sequence[Any],
    outer: dict[Var, ExprLike],
    taken: set[Var],
) -> list[Any]:
    """The variables of both, the second's first, under fresh usual names; fills in the replacements."""
    out: list[Any] = []
    i = 0
    for group, names in ((seconds, inner), (firsts, outer)):
        for v in group:
            while usual(prefix, i) in taken:
                i += 1
            fresh = usual(prefix, i)
            i += 1
            names[v.var] = fresh
            out.append(v._replace(var=fresh))
    return out
