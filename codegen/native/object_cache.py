"""The disk cache, one store for all that is kept: an entry is a file, named by the hash of what made it.

A file that is missing, truncated, damaged or unreadable counts as a miss, and a folder that cannot be written only costs
the next process a compile; both are logged.  What is loaded is executed: a folder or a file that somebody else owns, or that
others may write, is left alone (`untrusted_reason`; TILEWRIGHT_SHARED_CACHE=1 says that the others are trusted).
Files are written under a temporary name and renamed, so processes that share the folder never see a partial file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import stat
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger("tilewright.codegen")
_MAGIC = b"TWKERNEL"
_HEADER = struct.Struct("<8sQ32s")
_SIZE = struct.Struct("<Q")


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


def shared_cache_allowed() -> bool:
    """Whether TILEWRIGHT_SHARED_CACHE says that everybody who may write to the cache is trusted."""
    return os.environ.get("TILEWRIGHT_SHARED_CACHE", "") not in ("", "0")


def untrusted_reason(folder: Path) -> str | None:
    """Why what lies in a folder must not be executed: somebody else may have put it there. None for a folder of this user's.

    As ssh does with its keys: the folder (the nearest that exists, for one that is still to be made) belongs to this user, nobody
    else may write to it, and none of its parents, through links too, belongs to others or may be changed by them; a parent that
    everybody may write to must be sticky, as /tmp is. Systems without owners are not judged.
    """
    if not hasattr(os, "getuid"):
        return None
    user = os.getuid()
    absolute = Path(os.path.abspath(folder))
    for chain in dict.fromkeys([(absolute, *absolute.parents), *_resolved(absolute)]):
        is_first = True
        for path in chain:
            try:
                found = os.lstat(path)
            except OSError as error:
                if isinstance(error, FileNotFoundError | NotADirectoryError):
                    continue  # is made by this process, inside the next
                return f"{path} cannot be looked at: {error.strerror}"
            if stat.S_ISLNK(found.st_mode):
                if found.st_uid not in (user, 0):
                    return f"{path} is a link of user {found.st_uid}"
                is_first = False
                continue  # where it leads is in the other chain
            others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if found.st_uid not in (user, 0) or (is_first and path == chain[0] and found.st_uid != user):
                return f"{path} belongs to user {found.st_uid}, not to {user}"
            if others and (path == chain[0] or not found.st_mode & stat.S_ISVTX):
                return f"{path} may be written by others (mode {stat.S_IMODE(found.st_mode):o})"
            is_first = False
    return None


def _resolved(path: Path) -> list[tuple[Path, ...]]:
    """The folder behind links with its parents."""
    real = Path(os.path.realpath(path))
    return [(real, *real.parents)]


@functools.cache
def _warn_of(folder: str, reason: str) -> None:
    _log.warning(
        "the kernel cache %s is not used: %s; kernels are compiled anew in every process "
        "(TILEWRIGHT_SHARED_CACHE=1 trusts all who may write there)", folder, reason,
    )  # fmt: skip


_judged: dict[tuple[str, int], str | None] = {}


def is_trusted(part: str) -> bool:
    """Whether what lies in this part of the cache (`objects`, `sources`) may be used; says once why it is not."""
    if shared_cache_allowed() or not hasattr(os, "getuid"):
        return True
    folder = cache_folder() / part
    key = (str(folder), os.getuid())
    if key not in _judged or _judged[key] is not None or not os.path.isdir(folder):  # (`Path.is_dir` raises for too long a name)
        _judged[key] = untrusted_reason(folder)
    reason = _judged[key]
    if reason is not None:
        _warn_of(str(cache_folder()), reason)
    return reason is None


def _bytes_of(path: Path) -> bytes:
    """The content of a cached file. Raises PermissionError for one that is somebody else's, or that others may write."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        if hasattr(os, "getuid") and not shared_cache_allowed():
            found = os.fstat(file.fileno())
            if found.st_uid != os.getuid():
                raise PermissionError(f"belongs to user {found.st_uid}, not to {os.getuid()}")
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise PermissionError(f"may be written by others (mode {stat.S_IMODE(found.st_mode):o})")
            if not stat.S_ISREG(found.st_mode):
                raise PermissionError("is no plain file")
        return file.read()


@functools.cache
def _warn_of_entry(path: str, reason: str) -> None:
    _log.warning("the cached kernel %s is not loaded: %s", path, reason)


def read(key: str) -> bytes | None:
    """The payload stored under ``key``, or None if there is no intact file of this user's."""
    if not cache_enabled() or not is_trusted("objects"):
        return None
    path = cache_folder() / "objects" / f"{key}.o"
    try:
        data = _bytes_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        _warn_of_entry(str(path), str(error))
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
    return cache_enabled() and is_trusted("objects") and _is_file(cache_folder() / "objects" / f"{key}.o")


def _is_file(path: Path) -> bool:
    """Whether there is a plain file; False also for a path that the system does not take (too long a name)."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def write(key: str, payload: bytes) -> bool:
    """Store a payload under ``key``; False (and a log line) when the folder cannot be written."""
    if not cache_enabled():
        return False
    header = _HEADER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest())
    return _put(Path("objects") / f"{key}.o", header + payload) is not None


def packed(document: Mapping[str, object], data: bytes = b"") -> bytes:
    """A payload of a JSON object and bytes.

    >>> unpacked(packed({"shape": [2]}, b"ab"))
    ({'shape': [2]}, b'ab')
    """
    head = json.dumps(document).encode()
    return b"".join([_SIZE.pack(len(head)), head, data])


def unpacked(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """What `packed` put together. Raises ValueError for what it did not."""
    if len(payload) < _SIZE.size:
        raise ValueError("no size of a document")
    end = _SIZE.size + _SIZE.unpack_from(payload)[0]
    document: dict[str, Any] = json.loads(payload[_SIZE.size : end])
    return document, payload[end:]


def hand_over(payload: bytes) -> str:
    """The path of a new file of this user's in the cache, for another process to delete. Raises OSError where there is none."""
    folder = cache_folder() / "requests"
    if not cache_enabled() or not is_trusted("requests"):
        raise OSError(f"{folder} is not this user's")
    _make(folder)
    handle, path = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(payload)
    return path


def write_source(text: str) -> str:
    """Store kernel source as a real file for tracebacks and debuggers; returns its path, or ``<kernel digest>``."""
    data = text.encode()
    name = f"kernel_{hashlib.sha256(data).hexdigest()[:16]}.py"
    path = cache_folder() / "sources" / name
    if not (cache_enabled() and is_trusted("sources") and _is_file(path)) and _put(Path("sources") / name, data) is None:
        return f"<{name[:-3]}>"
    return str(path)


@functools.cache
def _warn_once(folder: str, reason: str) -> None:
    _log.warning("cannot write to the kernel cache, kernels are compiled anew in every process: %s: %s", folder, reason)


def _make(folder: Path) -> None:
    """Makes a folder and those above it, for this user alone; a cache that is to be shared gets the mode of the user's mask."""
    if not os.path.isdir(folder):
        _make(folder.parent)
        folder.mkdir(mode=0o777 if shared_cache_allowed() else 0o700, exist_ok=True)


def _put(relative: Path, data: bytes) -> Path | None:
    if not cache_enabled() or not is_trusted(relative.parts[0]):
        return None
    path = cache_folder() / relative
    temporary = None
    try:
        _make(path.parent)
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
