"""The platform made known to JAX."""

from __future__ import annotations

import threading
from typing import Any

from hlo.errors import TilewrightError
from tilewright.pjrt.ffi import handlers
from tilewright.pjrt.lowering import install
from tilewright.pjrt.plugin import entries

__all__ = ["register"]

_LEAST, _BELOW = (0, 10, 2), (0, 11)
_lock = threading.Lock()
_PRIORITY = -1  # below the CPU's, which is 0


def register(platform: str) -> None:
    """See `tilewright.pjrt.register`."""
    import jaxlib.version
    from jax._src import config, xla_bridge
    from jaxlib import xla_client

    found: str = jaxlib.version.__version__
    if not _LEAST <= tuple(int(n) for n in found.split(".")[:3] if n.isdigit()) < _BELOW:
        raise TilewrightError(f"the platform {platform!r} needs jaxlib 0.10.2 or later, before 0.11; this is {found}")
    with _lock:
        if platform in xla_bridge._backend_factories:
            return
        xla_bridge.register_plugin(platform, priority=_PRIORITY, c_api=entries().capsule())
        install(platform)
        xla_client.register_custom_call_handler(platform, handlers.register)
    named = (config.jax_platforms.value or "").split(",")
    if platform in named and "cpu" not in named:
        update: Any = config.update
        update("jax_platforms", ",".join([*named, "cpu"]))
