"""JAX's platform `tilewright`: `JAX_PLATFORMS=tilewright python train.py` runs any JAX program on this compiler.

JAX finds the installed plugin by its entry point and calls `initialize`, which does nothing unless the platform was asked for.
Without an installation, `tilewright.pjrt.register()` before JAX's first computation does the same.
"""

from __future__ import annotations

import importlib

from tilewright.jax.platform_name import PLATFORM

__all__ = ["PLATFORM", "initialize", "register"]


def initialize() -> None:
    """Registers the platform where JAX's setting `jax_platforms` names it: what JAX calls when it looks for plugins."""
    from jax._src import config

    if PLATFORM in (config.jax_platforms.value or "").split(","):
        register()


def register() -> None:
    """Registers the platform `tilewright` with JAX, once; JAX's choice of a default platform stays as it was.

    Where `jax_platforms` names `tilewright` and not `cpu`, `cpu` is added after it: JAX runs callbacks' arguments there.
    Raises TilewrightError for a version of JAX that is not known here.
    """
    importlib.import_module("tilewright.pjrt.registration").register(PLATFORM)
