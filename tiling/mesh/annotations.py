"""Shardings as programs write them: Shardy's (`#sdy.sharding<@mesh, [{"x"}, {}]>`) and XLA's (`{devices=[2,1]<=[2]}`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

from hlo.errors import Declined, TilewrightError
from hlo.module import Module, walk
from tiling.mesh.mesh import Mesh
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["AnnotationError", "has_annotations", "meshes_of", "open_dims", "sharding_of", "shardings_in"]


class AnnotationError(TilewrightError):
    """A sharding that means nothing on its mesh."""


_AXIS = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_GENERIC_AXIS = re.compile(r'mesh_axis<"?([^",]+)"?,\s*(\d+)>|name\s*=\s*"([^"]+)",\s*size\s*=\s*(\d+)')
_TOKEN = re.compile(r'"(?P<name>[^"]+)"(?::\((?P<before>\d+)\)(?P<size>\d+))?|(?P<open>\?)')


def meshes_of(module: Module) -> dict[str, Mesh]:
    """The meshes that a module declares, by name. Raises AnnotationError for devices in an order of their own.

    >>> import hlo
    >>> text = 'module { sdy.mesh @m = <["x"=2, "y"=4]> func.func @main() { return } }'
    >>> {name: str(mesh) for name, mesh in meshes_of(hlo.parse(text)).items()}
    {'m': 'x=2,y=4'}
    """
    found: dict[str, Mesh] = {}
    for text in module.foreign:
        name = re.search(r'@"?([\w.$-]+)"?|sym_name\s*=\s*"([^"]+)"', text)
        if "sdy.mesh" not in text or name is None:
            continue
        shape = text[: text.find("{stablehlo.mesh")] if "{stablehlo.mesh" in text else text
        devices = re.search(r"device_ids\s*=\s*\[([\d,\s]*)\]", shape)
        order = [int(n) for n in devices[1].split(",") if n.strip()] if devices else []
        if order != sorted(order):
            raise AnnotationError(f"sdy.mesh @{name[1] or name[2]}: expected devices in their order, found {order}")
        axes = _AXIS.findall(shape) or [(a or c, b or d) for a, b, c, d in _GENERIC_AXIS.findall(shape)]
        found[name[1] or name[2]] = Mesh({axis: int(size) for axis, size in axes})
    return found


def has_annotations(module: Module) -> bool:
    """Whether a module is in the global view: whether anything in it says how values are spread over processes."""
    for f in module.functions.values():
        dictionaries = [*f.argument_attributes, *f.result_attributes]
        if any("sdy.sharding" in d or "mhlo.sharding" in d for d in dictionaries if d):
            return True
        if any(op.name.startswith("sdy.") or _is_xlas(op.attributes.get("call_target_name")) for op in walk(f.body)):
            return True
    return False


def _is_xlas(target: object) -> bool:
    return target in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")


def shardings_in(text: str, meshes: Mapping[str, Mesh]) -> list[Sharding]:
    """The shardings of `#sdy.sharding_per_value<[<@m, [{"x"}]>, …]>`."""
    return [sharding_of(part, meshes) for part in re.findall(r"<@[^<>]*(?:<[^<>]*>[^<>]*)*>", text[text.find("[") :])]


def sharding_of(text: str, meshes: Mapping[str, Mesh]) -> Sharding:
    """The sharding that a text says. Raises AnnotationError for an unknown mesh or axis, or a form that is not read here.

    Open dimensions (`{"x", ?}`) have the digits that are written; axes of `replicated={…}` are none's.

    >>> meshes = {"m": Mesh({"x": 4, "y": 2})}
    >>> print(sharding_of('#sdy.sharding<@m, [{"y"}, {"x":(1)2, ?}]>', meshes))
    [{y}, {x:(1)2}]
    >>> print(sharding_of("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", meshes))
    [{1:2}, {}]
    """
    if "<@" in text:
        return _shardy(text, meshes)
    found = _xla(text.strip().strip('"'))
    if isinstance(found, Declined):
        raise AnnotationError(f"sharding {text}: {found.reason}")
    return found


def _shardy(text: str, meshes: Mapping[str, Mesh]) -> Sharding:
    name = re.search(r'<@"?([\w.$-]+)"?', text)
    mesh = meshes.get(name[1]) if name else None
    if mesh is None:
        raise AnnotationError(f"sharding {text}: found no mesh @{name[1] if name else '?'}")
    body = text[text.find("[") + 1 : text.rfind("]")]
    dims = re.findall(r"\{([^{}]*)\}", body)
    made = []
    for dim in dims:
        digits: list[Digit] = []
        for token in _TOKEN.finditer(dim):
            if token["name"]:
                digits.append(_digit(mesh, token["name"], token["before"], token["size"], text))
        made.append(tuple([d for d in digits if d.size > 1]))
    return Sharding(tuple(made))


def open_dims(text: str) -> tuple[int, ...]:
    """The dimensions that one of Shardy's shardings leaves open for more axes.

    >>> open_dims('#sdy.sharding<@m, [{"y", ?}, {"x"}, {?}]>')
    (0, 2)
    """
    body = text[text.find("[") + 1 : text.rfind("]")]
    return tuple([k for k, dim in enumerate(re.findall(r"\{([^{}]*)\}", body)) if "?" in dim])


def _digit(mesh: Mesh, axis: str, before: str | None, size: str | None, text: str) -> Digit:
    """An axis; or the part of it that has `size` values, with `before` more significant ones in front of it."""
    sizes = dict(mesh.axes)
    if axis not in sizes:
        raise AnnotationError(f"sharding {text}: the mesh has no axis {axis!r}; it has {', '.join(map(repr, sizes))}")
    if before is None or size is None:
        return Digit(mesh.stride(axis), sizes[axis], axis)
    below = sizes[axis] // (int(before) * int(size))
    return Digit(mesh.stride(axis) * below, int(size), f"{axis}:({before}){size}")


def _xla(text: str) -> Sharding | Declined:
    """XLA's iota tiles: `{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}`, or `{replicated}`."""
    if text in ("{replicated}", "{maximal device=0}", "{manual}"):
        return Sharding(())  # of any rank
    listed = re.match(r"\{devices=\[([\d,]+)\]([\d,]+)\s*(.*)\}$", text)
    if listed is not None:
        return _listed(_numbers(listed[1]), _numbers(listed[2]), listed[3])
    m = re.match(r"\{devices=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?\s*(.*)\}$", text)
    if m is None:
        return Declined("only tiles of consecutive devices are read (devices=[…]<=[…])")
    tiles, bases = _numbers(m[1]), _numbers(m[2])
    order = _numbers(m[3]) if m[3] else list(range(len(bases)))
    strides = [prod(bases[k + 1 :]) for k in range(len(bases))]
    digits = [(strides[k], bases[k]) for k in order]  # the number of a tile, most significant first
    made: list[tuple[Digit, ...]] = []
    for n in tiles:
        own: list[Digit] = []
        left = n
        while left > 1:
            if not digits:
                return Declined("more tiles than devices")
            stride, size = digits.pop(0)
            if size <= left and left % size == 0:
                own.append(Digit(stride, size))
                left //= size
            elif size % left == 0:
                own.append(Digit(stride * (size // left), left))
                digits.insert(0, (stride, size // left))
                left = 1
            else:
                return Declined("tiles across the devices' digits")
        made.append(tuple([d for d in own if d.size > 1]))
    return Sharding(_of_value(made, m[4]))


def _of_value(dims: Sequence[tuple[Digit, ...]], rest: str) -> tuple[tuple[Digit, ...], ...]:
    """Without the last tile dimensions, which number copies."""
    copies = 1 if "last_tile_dim_replicate" in rest else rest.count(",") + 1 if "last_tile_dims" in rest else 0
    return tuple(dims)[: len(dims) - copies]


def _listed(tiles: Sequence[int], devices: Sequence[int], rest: str) -> Sharding | Declined:
    """XLA's older form, `{devices=[2,2]0,2,1,3}`: the devices of all tiles, in order, where digits number them."""
    if len(devices) != prod(tiles):
        return Declined(f"expected {prod(tiles)} devices, found {len(devices)}")
    dims, after = [], prod(tiles)
    numbers = [0]  # of the devices, if digits number them
    for n in tiles:
        own: list[Digit] = []
        for size in _primes(n):
            after //= size
            own.append(Digit(devices[after], size))
            numbers = [at + k * devices[after] for at in numbers for k in range(size)]
        dims.append(tuple(own))
    if numbers != list(devices):
        return Declined("only devices that digits of their tiles number are read, not any order of them")
    return Sharding(_of_value(dims, rest))


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def split(digits: Sequence[Digit], atoms: Sequence[Digit]) -> tuple[Digit, ...]:
    """Digits as the smaller ones that they are made of, most significant first."""
    made: list[Digit] = []
    for d in digits:
        inside = [a for a in atoms if d.stride <= a.stride < d.stride * d.size]
        made += sorted(inside, key=lambda a: -a.stride) if len(inside) > 1 else [d]
    return tuple(made)


def atoms_of(shardings: Sequence[Sharding], processes: int) -> tuple[Digit, ...] | Declined:
    """The smallest digits that all shardings are made of, of prime sizes: none of theirs begins or ends inside of one."""
    names = {(d.stride, d.size): d.name for s in shardings for d in s.digits}
    digits = [d for s in shardings for d in s.digits]
    cuts = sorted({1, processes, *(d.stride for d in digits), *(d.stride * d.size for d in digits)})
    made = []
    for low, high in pairwise(cuts):
        if high % low:
            return Declined(f"digits of processes that begin at {low} and {high} have no common parts")
        factors, name = _primes(high // low), names.get((low, high // low), "")
        for k, size in enumerate(factors):
            before = prod(factors[k + 1 :])
            part = f"{name}:({before}){size}" if name and len(factors) > 1 and ":" not in name else name
            made.append(Digit(low * prod(factors[:k]), size, part))
    return tuple(made[::-1])


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found
