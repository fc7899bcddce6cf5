"""Minimum and maximum of expressions."""

from __future__ import annotations

import copyreg
from typing import Any

from indexing.expressions.interning import intern, lookup
from indexing.expressions.terms import Expr, ExprLike, Maximum, Minimum, Terms, as_expr, from_terms, make_atom, shift

__all__ = ["maximum", "minimum"]


def minimum(*arguments: ExprLike) -> Expr:
    """The least of the arguments. Raises ValueError without any.

    >>> from indexing import Var
    >>> t = Var("t0")
    >>> str(minimum(t * 8 + 8, 100, minimum(120, t)))
    'min(t0, t0 * 8 + 8, 100)'
    """
    return _extremum("min", arguments)


def maximum(*arguments: ExprLike) -> Expr:
    """The greatest of the arguments. Raises ValueError without any.

    >>> from indexing import Var
    >>> str(maximum(Var("t0"), 0, -3))
    'max(t0, 0)'
    """
    return _extremum("max", arguments)


def _extremum(kind: str, arguments: tuple[ExprLike, ...]) -> Expr:
    cls: type[Minimum] | type[Maximum] = Minimum if kind == "min" else Maximum
    flat: list[Expr] = []
    for a in arguments:
        e = as_expr(a)
        flat.extend(e.arguments if isinstance(e, cls) else (e,))
    if not flat:
        raise ValueError(f"{kind} of nothing")
    # Arguments that differ by a constant are decided here: one of each linear part is kept.
    best: dict[Terms, int] = {}
    for e in flat:
        known = best.get(e.terms)
        better = known is None or (e.constant < known if kind == "min" else e.constant > known)
        if better:
            best[e.terms] = e.constant
    kept = sorted((shift(from_terms(0, dict(t)), k) for t, k in best.items()), key=lambda e: e.order)
    if len(kept) == 1:
        return kept[0]
    key = (kind, tuple(kept))
    node: Minimum | Maximum | None = lookup(key)
    if node is None:
        node = make_atom(cls, key, (4, kind, tuple(e.order for e in kept)), tuple(kept))
        node.arguments = tuple(kept)
        node = intern(key, node)
    return node


def _anew(e: Minimum | Maximum) -> tuple[Any, tuple[Expr, ...]]:
    """How one is pickled: it is made again, so that equal ones stay one object."""
    return minimum if isinstance(e, Minimum) else maximum, e.arguments


copyreg.pickle(Minimum, _anew)
copyreg.pickle(Maximum, _anew)
