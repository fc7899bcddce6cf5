"""What `tests/jax/test_pjrt.py` checks of foreign functions in native code (`foreign_functions.cc`), beside JAX's CPU.

`python -m tests.jax.pjrt_foreign LIBRARY NAME...` prints a JSON object, as `tests.jax.pjrt_checks` does.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.jax.pjrt_checks import report

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out
    import jax
    import jax.numpy as jnp

SOURCE = pathlib.Path(__file__).with_name("foreign_functions.cc")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def compiled(compiler: str, folder: pathlib.Path) -> pathlib.Path:
    """The library with the functions."""
    made = folder / "foreign.so"
    options = ["-std=c++17", "-O0", "-w", "-shared", "-fPIC", f"-I{jax.ffi.include_dir()}"]
    subprocess.run([compiler, *options, str(SOURCE), "-o", str(made)], check=True)
    return made


def both(f: Any, *args: Any) -> list[Any]:
    """What f gives, or the words of what it raises, on JAX's CPU and on this platform."""
    found = []
    for platform in ("cpu", "tilewright"):
        with jax.default_device(jax.devices(platform)[0]):
            try:
                found.append(jax.tree.map(lambda a: np.asarray(a).tolist(), jax.jit(f)(*args)))
            except jax.errors.JaxRuntimeError as e:
                found.append(str(e).partition("\n")[0])
    return found


def call(name: str, *results: Any, **options: Any) -> Any:
    """A call of a function with results like these arrays."""
    shapes = [jax.ShapeDtypeStruct(r.shape, r.dtype) for r in results]
    return jax.ffi.ffi_call(name, shapes if len(shapes) > 1 else shapes[0], **options)


def check_attributes_and_shapes() -> None:
    def f(x: Any) -> Any:
        given = {"scale": np.float32(3), "offsets": np.array([4, 5]), "text": "seven"}
        y, n = call("scale", X, np.zeros((2, 2), np.int32))(jnp.sin(x), **given)
        return y + 1, n

    cpu, own = both(f, X)
    np.testing.assert_allclose(own[0], 3 * np.sin(X) + 5, rtol=1e-6)
    np.testing.assert_allclose(own[0], cpu[0], rtol=1e-6)
    assert own[1] == cpu[1] == [[205, 205], [205, 205]]


def check_in_a_loop() -> None:
    f = lambda x: jax.lax.fori_loop(0, 3, lambda k, x: call("memory", X)(x * 2), x)  # noqa: E731
    cpu, own = both(f, X)
    assert own == cpu


def check_errors() -> None:
    cpu, own = both(lambda x: call("fails", X)(x, given={"why": "no", "number": 3}), X)
    assert own == cpu == "OUT_OF_RANGE: refused: no"


def check_layouts() -> None:
    cpu, own = both(call("memory", X, input_layouts=[(1, 0)], output_layouts=(1, 0)), X)
    assert own == cpu != both(call("memory", X), X)[1]


def check_aliases() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        return call("in_place", X, input_output_aliases={0: 0})(y), y

    cpu, own = both(f, X)
    assert own == cpu == ((X + 2).tolist(), (X + 1).tolist())


def check_tasks_and_ends_that_come_later() -> None:
    cpu, own = both(call("tasks", X), X)
    assert own == cpu == (2 * X).tolist()


def check_what_is_registered_for_this_platform() -> None:
    """It goes before what is registered for the CPU; what cannot be called is refused in words when it is compiled."""
    assert jax.jit(call("own", X))(X).tolist() == (2 * X).tolist()
    for name, words in (("older", "older interface"), ("with_state", "stage `instantiate`"), ("nobody's", "no implementation")):
        with pytest.raises(jax.errors.JaxRuntimeError, match=words):
            jax.jit(call(name, X))(X)


def check_jaxlibs_own() -> None:
    """A function of jaxlib's that nobody wrote anew here."""
    d, b = np.full((1, 4), 4, np.float32), np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    off = np.ones((1, 4), np.float32)
    cpu, own = both(functools.partial(jax.lax.linalg.tridiagonal_solve, perturb_singular=True), off, d, off, b)
    np.testing.assert_allclose(own, cpu, rtol=1e-5)


CHECKS = {name.removeprefix("check_"): f for name, f in list(globals().items()) if name.startswith("check_")}
_REGISTERED = {"scale": "Scale", "fails": "Fails", "memory": "Memory", "in_place": "InPlace", "tasks": "Tasks"}


def main(library: str, names: list[str]) -> None:
    """Registers the library's functions, and runs checks."""
    functions = ctypes.CDLL(library)

    def capsule(name: str) -> Any:
        make: Any = jax.ffi.pycapsule
        return make(getattr(functions, f"{name}Handler"))

    for target, name in _REGISTERED.items():
        jax.ffi.register_ffi_target(target, capsule(name), platform="cpu")
    jax.ffi.register_ffi_target("own", capsule("Memory"), platform="tilewright")
    jax.ffi.register_ffi_target("older", capsule("Memory"), platform="tilewright", api_version=0)
    stages = {"instantiate": capsule("State"), "execute": capsule("Memory")}
    jax.ffi.register_ffi_target("with_state", stages, platform="tilewright")
    report(CHECKS, names)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
