"""What is cached is executed: only what this user alone could have written is loaded."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from codegen.native import object_cache
from codegen.native.object_cache import read, untrusted_reason, write, write_source
from codegen.remembered.machine import calibrated_machine, remember_machine
from tests.commands.command_line import called
from tiling.machine import Machine

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no owners")
KEY = "ab" * 32


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_SHARED_CACHE", raising=False)
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE", raising=False)
    monkeypatch.setattr(object_cache, "_judged", {})
    for known in (object_cache._warn_of, object_cache._warn_of_entry, object_cache._warn_once):
        known.cache_clear()
    caplog.set_level(logging.WARNING, "tilewright.codegen")
    return tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "_judged", {})


def test_a_folder_of_ones_own_is_used(cache: Path) -> None:
    assert write(KEY, b"code")
    assert read(KEY) == b"code"
    assert (cache / "objects").stat().st_mode & 0o077 == 0
    assert ((cache / "objects" / f"{KEY}.o").stat().st_mode & 0o022) == 0


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
@pytest.mark.parametrize("which", ["objects", "."])
def test_a_folder_that_others_may_write_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int, which: str
) -> None:
    assert write(KEY, b"code")
    (cache / which).chmod(mode)
    if which == "." and mode & 0o1000:
        forget(monkeypatch)  # a sticky parent: others can add to it, but neither move nor replace what is this user's
        assert read(KEY) == b"code"
        return
    forget(monkeypatch)
    assert read(KEY) is None and not object_cache.has(KEY)
    assert not write("cd" * 32, b"more")
    assert write_source("def kernel(): pass") != str(cache)
    said = [r.getMessage() for r in caplog.records]
    assert len([s for s in said if "may be written by others" in s]) == 1, said
    monkeypatch.setenv("TILEWRIGHT_SHARED_CACHE", "1")
    assert read(KEY) == b"code"


def test_an_entry_that_others_may_write_is_not_loaded(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert write(KEY, b"code")
    (cache / "objects" / f"{KEY}.o").chmod(0o666)
    assert read(KEY) is None
    assert read(KEY) is None
    assert sum("is not loaded: may be written by others" in r.getMessage() for r in caplog.records) == 1


def test_another_users_folder_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert write(KEY, b"code")
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 4321)
    assert read(KEY) is None
    assert not write(KEY, b"mine")
    assert "belongs to user" in caplog.text


def test_another_users_entry_in_ones_own_folder_is_not_loaded(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert write(KEY, b"code")
    real = os.fstat

    def fstat(handle: int) -> os.stat_result:
        found = list(real(handle))
        found[4] = os.getuid() + 4321
        return os.stat_result(found)

    monkeypatch.setattr(object_cache.os, "fstat", fstat)
    assert read(KEY) is None
    assert "belongs to user" in caplog.text


def test_links_are_followed_to_what_is_judged(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write(KEY, b"code")
    elsewhere = tmp_path / "open"
    elsewhere.mkdir()
    (elsewhere / "planted.o").write_bytes((cache / "objects" / f"{KEY}.o").read_bytes())
    (cache / "objects" / f"{KEY}.o").unlink()
    (cache / "objects" / f"{KEY}.o").symlink_to(elsewhere / "planted.o")
    assert read(KEY) is None  # an entry is never a link
    elsewhere.chmod(0o777)
    (tmp_path / "link").symlink_to(elsewhere)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "link" / "below"))
    reason = untrusted_reason(tmp_path / "link" / "below")
    assert reason is not None and "open" in reason
    assert not write(KEY, b"code")


def test_calibration_is_judged_alike(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_machine(Machine(hertz=1.0))
    assert calibrated_machine().hertz == 1.0
    (cache / "objects").chmod(0o777)
    forget(monkeypatch)
    assert calibrated_machine().hertz != 1.0


def test_a_name_that_the_system_does_not_take(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache / ("n" * 300)))
    assert read(KEY) is None
    assert not object_cache.has(KEY)
    assert not write(KEY, b"code")
    assert write_source("def kernel(): pass").startswith("<kernel_")
    assert "File name too long" in caplog.text or "too long" in caplog.text


def test_the_command_line_names_a_path_that_the_system_does_not_take(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Results come all the same, and warnings say which path, what is wrong with it and what that means. Its parent is not there
    either, so that the name is found to be too long only when folders are made; a folder's own name was asked for then."""
    program = tmp_path / "tanh.mlir"
    t = "tensor<4xf32>"
    program.write_text(f"func.func @main(%x: {t}) -> {t} {{ %0 = stablehlo.tanh %x : {t} return %0 : {t} }}")
    path = str(cache / ("n" * 300))
    for command, shown in ((("check", str(program)), ": ok, "), (("doctor",), "NOT WRITABLE"), (("cache", "show"), "0 files")):
        done = called(*command, TILEWRIGHT_CACHE=path)
        assert done.returncode == 0 and shown in done.stdout, done.stderr
    said = [r.getMessage() for r in caplog.records]
    assert said and all(path in line and "too long" in line and "compiled anew in every process" in line for line in said)
