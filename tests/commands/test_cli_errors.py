"""Every kind of bad input: exit code 2, the place, what was expected and what was found, and never a traceback."""

from __future__ import annotations

import io
import pathlib
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from tests.commands.command_line import TWO, called
from tilewright.commands.report import show_check

GOOD = """\
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def refused(*arguments: str) -> str:
    """The message of a command that must end with exit code 2 and print nothing else."""
    done = called(*arguments)
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return done.stderr


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "bad.mlir"
        path.write_text(text)
        return str(path)

    return write


# ---------------------------------------------------------------- the program's text


@pytest.mark.parametrize("command", ["run", "check", "maps", "plan", "source"])
@pytest.mark.parametrize(
    ("old", "new", "line", "at", "words"),
    [
        pytest.param("%b : tensor<4xf32>\n", "%b : tensor<4xf32\n", 3, None, ["expected"], id="broken text"),
        pytest.param("%a, %b : tensor", "%a, %c : tensor", 2, "%c", ["%c"], id="undefined value"),
        pytest.param("stablehlo.add", "stablehlo.frobnicate", 2, "stablehlo.frobnicate", ["frobnicate"], id="unknown op"),
        pytest.param("%b: tensor<4xf32>", "%b: tensor<5xf32>", 2, None, ["tensor<4xf32>", "tensor<5xf32>"], id="type mismatch"),
        pytest.param("tensor<4xf32>\n  return", "tensor<4xq77>\n  return", 2, None, ["q77"], id="unknown type"),
        pytest.param(GOOD, "", 1, None, [], id="empty file"),
    ],
)
def test_bad_programs(
    program: Callable[[str], str], command: str, old: str, new: str, line: int, at: str | None, words: list[str]
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    path = program(text)
    message = refused(command, path)
    head = message.splitlines()[0]
    if text:
        place, _, rest = head.partition(": error: ")
        file, found_line, column = place.rsplit(":", 2)
        assert (file, int(found_line)) == (path, line) or (at is None and int(found_line) in (line - 1, line)), message
        assert all(w in message for w in words), message
        assert rest
        shown, caret = message.splitlines()[-2:]
        source_line = text.splitlines()[int(found_line) - 1]
        assert shown == f"  {source_line}"
        assert caret.strip() == "^"
        assert caret.index("^") == int(column) - 1 + 2
        if at is not None:
            assert source_line[int(column) - 1 :].startswith(at), message
    else:
        assert head == f"{path}: error: no function @main: the program has no function"


def test_a_constraint_names_the_op_what_was_expected_and_what_was_found(program: Callable[[str], str]) -> None:
    message = refused(
        "run",
        program(
            "func.func @main(%a: tensor<4x3xf32>) -> tensor<4x3xf32> {\n"
            "  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<4x3xf32>\n"
            "  return %0 : tensor<4x3xf32>\n}\n"
        ),
    )
    assert ":2:" in message
    assert "transpose" in message
    assert "tensor<3x4xf32>" in message or "[3, 4]" in message
    assert "tensor<4x3xf32>" in message or "[4, 3]" in message


def test_a_program_that_is_no_text(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "latin.mlir"
    path.write_bytes(b"// first\n// caf\xe9\n")
    message = refused("run", str(path))
    assert message == f"{path}:2:7: error: byte 0xe9 is no UTF-8 text\n"


def test_a_program_that_is_not_there(tmp_path: pathlib.Path) -> None:
    absent = str(tmp_path / "absent.mlir")
    assert refused("maps", absent) == f"{absent}: error: cannot read the file: No such file or directory\n"
    assert refused("plan", str(tmp_path)) == f"{tmp_path}: error: cannot read the file: Is a directory\n"


def test_control_characters_of_a_program_do_not_reach_the_terminal(program: Callable[[str], str]) -> None:
    message = refused("run", program("func.func @main() {\n  \x1b[2J stablehlo.add\n}\n"))
    assert "\x1b" not in message
    assert "\\x1b" in message


# ---------------------------------------------------------------- the input arrays


@pytest.fixture
def two(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "two.mlir"
    path.write_text(TWO)
    return str(path)


def saved(path: pathlib.Path, array: np.ndarray) -> str:
    np.save(path, array)
    return str(path)


def test_too_few_and_too_many_arrays(two: str, tmp_path: pathlib.Path) -> None:
    a = saved(tmp_path / "a.npy", np.zeros((4, 3), np.float32))
    for count in (1, 3):
        message = refused("run", two, *["--input", a] * count)
        assert f"expected 2 input arrays (one --input for each argument), found {count}" in message
        assert "argument 0 (%a) of @main: tensor<4x3xf32>" in message


def test_a_wrong_shape(two: str, tmp_path: pathlib.Path) -> None:
    a = saved(tmp_path / "a.npy", np.zeros((4, 3), np.float32))
    b = saved(tmp_path / "b.npy", np.zeros((3, 4), np.float32))
    message = refused("run", two, "--input", a, "--input", b)
    assert "wrong shape for argument 1 (%b) of @main: tensor<4x3xf32>: expected [4, 3], found [3, 4]" in message
    assert message.startswith("error: " + b)


def test_a_wrong_element_type(two: str, tmp_path: pathlib.Path) -> None:
    a = saved(tmp_path / "a.npy", np.zeros((4, 3), np.float64))
    message = refused("check", two, "--input", a, "--input", a)
    assert "expected float32, found float64" in message
    assert "argument 0 (%a)" in message


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def truncated() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((4, 3), np.float32))
    return buffer.getvalue()[:-5]


def archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, np.zeros((4, 3), np.float32))
    return buffer.getvalue()


def bad_header() -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, __import__('os').getpid()), }\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48)


def huge_header() -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 99999999999999), }\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "not a readable .npy array", id="empty"),
        pytest.param(b"not an array at all", "not a readable .npy array", id="text"),
        pytest.param(b"\x93NUMPY\x01\x00", "not a readable .npy array", id="magic only"),
        pytest.param(truncated(), "not a readable .npy array", id="truncated"),
        pytest.param(pickled(), "not a readable .npy array", id="object array"),
        pytest.param(pickle.dumps([1, 2]), "not a readable .npy array", id="plain pickle"),
        pytest.param(bad_header(), "not a readable .npy array", id="code in the header"),
        pytest.param(huge_header(), "not a readable .npy array", id="absurd size"),
        pytest.param(archive(), "found an .npz archive", id="npz"),
        pytest.param(archive()[:40], "not a readable .npy array", id="broken npz"),
    ],
)
def test_files_that_are_no_array(two: str, tmp_path: pathlib.Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    message = refused("run", two, "--input", str(path), "--input", str(path))
    assert words in message
    assert str(path) in message
    assert "argument 0 (%a) of @main" in message


def test_an_array_that_is_not_there(two: str, tmp_path: pathlib.Path) -> None:
    absent = str(tmp_path / "absent.npy")
    message = refused("run", two, "--input", absent, "--input", absent)
    assert absent in message
    assert "No such file or directory" in message


def test_arguments_that_cannot_be_random(program: Callable[[str], str]) -> None:
    unknown = "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n  return %a : tensor<?xf32>\n}\n"
    assert "give its array with --input" in refused("run", program(unknown))
    huge = unknown.replace("?", "999999999x999999")
    assert "bytes, this machine has" in refused("run", program(huge))


def test_results_that_cannot_be_written(two: str, tmp_path: pathlib.Path) -> None:
    assert "2 results; name a folder" in refused("run", two, "--output", str(tmp_path / "one.npy"))
    (tmp_path / "file").write_text("")
    assert "cannot write the results" in refused("run", two, "--output", str(tmp_path / "file" / "below"))


# ---------------------------------------------------------------- the options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "{}", "--entry", "nowhere"], "no function @nowhere; there is @main, @double"),
        (["run", "{}", "--import", "no_such_module"], "--import no_such_module: ModuleNotFoundError: No module named"),
        (["maps", "{}", "--op", "reduce"], "has no such op"),
        (["maps", "{}", "--op", "99"], "has no such op"),
        (["maps", "{}", "--op", "%zz"], "has no such op"),
        (["run", "{}", "--seed", "-1"], "expected a whole number"),
        (["run", "{}", "--threads", "0"], "expected a whole number from 1 on, found '0'"),
        (["run", "{}", "--repeat", "many"], "expected a whole number from 1 on, found 'many'"),
        (["run", "{}", "--frob"], "unrecognized arguments: --frob"),
        (["cache", "prune", "--days", "-5"], "expected a number of days, such as 30 or 0.5, found '-5'"),
        (["cache", "prune", "--days", "nan"], "expected a number of days, such as 30 or 0.5, found 'nan'"),
        (["cache", "prune", "--max-bytes", "much"], "expected bytes, such as 500M, found 'much'"),
        (["walk", "{}"], "invalid choice: 'walk'"),
        (["run"], "FILE"),
        ([], "COMMAND"),
    ],
)
def test_bad_options(two: str, arguments: list[str], words: str) -> None:
    assert words in refused(*(a.format(two) for a in arguments))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TILEWRIGHT_NUM_THREADS", "many", "TILEWRIGHT_NUM_THREADS: expected a positive number, found 'many'"),
        ("TILEWRIGHT_NUM_THREADS", "0", "TILEWRIGHT_NUM_THREADS: expected a positive number, found '0'"),
        (
            "TILEWRIGHT_TARGET",
            "sparc",
            "TILEWRIGHT_TARGET: unknown target 'sparc': expected host, amx, avx512bf16, avx512vnni, avx512, avx2, baseline",
        ),
    ],
)
def test_settings_that_mean_nothing(program: Callable[[str], str], variable: str, value: str, words: str) -> None:
    """They ended as errors inside Tilewright, with tracebacks."""
    done = called("run", program(GOOD), **{variable: value})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {words}\n")


# ---------------------------------------------------------------- valid programs that cannot be run


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_custom_call_that_nobody_knows_is_declined(command: str, program: Callable[[str], str]) -> None:
    """It ended as a bad program does (2), although nothing in it is wrong."""
    call = "stablehlo.custom_call @mine(%a) : (tensor<4xf32>) -> tensor<4xf32>"
    path = program(GOOD.replace("stablehlo.add %a, %b : tensor<4xf32>", call))
    done = called(command, path)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{path}:2:8: error: stablehlo.custom_call: unknown target 'mine'" in done.stderr


def test_an_entry_without_a_name(program: Callable[[str], str]) -> None:
    """An empty name, as a script's empty variable gives it, was taken for none."""
    assert "--entry: no function @; there is @main" in refused("maps", program(GOOD), "--entry", "")


