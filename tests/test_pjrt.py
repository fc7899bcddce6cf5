"""JAX's platform `tilewright`, in processes of its own: JAX chooses its platforms once for a process."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.pjrt_checks import CHECKS
from tilewright.pjrt import layout

pytestmark = pytest.mark.jax

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*arguments: str, platforms: str | None = "tilewright", **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python process with JAX's platforms set."""
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    environment.pop("JAX_PLATFORMS", None)
    if platforms is not None:
        environment["JAX_PLATFORMS"] = platforms
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@functools.cache
def outcomes() -> dict[str, str | None]:
    """What came of each check; all in one process."""
    done = run("-m", "tests.pjrt_checks", *CHECKS)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_on_the_platform(name: str) -> None:
    found = outcomes()[name]
    assert found is None, found


def test_other_platforms_stay_what_they_were() -> None:
    """Registered and not asked for: JAX's default is its CPU; found by JAX and not asked for: it is not even registered."""
    program = (
        "import sys, tilewright.pjrt\n"
        "tilewright.pjrt.initialize()\n"
        "assert 'codegen' not in sys.modules and 'tilewright.pjrt.plugin' not in sys.modules\n"
        "tilewright.pjrt.register()\n"
        "import jax\n"
        "print(jax.default_backend(), (jax.numpy.ones(3) + 1).devices(), jax.devices('tilewright'))\n"
    )
    done = run("-c", program, platforms=None)
    assert done.stdout.split() == ["cpu", "{CpuDevice(id=0)}", "[TilewrightDevice(id=0)]"], done.stderr[-4000:]


def test_sizes_of_the_interface() -> None:
    """The sizes that version 0.90 has, of each kind of structure; a caller with less is told so."""
    sizes = {
        "Error_Destroy": 24, "Event_IsReady": 25, "Client_Create": 88, "Client_BufferFromHostBuffer": 120,
        "Buffer_ToHostBuffer": 56, "LoadedExecutable_Execute": 80, "Buffer_GetMemoryLayout": 104,
        "Executable_GetCompiledMemoryStats": 104,
    }  # fmt: skip
    for name, size in sizes.items():
        assert layout.check_size(name, size) is None, name
        assert f"passes {size - 1} bytes" in str(layout.check_size(name, size - 1)), name
    assert (layout.FUNCTIONS[0], layout.FUNCTIONS[-1], len(set(layout.FUNCTIONS))) == ("Error_Destroy", "Event_Set", 128)
    assert layout.API_SIZE == 40 + 8 * 128
