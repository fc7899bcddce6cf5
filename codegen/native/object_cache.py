"""The disk cache of compiled kernels: one object file and one source file for each, named by the hash of what made them.

A file that is missing, truncated, damaged or unreadable counts as a miss, and a folder that cannot be written only costs
the next process a compile; both are logged.  Files are written under a temporary name and renamed, so processes that
share the folder never see a partial file.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import struct
import tempfile
from pathlib import Path

_log = logging.getLogger("tilewright.codegen")
_MAGIC = b"TWKERNEL"
_HEADER = struct.Struct("<8sQ32s")


def cache_folder() -> Path:
    """$TILEWRIGHT_CACHE, else $XDG_CACHE_HOME/tilewright, else ~/.cache/tilewright."""
    own = os.environ.get("TILEWRIGHT_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else (_home() or Path()) / ".cache") / "tilewright"


def cache_enabled() -> bool:
    """Whether TILEWRIGHT_NO_CACHE is unset, empty or 0, and there is a place: a variable that names one, or a home."""
    if os.environ.get("TILEWRIGHT_NO_CACHE", "") not in ("", "0"):
        return False
    return bool(os.environ.get("TILEWRIGHT_CACHE") or os.environ.get("XDG_CACHE_HOME") or _home())


def _home() -> Path | None:
    """The user's folder; None for a user that has none (a container's made-up number)."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def read(key: str) -> bytes | None:
    """The object code stored under ``key``, or None if there is no intact file."""
    if not cache_enabled():
        return None
    path = cache_folder() / "objects" / f"{key}.o"
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _log.warning("cannot read the cached kernel %s: %s", path, error)
        return None
    if len(data) >= _HEADER.size:
        magic, length, digest = _HEADER.unpack_from(data)
        payload = data[_HEADER.size :]
        if magic == _MAGIC and length == len(payload) and hashlib.sha256(payload).digest() == digest:
            return payload
    _log.warning("the cached kernel %s is damaged and is compiled again", path)
    return None


def has(key: str) -> bool:
    """Whether there is a file under ``key``, intact or not."""
    return cache_enabled() and (cache_folder() / "objects" / f"{key}.o").is_file()


def write(key: str, payload: bytes) -> bool:
    """Store object code under ``key``; False (and a log line) when the folder cannot be written."""
    header = _HEADER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest())
    return _put(Path("objects") / f"{key}.o", header + payload) is not None


def write_source(text: str) -> str:
    """Store kernel source as a real file for tracebacks and debuggers; returns its path, or ``<kernel digest>``."""
    data = text.encode()
    name = f"kernel_{hashlib.sha256(data).hexdigest()[:16]}.py"
    path = cache_folder() / "sources" / name
    if not (cache_enabled() and path.is_file()) and _put(Path("sources") / name, data) is None:
        return f"<{name[:-3]}>"
    return str(path)


@functools.cache
def _warn_once(folder: str, reason: str) -> None:
    _log.warning("cannot write to the kernel cache, kernels are compiled anew in every process: %s: %s", folder, reason)


def _put(relative: Path, data: bytes) -> Path | None:
    if not cache_enabled():
        return None
    path = cache_folder() / relative
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
        return path
    except OSError as error:
        _warn_once(str(cache_folder()), error.strerror or str(error))
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        return None