def test_one_array_is_one_array(program: Callable[[str], str], tmp_path: pathlib.Path) -> None:
    path = program("func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  return %a : tensor<2xf32>\n}")
    a = saved(tmp_path / "a.npy", np.zeros(2, np.float32))
    assert "expected 1 input array (one --input for each argument), found 2" in refused("run", path, "--input", a, "--input", a)


def test_what_there_is_to_choose_from_is_said(program: Callable[[str], str]) -> None:
    path = program(GOOD.replace("return %0", "%1 = stablehlo.negate %0 : tensor<4xf32>\n  return %1"))
    assert "it has 2 ops, numbers 0 to 1; names: stablehlo.add, stablehlo.negate" in refused("maps", path, "--op", "99")
    misspelled = refused("maps", program(GOOD.replace("stablehlo.add", "stablehlo.addd")))
    assert "unknown op 'stablehlo.addd', did you mean 'stablehlo.add'?" in misspelled


@pytest.mark.parametrize(
    ("rel", "ulp", "passed", "said"),
    [
        (1e-6, 17, True, "within rel 1e-05"),
        (1, 3, True, "within 4 ulp"),
        (1, 5, False, "allowed for each element: rel 1e-05 or 4 ulp"),
    ],
)
def test_errors_are_compared_with_the_bound_that_holds(
    rel: float, ulp: float, passed: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`17 ulp (allowed: rel 1e-05 or 4 ulp)` of what passed read as a failure."""
    errors = {"passed": passed, "max_abs": rel, "max_rel": rel, "max_ulp": ulp, "allowed_rel": 1e-5, "allowed_ulp": 4.0}
    worst = {"mismatched_elems": 1, "worst_index": [0], "worst_expected": 1, "worst_actual": 2}
    row = {"shape": [4], "dtype": "float32", **errors, **worst}
    show_check({"outputs": [row]}, [])
    assert f"ulp ({said})" in capsys.readouterr().out
