"""JAX's platform `tilewright`, in processes of its own: JAX chooses its platforms once for a process."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tests.hostile.__main__ as hostile
from hlo import parse
from hlo.errors import TilewrightError
from tests.jax import pjrt_devices, pjrt_foreign
from tests.jax.pjrt_behaviour import SITUATIONS
from tests.jax.pjrt_checks import CHECKS, SLOW
from tilewright.pjrt import ffi, handles, layout, registration

pytestmark = pytest.mark.jax

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(
    *arguments: str, platforms: str | None = "tilewright", paths: tuple[pathlib.Path, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """A Python process with JAX's platforms set."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *paths))), **variables}
    environment.pop("JAX_PLATFORMS", None)
    if platforms is not None:
        environment["JAX_PLATFORMS"] = platforms
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def outcomes(names: list[str], folder: pathlib.Path, *module: str, **variables: str) -> dict[str, str | None]:
    """What came of checks, all in one process, in which JAX finds the platform by the entry point that the project declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    entries = project["entry-points"]["jax_plugins"]
    metadata = folder / "tilewright-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tilewright\nVersion: 0\n", "utf-8")
    lines = ["[jax_plugins]", *(f"{name} = {module}" for name, module in entries.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    package, *given = module or ("pjrt_checks",)
    done = run("-m", f"tests.jax.{package}", *given, *names, paths=(folder,), **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What came of all checks but the slow ones."""
    return outcomes([n for n in CHECKS if n not in SLOW], tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What came of the slow checks."""
    return outcomes([*SLOW], tmp_path_factory.mktemp("slow"))


@pytest.mark.parametrize("name", [n for n in CHECKS if n not in SLOW])
def test_on_the_platform(name: str, quick: dict[str, str | None]) -> None:
    assert quick[name] is None, quick[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_on_the_platform_at_length(name: str, slow: dict[str, str | None]) -> None:
    assert slow[name] is None, slow[name]


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What came of the checks of several devices."""
    folder = tmp_path_factory.mktemp("devices")
    return outcomes([*pjrt_devices.CHECKS], folder, "pjrt_devices", TILEWRIGHT_DEVICES="4")


@pytest.mark.parametrize("name", pjrt_devices.CHECKS)
def test_on_several_devices(name: str, devices: dict[str, str | None]) -> None:
    assert devices[name] is None, devices[name]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What came of the checks of foreign functions."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler: foreign functions were not called")
    folder = tmp_path_factory.mktemp("foreign")
    return outcomes([*pjrt_foreign.CHECKS], folder, "pjrt_foreign", str(pjrt_foreign.compiled(compiler, folder)))


@pytest.mark.slow
@pytest.mark.parametrize("name", pjrt_foreign.CHECKS)
def test_foreign_functions(name: str, foreign: dict[str, str | None]) -> None:
    assert foreign[name] is None, foreign[name]


@pytest.fixture(scope="module")
def observed() -> dict[str, dict[str, object]]:
    """What programs see on JAX's CPU and on the platform, by platform and situation."""
    found = {}
    for platform in ("cpu", "tilewright"):
        program = "import tilewright.pjrt as p; p.initialize(); from tests.jax import pjrt_behaviour as b; b.main([])"
        done = run("-c", program, platforms=platform)
        assert done.returncode == 0, done.stderr[-4000:]
        found[platform] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_situations_are_as_on_jaxs_cpu(name: str, observed: dict[str, dict[str, object]]) -> None:
    assert observed["tilewright"][name] == observed["cpu"][name]


CHECKED: dict[str, dict[str, str]] = {
    "the allocator": {}, "guard pages": {"TILEWRIGHT_DEBUG": "guard"}, "guard pages before": {"TILEWRIGHT_DEBUG": "guard-before"},
}  # fmt: skip
"""What looks at memory, and the variables for it beside those for the allocator."""


@pytest.mark.slow
@pytest.mark.parametrize("by", CHECKED)
@pytest.mark.parametrize("module", ["pjrt_checks", "pjrt_devices"])
def test_nothing_is_said_where_memory_is_checked(module: str, by: str, tmp_path: pathlib.Path) -> None:
    """All quick checks pass. What is freed is overwritten; who writes beside a block is stopped, where the C library checks."""
    names = [n for n in CHECKS if n not in SLOW] if module == "pjrt_checks" else [*pjrt_devices.CHECKS]
    variables = {"MALLOC_PERTURB_": "165", "TILEWRIGHT_DEVICES": "1" if module == "pjrt_checks" else "4", **CHECKED[by]}
    if hostile.has_checks():
        variables |= {name: value for name, value in hostile.checked().items() if os.environ.get(name) != value}
    found = outcomes(names, tmp_path, module, **variables)
    assert [f"{name}: {failure}" for name, failure in found.items() if failure is not None] == []


