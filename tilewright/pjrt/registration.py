"""The platform made known to JAX."""

from __future__ import annotations

import functools
import logging
import threading
from typing import Any

import numpy as np

from hlo.errors import TilewrightError
from tilewright.pjrt.ffi import handlers
from tilewright.pjrt.lowering import install
from tilewright.pjrt.partitioning import counted
from tilewright.pjrt.plugin import entries

__all__ = ["check_version", "register"]

_LEAST, _BELOW = (0, 10, 1), (0, 11)
_lock = threading.Lock()
_log = logging.getLogger("tilewright")
_PRIORITY = -1  # below the CPU's, which is 0


def check_version(platform: str, found: str) -> None:
    """Raises TilewrightError for a version of jaxlib that was not tried."""
    if not _LEAST <= tuple(int(n) for n in found.split(".")[:3] if n.isdigit()) < _BELOW:
        least, below = (".".join(map(str, version)) for version in (_LEAST, _BELOW))
        raise TilewrightError(f"the platform {platform!r} needs jaxlib {least} or later, before {below}; this is {found}")


def _use_persistent_cache(platform: str) -> None:
    """Has JAX's persistent compilation cache, where it is switched on, take this platform's programs.

    JAX asks for one of four platforms' names before it looks at a platform's programs, which can be written out here, too. A JAX
    that keeps this question elsewhere has no such cache here.
    """
    from jax._src import compilation_cache

    names: Any = compilation_cache
    others, is_enabled = (getattr(names, name, None) for name in ("is_cache_used", "_is_cache_enabled"))
    if others is None or is_enabled is None:
        _log.info("JAX's persistent compilation cache does not know the platform %s", platform)
        return

    def is_cache_used(backend: Any) -> Any:
        return is_enabled() if backend.platform == platform else others(backend)

    names.is_cache_used = is_cache_used


def _count_lowered(platform: str) -> None:
    """Has `jax.stages.Lowered.cost_analysis` ask XLA for this platform's programs, as for the CPU's.

    JAX's own refuses platforms that come by the PJRT interface.
    """
    from jax._src.interpreters import pxla

    kind: Any = pxla.MeshComputation
    others = kind.cost_analysis

    def cost_analysis(self: Any) -> dict[str, float]:
        is_own = getattr(self.compile_args["backend"], "platform", None) == platform
        return counted(self.hlo().as_hlo_module()) if is_own else others(self)

    kind.cost_analysis = cost_analysis


class _Writable:
    """The elements of an array on this platform as DLPack lends them: it has no word for what must not be written to."""

    def __init__(self, array: Any) -> None:
        given = np.asarray(array)
        self.__array_interface__ = {**given.__array_interface__, "data": (given.__array_interface__["data"][0], False)}
        self._array = given


_DLPACKS = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)
"""The element types that NumPy lends by DLPack."""


def _share_by_dlpack(platform: str) -> None:
    """Has JAX's arrays of this platform lent and taken by DLPack, as those of JAX's CPU: their memory is the same.

    JAX's own functions know two platforms by name. One of this platform's arrays is lent in place, as an array of NumPy's, or,
    where that has not its element type, as a copy on JAX's CPU; what other libraries lend is taken by JAX's CPU, and goes to
    this platform where that is the default or the one that is asked for.
    """
    import jax
    from jax._src import array, dlpack

    kind: Any = array.ArrayImpl
    names: Any = dlpack
    device_of, lend, take = kind.__dlpack_device__, names.to_dlpack, names.from_dlpack

    def is_own(x: Any) -> bool:
        return isinstance(x, kind) and len(x.devices()) == 1 and x.platform() == platform

    def __dlpack_device__(self: Any) -> Any:
        return (names.DLDeviceType.kDLCPU, 0) if is_own(self) else device_of(self)

    def to_dlpack(x: Any, stream: Any = None, src_device: Any = None, dl_device: Any = None, **options: Any) -> Any:
        is_cpus = dl_device is None or tuple(dl_device) == (names.DLDeviceType.kDLCPU, 0)
        if not is_own(x) or not is_cpus:
            return lend(x, stream, src_device, dl_device, **options)
        if x.dtype.name not in _DLPACKS:
            if options.get("copy") is False:
                raise BufferError(f"elements of type {x.dtype} are lent as a copy alone, and copy=False")
            return lend(jax.device_put(x, jax.devices("cpu")[0]), **options)
        return np.asarray(_Writable(jax.numpy.copy(x) if options.get("copy") else x)).__dlpack__()

    def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
        asked = getattr(device, "device_set", {device})
        is_default = device is None and jax.default_backend() == platform and copy is not False
        if not is_default and {getattr(d, "platform", None) for d in asked} != {platform}:
            return take(external_array, device, copy)
        if copy is False:
            raise ValueError(f"copy=False, and an array of another library's comes to {device} as a copy")
        return jax.device_put(take(external_array), device if device is not None else jax.devices()[0])

    kind.__dlpack_device__ = __dlpack_device__
    names.to_dlpack = to_dlpack
    shown: Any = jax.dlpack
    names.from_dlpack = shown.from_dlpack = functools.wraps(take)(from_dlpack)


def register(platform: str) -> None:
    """See `tilewright.pjrt.register`."""
    import jaxlib.version
    from jax._src import config, xla_bridge
    from jaxlib import xla_client

    check_version(platform, jaxlib.version.__version__)
    with _lock:
        if platform in xla_bridge._backend_factories:
            return
        xla_bridge.register_plugin(platform, priority=_PRIORITY, c_api=entries().capsule())
        install(platform)
        _use_persistent_cache(platform)
        _share_by_dlpack(platform)
        _count_lowered(platform)
        xla_client.register_custom_call_handler(platform, handlers.register)
    named = (config.jax_platforms.value or "").split(",")
    if platform in named and "cpu" not in named:
        update: Any = config.update
        update("jax_platforms", ",".join([*named, "cpu"]))
