"""`tilewright.jit` beyond values: signatures, static and donated arguments, copies, exports, transformations, errors."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import hlo
import tilewright

pytestmark = pytest.mark.jax
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp
    from jax import export


def test_one_program_for_each_signature() -> None:
    f = tilewright.jit(lambda x: x + 1)
    x = np.ones((2, 3), np.float32)
    f(x), f(jnp.zeros((2, 3))), f(x * 2)
    assert f.cache_size == 1
    f(x.astype(np.int32)), f(np.ones(3, np.float32)), f({"a": x}["a"])
    assert f.cache_size == 3
    f.clear_cache()
    assert f.cache_size == 0


def test_static_arguments_are_part_of_the_signature() -> None:
    @tilewright.jit(static_argnums=1, static_argnames=("mode",))
    def f(x: Any, n: int, mode: str = "add") -> Any:
        return x + n if mode == "add" else x * n

    x = jnp.arange(3.0)
    assert f(x, 2).tolist() == [2, 3, 4]
    assert f(x, 3).tolist() == [3, 4, 5]
    assert f(x, 3, mode="mul").tolist() == [0, 3, 6]
    assert f(x, 2).tolist() == [2, 3, 4]
    assert f.cache_size == 3


def test_static_names_hold_for_positions_too() -> None:
    f = tilewright.jit(lambda x, n: x.reshape(n, -1), static_argnames="n")
    assert f(jnp.arange(6.0), 2).shape == (2, 3)
    assert f(jnp.arange(6.0), n=3).shape == (3, 2)


def test_unhashable_static_arguments_are_named() -> None:
    with pytest.raises(tilewright.TilewrightError, match="static arguments must be hashable"):
        tilewright.jit(lambda x, n: x, static_argnums=1)(jnp.ones(2), [1])


def test_donated_arrays_are_gone_where_jax_can_reuse_them() -> None:
    f = tilewright.jit(lambda x, y: (x + y, y.sum()), donate_argnums=0)
    x, y = jnp.ones(4), jnp.ones(4)
    assert f(x, y)[0].tolist() == [2, 2, 2, 2]
    assert x.is_deleted()
    assert not y.is_deleted()


def test_arrays_come_in_without_a_copy() -> None:
    from tilewright.jax.signatures import array

    x = jnp.arange(1024.0)
    assert array(jax, x, np.dtype(np.float32)).ctypes.data == x.unsafe_buffer_pointer()
    n = np.arange(1024, dtype=np.float32)
    assert array(jax, n, np.dtype(np.float32)) is n


def test_other_arrays_come_in_through_dlpack() -> None:
    class Foreign:
        def __init__(self, a: np.ndarray) -> None:
            self.a = a

        def __dlpack__(self, **options: Any) -> Any:
            return self.a.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.a.__dlpack_device__()

    assert tilewright.jit(lambda x: x * 2)(Foreign(np.arange(3, dtype=np.float32))).tolist() == [0, 2, 4]


def test_results_do_not_alias_arguments() -> None:
    x = np.ones(4, np.float32)
    (same,) = tilewright.jit(lambda x: (x,), output="numpy")(x)
    same[0] = 7
    assert x[0] == 1


def test_numpy_results_and_other_layouts() -> None:
    f = tilewright.jit(lambda x: x * 2, output="numpy")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for a in (x.T, x[:, ::2], np.asfortranarray(x), x[::-1]):
        r = f(a)
        assert type(r) is np.ndarray
        np.testing.assert_array_equal(r, a * 2)


def test_registered_dataclasses_are_trees() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any
        name: str

    jax.tree_util.register_dataclass(Point, ["x", "y"], ["name"])
    p = tilewright.jit(lambda p: Point(p.y, p.x * 2, p.name))(Point(jnp.ones(2), np.float32(3), "p"))
    assert (p.x, p.y.tolist(), p.name) == (3.0, [2.0, 2.0], "p")


def test_transformations_trace_through() -> None:
    f = tilewright.jit(lambda x: jnp.sum(x**2))
    x = jnp.arange(3.0)
    assert jax.grad(f)(x).tolist() == [0, 2, 4]
    assert jax.vmap(f)(x[:, None]).tolist() == [0, 1, 4]
    assert jax.jit(f)(x) == 5
    assert tilewright.jit(lambda x: f(x) * 2)(x) == 10
    assert tilewright.jit(jax.grad(f))(x).tolist() == [0, 2, 4]


def test_methods() -> None:
    class Model:
        scale = 3.0

        @tilewright.jit(static_argnums=0)
        def apply(self, x: Any) -> Any:
            """Doc."""
            return x * self.scale

    assert Model().apply(jnp.ones(2)).tolist() == [3, 3]
    assert Model.apply.__doc__ == "Doc."


def test_symbolic_exports_are_specialised_or_run_as_they_are() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(x) @ jnp.ones((x.shape[1], 3)) + x.shape[0]

    shape = export.symbolic_shape("b, c")
    exported = export.export(jax.jit(f), platforms=["cpu"])(jax.ShapeDtypeStruct(shape, jnp.float32))
    called = tilewright.jit(exported)
    for rows in (2, 5):
        x = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
        np.testing.assert_allclose(called(x), f(x), rtol=1e-5)
        assert called.executable(x).fallbacks == []
        dynamic = tilewright.from_jax(exported)
        assert dynamic.function().arguments[0].type.shape == (None, None)
        np.testing.assert_allclose(tilewright.compile(dynamic)(x)[0], f(x), rtol=1e-5)
    assert called.cache_size == 2


def test_from_jax_gives_a_verified_module() -> None:
    module = tilewright.from_jax(lambda x, y: jnp.tanh(x), jax.ShapeDtypeStruct((3,), jnp.float32), np.int32(1))
    assert isinstance(module, hlo.Module)
    assert len(module.function().arguments) == 2  # unused ones stay
    assert module.root.name == "stablehlo.tanh"


def test_linear_algebra_stays_ops() -> None:
    module = tilewright.from_jax(lambda a: jnp.linalg.cholesky(a), jnp.eye(3))
    names = {op.name for f in module.functions.values() for op in f.body.ops}
    assert "stablehlo.cholesky" in names
    assert "stablehlo.custom_call" not in names


def test_weak_types_and_scalars() -> None:
    f = tilewright.jit(lambda x: (x * 2, x > 1))
    doubled, large = f(3)
    assert doubled.weak_type
    assert large.dtype == bool
    assert (f(3.0)[0] + np.float16(1)).dtype == np.float16


def test_ordered_effects_and_prints(capfd: Any) -> None:
    seen = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x[0], ordered=True)
        jax.debug.callback(lambda v: seen.append(float(v)), x[1], ordered=True)
        return x + 1

    assert tilewright.jit(f)(jnp.array([5.0, 6.0])).tolist() == [6, 7]
    assert seen == [5.0, 6.0]


def test_errors_of_jax_come_through() -> None:
    with pytest.raises(TypeError):
        tilewright.jit(lambda a, b: a @ b)(jnp.ones((2, 3)), jnp.ones((2, 3)))
    with pytest.raises(tilewright.TilewrightError, match="expected a function"):
        tilewright.jit(3)
    with pytest.raises(tilewright.TilewrightError, match="output: expected"):
        tilewright.jit(lambda x: x, output="torch")


def test_several_threads_share_one_program() -> None:
    from concurrent.futures import ThreadPoolExecutor

    f = tilewright.jit(lambda x: jnp.tanh(x).sum())
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: float(f(np.full(8, k, np.float32))), range(8)))
    assert f.cache_size == 1
    np.testing.assert_allclose(results, 8 * np.tanh(np.arange(8)), rtol=1e-6)


OUTER = """func.func @main(%a: tensor<3xf32>, %b: tensor<4xf32>) -> tensor<3x4xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [] x [] : (tensor<3xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}"""


def test_an_outer_product_multiplies() -> None:
    """A contraction over nothing once stored its first operand alone."""
    a, b = np.arange(1, 4, dtype=np.float32), np.arange(1, 5, dtype=np.float32)
    np.testing.assert_array_equal(tilewright.compile(hlo.parse(OUTER))(a, b)[0], np.outer(a, b))


def test_loops_that_never_run_are_planned() -> None:
    """A loop of no iterations once had a cost of 0 / 0."""
    found = tilewright.jit(lambda a: (jnp.linalg.cholesky(a), a.sum(0), jnp.exp(a)))(np.zeros((0, 3, 3), np.float32))
    assert [r.shape for r in found] == [(0, 3, 3), (3, 3), (0, 3, 3)]
    assert found[1].tolist() == np.zeros((3, 3)).tolist()


def test_small_loops_start_anew_at_every_call() -> None:
    """The native small call once ran a loop's kernels without the loop, each call going on where the last one ended."""
    f = tilewright.jit(lambda x: jax.lax.fori_loop(0, 4, lambda i, a: jnp.sin(a) + i, x), output="numpy")
    x = np.arange(6, dtype=np.float32)
    expected = x
    for i in range(4):
        expected = np.sin(expected) + np.float32(i)
    for _ in range(3):
        np.testing.assert_allclose(f(x), expected, rtol=1e-5)
    assert f.executable(x).fallbacks == []


