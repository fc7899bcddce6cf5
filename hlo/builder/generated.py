"""Methods made from the registry: one for each op whose builder call is its signature."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hlo.builder.core import BuilderCore, _caller, flat, type_of
from hlo.errors import Declined, VerificationError
from hlo.module import Value
from hlo.registry import OpDefinition, definitions
from hlo.types import TensorType, TupleType, Type

__all__ = ["ALIASES", "add_generated_methods", "check_methods", "method_name"]

ALIASES: dict[str, str] = {
    "cos": "cosine", "sin": "sine", "exp": "exponential", "expm1": "exponential_minus_one", "log1p": "log_plus_one",
    "neg": "negate", "clz": "count_leading_zeros", "population_count": "popcnt", "round": "round_nearest_afz", "rev": "reverse",
}  # fmt: skip
"""XlaBuilder's name -> the op's."""

ARGUMENTS: dict[tuple[str, str], Callable[[Sequence[Value]], list[Type]]] = {
    ("stablehlo.collective_reduce", "computation"): lambda v: [TensorType((), v[0].tensor.element)] * 2,
}
"""What a region takes where that is not the operands themselves."""

SKIPPED = frozenset({"func.call", "func.return", "stablehlo.return", "sdy.return"})
"""What the builder writes by itself."""


def method_name(d: OpDefinition) -> str:
    """The method of an op: its mnemonic, with an underscore behind a Python keyword.

    >>> from hlo.registry import definition
    >>> method_name(definition("stablehlo.if")), method_name(definition("chlo.erf"))
    ('if_', 'erf')
    """
    name = d.mnemonic.replace("-", "_").replace(".", "_")
    return name + "_" if keyword.iskeyword(name) else name


def _segments(d: OpDefinition, given: Sequence[Any]) -> tuple[list[Value], list[int]]:
    values: list[Value] = []
    sizes = []
    for v in given:
        part = [] if v is None else flat((v,))
        sizes.append(len(part))
        values.extend(part)
    return values, sizes


def _signature(d: OpDefinition) -> inspect.Signature:
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    rows: list[tuple[str, Any]] = [(o.name, None if o.optional else inspect.Parameter.empty) for o in d.operands]
    rows += [(r, inspect.Parameter.empty) for r in d.regions]
    required = [(a.name, inspect.Parameter.empty) for a in d.attributes if a.is_required]
    rows = [r for r in rows if r[1] is not None] + required + [r for r in rows if r[1] is None]
    parameters = [inspect.Parameter("self", place)]
    parameters += [inspect.Parameter(_argument(n), place, default=default) for n, default in rows]
    parameters += [inspect.Parameter(_argument(a.name), place, default=None) for a in d.attributes if not a.is_required]
    if isinstance(d.infer, Declined):
        parameters.append(inspect.Parameter("result_type", inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(parameters)


def _argument(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name.replace("-", "_")


def _own_types(values: Sequence[Value]) -> list[Type]:
    return [v.type for v in values]


def _result_types(shape: Any) -> Sequence[Type]:
    if isinstance(shape, list | tuple):
        return [type_of(t) for t in shape]
    t = type_of(shape)
    return t.elements if isinstance(t, TupleType) else (t,)


def _value(attribute: Any) -> Any:
    return tuple(_value(x) for x in attribute) if isinstance(attribute, list) else attribute


def _generated(d: OpDefinition) -> Any:
    signature = _signature(d)

    def method(self: BuilderCore, *args: Any, **kwargs: Any) -> Any:
        try:
            given: Mapping[str, Any] = signature.bind(self, *args, **kwargs).arguments
        except TypeError as e:
            raise VerificationError(f"{e}; the arguments are {signature}", _caller(), op=d.name, constraint="signature") from None
        values, sizes = _segments(d, [given.get(_argument(o.name)) for o in d.operands])
        attributes = {a.name: _value(given.get(_argument(a.name))) for a in d.attributes}
        if d.sized_segments:
            attributes["operandSegmentSizes"] = tuple(sizes)
        for v in values:
            if not isinstance(v, Value):
                raise VerificationError(f"expected values as operands, found {v!r}", _caller(), op=d.name)
        regions = []
        for r in d.regions:
            regions.append(self.region(given[_argument(r)], ARGUMENTS.get((d.name, r), _own_types)(values)))
        types = _result_types(given["result_type"]) if "result_type" in given else None
        made = self.emit(d.name, values, attributes, regions, types)
        return made[0] if len(made) == 1 else made

    method.__name__ = method_name(d)
    method.__doc__ = f"Appends {d.name} ({d.spec}), checked and with its result inferred. Raises VerificationError."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _checked(name: str, method: Callable[..., Any]) -> Any:
    """The method, with what trips over a malformed argument inside of this package raised as VerificationError."""

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
            trace = e.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
            if not where.startswith("hlo."):
                raise  # the caller's own computation
            message = f"malformed arguments: expected those of the method's signature, found {e}"
            raise VerificationError(message, _caller(), op=name, constraint="arguments") from None

    return checked


def check_methods(*classes: type[BuilderCore]) -> None:
    """Has every public method written by hand answer malformed arguments with VerificationError."""
    for cls in classes:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _checked(name, method))


def add_generated_methods(cls: type[BuilderCore], by_hand: Collection[str]) -> dict[str, str]:
    """A method for every op that has none written by hand; StableHLO's comes before another dialect's of the same name.

    `by_hand` names the ops of other dialects that have a method already.

    Returns method -> op name.
    """
    order = sorted(definitions(), key=lambda d: (not d.name.startswith("stablehlo."), not d.name.startswith("chlo."), d.name))
    made: dict[str, str] = {}
    for d in order:
        name = method_name(d)
        if hasattr(cls, name) and d.name not in by_hand and not d.name.startswith("stablehlo."):
            name = f"{d.name.partition('.')[0]}_{name}"  # another dialect's op of the same name has taken the short one
        if d.name not in SKIPPED and d.name not in by_hand and not hasattr(cls, name):
            setattr(cls, name, _generated(d))
            made[name] = d.name
    for alias, name in ALIASES.items():
        if not hasattr(cls, alias):
            setattr(cls, alias, getattr(cls, name))
    return made
