"""The platform made known to JAX."""

from __future__ import annotations

import logging
import threading
from typing import Any

from hlo.errors import TilewrightError
from tilewright.pjrt.ffi import handlers
from tilewright.pjrt.lowering import install
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
        xla_client.register_custom_call_handler(platform, handlers.register)
    named = (config.jax_platforms.value or "").split(",")
    if platform in named and "cpu" not in named:
        update: Any = config.update
        update("jax_platforms", ",".join([*named, "cpu"]))