def test_products_of_booleans() -> None:
    """or of ands: a loop's step for booleans was missing, and compiling ended with an error of types."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 2, s).astype(bool) for s in ((3, 4), (4, 5)))
    found = tilewright.jit(lambda a, b: a @ b)(a, b)
    assert found.tolist() == (a @ b).tolist()


def test_a_choice_by_platform_is_the_cpus() -> None:
    """Functions are lowered for a neutral target, and once took that target's branch."""

    def f(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x + 2)

    assert tilewright.jit(f)(0.0) == jax.jit(f)(0.0) == 1


def test_buffers_come_in_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    import array

    from tilewright.jax import compiled

    seen: list[int] = []
    kept = compiled.array

    def spied(jax_: Any, leaf: Any, dtype: Any) -> np.ndarray:
        a = kept(jax_, leaf, dtype)
        seen.append(a.ctypes.data)
        return a

    monkeypatch.setattr(compiled, "array", spied)
    f = tilewright.jit(lambda x: x * 2, output="numpy")
    a = np.arange(1024, dtype=np.float32)
    buffer = array.array("f", range(1024))
    for given, address in (
        (a, a.ctypes.data),
        (memoryview(a), a.ctypes.data),
        (buffer, buffer.buffer_info()[0]),
        (jnp.asarray(a), None),
    ):
        np.testing.assert_array_equal(f(given), a * 2)
        assert seen[-1] == (given.unsafe_buffer_pointer() if address is None else address)
    with pytest.raises(TypeError, match="not a valid JAX type"):
        f("text")
    with pytest.raises(TypeError, match="not a valid JAX type"):
        f(b"text")