ENDS = {
    "a loop without an end": (
        "x = jax.jit(lambda x: jax.lax.while_loop(lambda s: s >= 0, lambda s: s * 0 + 1, x))(1.0); y = product(a) * x", ""),
    "a callback": (
        "jax.jit(lambda x: jax.debug.callback(lambda v: print('told', float(v)), jnp.sum(x @ x)))(a)", "told 64000000.0"),
    "a child of a fork": (
        "product(a).block_until_ready(); pid = os.fork()\n"
        "print('child' if pid == 0 else os.waitpid(pid, 0)[1], np.asarray(product(a))[0, 0], flush=True)\n"
        "if pid == 0: os._exit(0)", "child 400.0 0 400.0"),
}  # fmt: skip
"""What is on its way when a process ends, or goes on as two; and what is printed."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_what_is_on_its_way_at_the_end(name: str) -> None:
    program, printed = ENDS[name]
    start = "import tilewright.pjrt, os; tilewright.pjrt.register()\nimport jax, jax.numpy as jnp, numpy as np\n"
    done = run("-c", f"{start}a = jnp.ones((400, 400)); product = jax.jit(lambda x: x @ x)\n{program}")
    assert (done.returncode, " ".join(done.stdout.split())) == (0, printed), done.stderr[-4000:]


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


def test_versions_of_jaxlib() -> None:
    for version in ("0.10.1", "0.10.2", "0.10.17"):
        registration.check_version("tilewright", version)
    for version in ("0.9.2", "0.10.0", "0.11.0", "1.0"):
        with pytest.raises(TilewrightError, match=f"0.10.1 or later, before 0.11; this is {version}"):
            registration.check_version("tilewright", version)


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


def test_a_record_lives_until_it_is_dropped_as_often_as_it_was_given() -> None:
    """Two threads that gave one at the same time counted once: the record was gone with one of them still there."""
    living = handles.Handles()
    owner = object()
    assert living.give(64, owner) == 64

    class Meanwhile(list[None]):
        """Another thread's turn in the middle of this one's."""

        def append(self, item: None) -> None:
            if len(self) == 1:
                super().append(None)
                living.give(64, owner)
            else:
                super().append(item)

    living._given[64] = Meanwhile([None])
    living.give(64, owner)
    assert [living.drop(64), living.drop(64), living.drop(64)] == [None, None, owner] and not len(living)


def _stages(execute: Callable[[Any], int]) -> tuple[ffi._ForeignCall, Any]:
    """A foreign call of one argument and one result, f32[2], whose stage `execute` gets the frame; and what must be kept."""
    op = next(iter(parse(
        'func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %y = "stablehlo.custom_call"(%x) {call_target_name = "f",'
        ' api_version = 4 : i32, backend_config = {}} : (tensor<2xf32>) -> tensor<2xf32>\n  return %y : tensor<2xf32>\n}'
    ).function().body.ops))  # fmt: skip
    handler = ffi._HANDLER(lambda at: execute(ffi._FRAME.from_address(at)))
    return ffi._ForeignCall(op, {"execute": ctypes.cast(handler, ctypes.c_void_p).value or 0}), handler


def test_what_a_signal_raises_inside_a_foreign_function_is_raised_when_it_returns() -> None:
    """It was printed, and the function that native code had called gave it no error: the results were what memory had been."""
    interrupted = ffi._native("Interrupted", "x:p", lambda a: (_ for _ in ()).throw(KeyboardInterrupt))
    arguments = (ctypes.c_int64 * 3)(24, 0, 0)
    call, kept = _stages(lambda frame: interrupted(ctypes.addressof(arguments)))
    before = dict(ffi._errors.made)
    with pytest.raises(KeyboardInterrupt):
        call([np.ones(2, np.float32)], 0)
    assert ffi._errors.made == before and ffi._own.raised is None and kept


def test_memory_stays_until_a_foreign_function_has_ended_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt ended the wait for a future, and the arrays were gone that native code was still to write."""
    made: list[Any] = []

    def execute(frame: Any) -> int:
        future = next(ffi._future_numbers)
        ffi._futures[future] = ffi._Future()
        frame.future = future
        made.append((future, np.ctypeslib.as_array(ctypes.cast(_result(frame), ctypes.POINTER(ctypes.c_float)), (2,))))
        return 0

    def interrupted(self: Any, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    call, kept = _stages(execute)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call([np.ones(2, np.float32)], 0)
    ((future, array),) = made
    _, _, (_, _, (result,)) = ffi._futures[future].kept
    assert result.ctypes.data == array.ctypes.data and kept
    ffi._set_future(ffi.structure("SetError", "future:p error:p")(32, None, future, ffi._errors.new("INTERNAL", b"late")))
    assert future not in ffi._futures and "late" not in [text.value.decode() for _, text in ffi._errors.made.values()]


def _result(frame: Any) -> int:
    """Where the elements of a frame's first result are."""
    row = ctypes.c_void_p.from_address(frame.results.values).value or 0
    return int(ffi._Buffer.from_address(row).data)
