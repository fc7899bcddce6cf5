"""What loads files, seen as a stranger: files written to after they were looked at, modes, ends of programs, other systems."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright_runtime
import tiling
from tests.ship.shipping import ROOT, SCALED, WIDE, compiled, needs_linker
from tilewright_runtime import container, machine
from tilewright_runtime.container import FileError

pytestmark = needs_linker
X = np.random.default_rng(0).standard_normal((8, 16), np.float32)


@pytest.fixture(scope="module")
def program() -> codegen.Executable:
    return compiled(SCALED)


def bits(arrays: Any) -> list[bytes]:
    return [a.tobytes() for a in arrays]


def test_what_was_looked_at_is_what_runs(program: codegen.Executable, tmp_path: pathlib.Path) -> None:
    """The file is mapped, and its code is first needed at the first call: who writes to the file in between changes nothing."""
    path = tmp_path / "model.tw"
    program.save(path)
    loaded = tilewright_runtime.load(path)
    code = container.read(path).document["entries"][0]["variants"][0]["code"]
    row = container.read(path).document["sections"][code]
    with open(path, "r+b") as file:
        file.seek(row["offset"])
        file.write(bytes(row["bytes"]))
    assert bits(loaded(X)) == bits(program(X))
    with pytest.raises(FileError, match="is damaged: its checksum differs"):
        tilewright_runtime.load(path)


def test_a_file_that_is_in_use_may_be_saved_anew(program: codegen.Executable, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.tw"
    program.save(path)
    before = tilewright_runtime.load(path)
    compiled(SCALED.replace("0.5, 1.5", "8.5, 9.5")).save(path)
    after = tilewright_runtime.load(path)
    assert bits(before(X)) == bits(program(X)) != bits(after(X))


WRITERS = pytest.mark.parametrize(
    "write",
    [
        lambda path: container.write(path, {"schema": "x"}, [b"abc"]),
        lambda path: tiling.plan(hlo.parse(WIDE), machine=tiling.Machine()).save(path),
    ],
    ids=["program", "plan"],
)


@WRITERS
def test_files_have_the_mode_that_the_umask_leaves(
    write: Callable[[pathlib.Path], None], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The umask is never set, not even to ask for it: files that other threads make meanwhile would be everybody's."""
    (tmp_path / "plain").write_text("")
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask is the whole process's"))
    write(tmp_path / "written")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "plain").stat().st_mode
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "other")
    assert {p.name for p in tmp_path.iterdir()} == {"plain", "written"}


@WRITERS
def test_a_device_is_not_replaced_by_a_file(write: Callable[[pathlib.Path], None], tmp_path: pathlib.Path) -> None:
    """Files are put in their place by a rename, which would take a pipe or /dev/null away from everybody."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path):
        with pytest.raises(FileExistsError, match="it exists and is no file"):
            write(path)
    assert {p.name for p in tmp_path.iterdir()} == {"pipe", "link"} and (tmp_path / "pipe").is_fifo()


ENDS = """
import gc, os, sys, time
import numpy as np
import tilewright_runtime

def left():
    with open("/proc/self/maps", encoding="utf-8") as file:
        code = sum("memfd:tilewright" in line and " r-xp " in line for line in file)
    return code, len(os.listdir("/proc/self/task")) - threads

x, threads = np.load(sys.argv[2]), len(os.listdir("/proc/self/task"))
first, second = (tilewright_runtime.load(sys.argv[1], threads=3) for _ in range(2))
expected = [a.tobytes() for a in first(x)]
assert [a.tobytes() for a in second(x)] == expected and left() == (2, 4), left()

def wait_for(wanted):
    end = time.monotonic() + 60  # (a thread that was joined is listed for a moment)
    while left() != wanted:
        assert time.monotonic() < end, left()
        time.sleep(0.01)

del first
gc.collect()
wait_for((1, 2))
assert [a.tobytes() for a in second(x)] == expected
del second
gc.collect()
wait_for((0, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_program_that_nobody_holds_leaves_nothing(program: codegen.Executable, tmp_path: pathlib.Path) -> None:
    """Its workers end and its code is unmapped; another load of the same file is not touched by that."""
    program.save(tmp_path / "model.tw")
    np.save(tmp_path / "x.npy", X)
    command = [sys.executable, "-c", ENDS, str(tmp_path / "model.tw"), str(tmp_path / "x.npy")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def with_document(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file with another document, whose checksum is right."""
    head = container._FIELDS.size + 32
    size = container._FIELDS.unpack_from(data)[3]
    document = json.loads(data[head : head + size])
    change(document)
    body = json.dumps(document, separators=(",", ":")).encode().ljust(size)
    fields = data[: container._FIELDS.size]
    return fields + hashlib.sha256(fields + body).digest() + body + data[head + size :]


def test_sections_lie_behind_the_document_and_apart(tmp_path: pathlib.Path) -> None:
    container.write(tmp_path / "a", {"schema": "x"}, [b"abc", b"d" * 100])
    data = (tmp_path / "a").read_bytes()
    places = [row["offset"] for row in container.read(tmp_path / "a").document["sections"]]
    for number, offset in ((0, 0), (0, 64), (1, places[0]), (1, len(data) - len(data) % 64), (1, 1 << 62)):
        (tmp_path / "b").write_bytes(with_document(data, lambda d, k=number, at=offset: d["sections"][k].update(offset=at)))
        with pytest.raises(FileError, match=f"a section at {offset} of"):
            container.read(tmp_path / "b")


def test_features_as_macos_names_them() -> None:
    """A file made on a Mac is for what its CPU has, and is loaded there."""
    intel = {
        "machdep.cpu.features": b"FPU CX8 SSE SSE2 SSE3 SSSE3 FMA CX16 SSE4.1 SSE4.2 MOVBE POPCNT AVX1.0 F16C\0",
        "machdep.cpu.leaf7_features": b"BMI1 AVX2 BMI2 ADX AVX512F\0", "machdep.cpu.extfeatures": b"LAHF LZCNT PREFETCHW\0",
    }  # fmt: skip
    found = machine.of_macos(lambda name: intel.get(name, b""))
    assert found >= {"pni", "sse4_1", "sse4_2", "fma", "avx", "avx2", "bmi1", "avx512f", "lahf_lm", "abm", "3dnowprefetch"}
    arm = {"hw.optional.AdvSIMD": b"\1\0\0\0", "hw.optional.arm.FEAT_FP16": b"\1\0\0\0", "hw.optional.arm.FEAT_BF16": b"\0\0\0\0"}
    assert machine.of_macos(lambda name: arm.get(name, b"")) == {"asimd", "asimdhp"}