def test_foreign_calls_run_the_callers_function() -> None:
    def f(x: Any) -> Any:
        return jax.ffi.ffi_call("my_target", jax.ShapeDtypeStruct((3,), jnp.float32))(x) + 1

    g = tilewright.jit(f, custom_calls={"my_target": lambda op, x: x * 10})
    assert g(jnp.arange(3.0)).tolist() == [1, 11, 21]
    with pytest.raises(tilewright.TilewrightError, match="unknown target 'my_target'") as caught:
        tilewright.jit(f)(jnp.arange(3.0))
    assert len(str(caught.value)) < 400, "it once listed every LAPACK call"


def test_results_are_the_callers_own() -> None:
    """Two results that are one value were one array: writing to the first changed the second."""
    a, b = tilewright.jit(lambda x: (x + 1, x + 1), output="numpy")(np.zeros(3, np.float32))
    a[:] = 7
    assert b.tolist() == [1, 1, 1]


def test_a_function_says_what_it_is() -> None:
    assert repr(tilewright.jit(jnp.tanh)).startswith("<tilewright.jit of <")


@pytest.mark.slow
def test_a_program_with_types_that_uses_the_public_names(tmp_path: pathlib.Path) -> None:
    """A decorated function was `Any`, and so was all that came from it."""
    program = tmp_path / "user.py"
    program.write_text(
        """
import numpy as np
import codegen, hlo, indexing, interp, tilewright, tiling
from tilewright.jax.bridge import Jitted

def total(text: str) -> float:
    module = tilewright.parse(text)
    tilewright.verify(module)
    root: hlo.Op = module.root
    first: indexing.IndexingMap = tilewright.output_to_input(root)[0][0]
    tile: tiling.SymbolicTile | hlo.Declined = tiling.symbolic_tile(first.simplify())
    plan: tiling.Plan = tilewright.plan(module, supports=codegen.supports)
    executable: codegen.Executable = tilewright.compile(plan)
    (y,) = executable(np.ones((4, 8), np.float32))
    (z,) = tilewright.evaluate(module, np.ones((4, 8), np.float32), limits=interp.Limits(steps=99))
    return float(y.sum() + z.sum()) + len(str(tile))

@tilewright.jit
def f(x: np.ndarray) -> np.ndarray:
    return x * 2

@tilewright.jit(threads=1, output="numpy")
def g(x: np.ndarray) -> np.ndarray:
    return x * 2

both: tuple[Jitted, Jitted] = (f, g)
count: int = f.cache_size
wrong: int = f  # E
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", str(program)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout
    assert 'expression has type "Jitted"' in errors[0]


def _leaves_of_every_kind(x: Any) -> Any:
    weak = x.sum() * 0 + jnp.asarray(2.0)
    return {
        "small": x * 2, "none": x[:0], "weak": jnp.broadcast_to(jax.lax.full((), 3.0) * 1.0, (3,)), "key": jax.random.key(3),
        "large": jnp.broadcast_to(x[0], (300, 300)) + 1, "scalar": weak, "half": x.astype(jnp.bfloat16), "bool": x > 1,
    }  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_every_call_gives_the_same_types_and_values() -> None:
    """The first call turns results into JAX's arrays one by one, later ones all at once."""
    x = jnp.arange(5.0)
    expected = jax.tree_util.tree_leaves(jax.jit(_leaves_of_every_kind)(x))
    run = tilewright.jit(_leaves_of_every_kind)
    for _ in range(3):
        found = jax.tree_util.tree_leaves(run(x))
        for e, f in zip(expected, found, strict=True):
            assert isinstance(f, jax.Array)
            assert jax.typeof(e) == jax.typeof(f)
            assert (e == f).all()


def test_results_outlive_later_calls_and_their_executable() -> None:
    f = tilewright.jit(lambda x: [x + k for k in range(4)] + [jnp.zeros((400, 400)) + x[0]])
    kept = [f(jnp.full(3, float(k))) for k in range(8)]
    f.clear_cache()
    for k, leaves in enumerate(kept):
        assert [float(leaf.max()) for leaf in leaves] == [k, k + 1, k + 2, k + 3, k]


def test_large_results_are_taken_over_and_never_written_again() -> None:
    from codegen.launcher.memory import pool

    f = tilewright.jit(lambda x: x + 1, threads=1)
    kept = [jnp.zeros((512, 512))]
    for _ in range(4):
        kept.append(f(np.asarray(kept[-1])))  # NumPy's, which JAX would copy: no call of JAX's own makes the results
    assert pool.count("output").live_bytes >= 4 * kept[0].nbytes  # JAX holds the executable's own memory
    assert [(float(x.min()), float(x.max())) for x in kept] == [(k, k) for k in range(5)]
    for _ in range(8):  # what JAX lets go is used again
        x = f(np.asarray(kept[0]))
    assert pool.count("output").live_bytes < 8 * x.nbytes


def test_arrays_of_jax_that_were_seen_are_still_told_apart() -> None:
    f = tilewright.jit(lambda x: x * 2)
    for x in (jnp.ones(2), jnp.ones(2), np.ones(2), jnp.ones(2, jnp.int32), jnp.ones(3)):
        assert jax.typeof(f(x)) == jax.typeof(jax.jit(lambda x: x * 2)(x))
    assert f.cache_size == 3
    assert jax.grad(lambda x: f(x).sum())(jnp.ones(2)).tolist() == [2, 2]


def test_settings_that_change_what_a_call_does() -> None:
    """`jax.disable_jit`, `jax_debug_nans` and `clear_cache` do what they do to `jax.jit`."""
    traced: list[bool] = []

    for jit in (jax.jit, tilewright.jit):

        def f(x: Any) -> Any:  # one for each: JAX keeps a function's traces, whoever asked for them
            traced.append(isinstance(x, jax.core.Tracer))
            return jnp.log(x)

        traced.clear()
        g = jit(f)
        with jax.disable_jit():
            g(1.0)
        for _ in range(3):
            g(1.0)
        g.clear_cache()
        g(1.0)
        assert traced == [False, True, True]
        for _ in range(2):
            with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"nan.*log"):
                g(-1.0)
            with jax.debug_infs(True), pytest.raises(FloatingPointError, match=r"inf.*log"):
                g(0.0)
            with jax.debug_nans(True), jax.debug_infs(True):
                assert g(1.0) == 0
        with pytest.raises(ValueError, match="hashable"):
            jit(lambda n, x: x, static_argnums=0)([1], 1.0)
        assert str(g.eval_shape(np.ones(3, np.float32))) == "ShapeDtypeStruct(shape=(3,), dtype=float32)"
        assert "log" in str(g.trace(1.0).jaxpr)


def test_options_that_do_not_change_what_is_compiled() -> None:
    device = jax.devices()[0]
    mesh = jax.sharding.Mesh(np.array([device]), ("i",))
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    for jit in (jax.jit, tilewright.jit):
        f = jit(lambda x: {"a": x + 1}, in_shardings=named, out_shardings=named)
        for _ in range(3):
            found = f(np.ones(4, np.float32))["a"]
            assert found.sharding == named and found.tolist() == [2] * 4
        for inlines in (False, True):
            inner = jit(lambda x: x + 1, inline=inlines, keep_unused=True)
            assert inner(1.0) == 2
            assert ("jit[" in str(jax.make_jaxpr(lambda x, inner=inner: inner(x))(1.0))) is not inlines
    with pytest.raises(tilewright.TilewrightError, match="shardings: expected some on"):
        tilewright.jit(lambda x: x, in_shardings=jax.sharding.PartitionSpec("i"))(np.ones(4))
