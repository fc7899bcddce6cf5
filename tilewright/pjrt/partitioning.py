"""On which devices programs run; those of several partitions, cut into what each device computes.

JAX sends a whole program with shardings (Shardy's, or `shard_map`'s manual parts), and leaves it to the platform to cut it up.
XLA's partitioner does that, as for XLA's own devices: it runs inside a compilation for as many of XLA's CPU devices, which is
made to write down what it hands on after that pass. That is a program of one partition with explicit collectives, as HLO's text;
what XLA makes of it afterwards is dropped, and it need not succeed.

Such a client also says what it thinks of a compiler's options, and counts a program's operations.

It relies on `make_cpu_client` of `jaxlib.xla_client`, on XLA's options `xla_dump_…`, on the pass's name, and on
`mlir.hlo_to_stablehlo`, `mlir.mlir_module_to_xla_computation` and `hlo_module_cost_analysis` of `jaxlib._jax`.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.pjrt.client import Device, client, handle_list
from tilewright.pjrt.handles import Problem

__all__ = ["Partitioned", "Placing", "costs", "counted", "device_ids", "field", "readable"]

_PASS = "spmd-partitioning"
_FILES = f"*.after_{_PASS}.*"


class Placing:
    """On which devices a program runs: `devices` in the order of its replicas, and of each one's partitions.

    `options` are those that jaxlib compiles with, written as a protocol buffer. Raises Problem for devices that there are not.
    """

    def __init__(self, options: bytes) -> None:
        from jaxlib import xla_client

        self._options: Any = xla_client.CompileOptions.ParseFromString(options) if options else xla_client.CompileOptions()
        build = self._options.executable_build_options
        self.replicas, self.partitions = (max(1, n) for n in (build.num_replicas, build.num_partitions))
        given = self._options.device_assignment
        ids = np.arange(self.replicas * self.partitions).reshape(self.replicas, self.partitions)
        assignment = given or xla_client.DeviceAssignment.create(ids)
        self.assignment: bytes = assignment.serialize()
        rows, there = device_ids(self.assignment), client().devices
        _check_overrides(self._options.env_option_overrides)
        wrong = [k for row in rows for k in row if not 0 <= k < len(there)]
        if wrong or [len(row) for row in rows] != [self.partitions] * self.replicas:
            raise Problem(
                "INVALID_ARGUMENT",
                f"{self.replicas} replicas of {self.partitions} partitions on the devices {rows}, where there are {len(there)}"
                " (TILEWRIGHT_DEVICES says how many)",
            )
        self.devices: list[Device] = [there[k] for row in rows for k in row]
        self.list = handle_list([d.handle for d in self.devices])

    def partitioned(self, code: bytes) -> Partitioned:
        """A program as each of its partitions runs it. Raises Problem with the partitioner's words for what it does not take."""
        return _partitioned(code, self._options, len(self.devices))


@dataclass(frozen=True)
class Partitioned:
    """What every partition runs: `text` as HLO, `code` as bytecode of StableHLO with what it has not, and with shardings."""

    text: str
    code: bytes


@functools.cache
def _xla(devices: int) -> Any:
    """A client of XLA's with so many CPU devices, of which nothing but compiling is asked."""
    from jaxlib import xla_client

    return xla_client.make_cpu_client(num_devices=devices, asynchronous=False)


_SMALLEST = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"


def _check_overrides(overrides: Any) -> None:
    """Raises Problem, in XLA's words, for a compiler's option that XLA has not, or a value that it does not take.

    Those that XLA takes make no difference here.
    """
    if not overrides:
        return
    from jaxlib import _jax, xla_client

    options: Any = xla_client.CompileOptions()
    options.env_option_overrides = overrides
    client = _xla(1)
    try:
        client.compile_and_load(_SMALLEST, client.devices(), options)
    except _jax.JaxRuntimeError as e:
        raise Problem("INVALID_ARGUMENT", str(e).removeprefix("INVALID_ARGUMENT: ")) from None


def costs(code: bytes) -> dict[str, float]:
    """What XLA counts of a program. Raises Problem for one that it does not read."""
    from jaxlib import _jax

    try:
        return counted(_jax.mlir.mlir_module_to_xla_computation(code).as_hlo_module())
    except _jax.JaxRuntimeError as e:
        raise Problem("UNIMPLEMENTED", f"XLA does not count this program's operations: {e}") from None


def counted(module: Any) -> dict[str, float]:
    """What XLA counts of a module of its own."""
    from jaxlib import _jax

    found: dict[str, float] = _jax.hlo_module_cost_analysis(_xla(1), module)
    return found


def readable(code: bytes) -> bytes:
    """A program as jaxlib reads compiled ones: it knows shardings as XLA's annotations, and not the ops that JAX lowers to.

    Programs that get or make random keys have such ops on one device, too.
    """
    if b"sdy" not in code:
        return code
    from jaxlib import _jax

    made = _jax.mlir.xla_computation_to_mlir_module(_jax.mlir.mlir_module_to_xla_computation(code))
    return made if isinstance(made, bytes) else str(made).encode()


def _partitioned(code: bytes, options: Any, count: int) -> Partitioned:
    from jaxlib import _jax, xla_client

    numbers = np.arange(count).reshape(options.num_replicas, options.num_partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(numbers)
    options.executable_build_options.device_assignment = options.device_assignment
    client = _xla(count)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        options.env_option_overrides = [
            ("xla_dump_to", folder), ("xla_dump_hlo_pass_re", f"^{_PASS}$"), ("xla_dump_hlo_as_proto", True),
            ("xla_dump_hlo_as_text", True), ("xla_dump_large_constants", True), ("xla_backend_optimization_level", 0),
        ]  # fmt: skip
        failure = ""
        try:
            client.compile_and_load(code, client.devices(), options)
        except _jax.JaxRuntimeError as e:  # perhaps of a later pass
            failure = str(e)
        found = {p.suffix: p.read_bytes() for p in pathlib.Path(folder).glob(_FILES)}
        if found.keys() != {".txt", ".pb"}:
            reason = failure or "it wrote nothing down"
            raise Problem("INVALID_ARGUMENT", f"XLA's partitioner did not cut the program up: {reason}")
    to_stablehlo: Any = _jax.mlir.hlo_to_stablehlo
    return Partitioned(found[".txt"].decode(), to_stablehlo(field(found[".pb"], 1)))


# ---------------------------------------------------------------- protocol buffers


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a message, in order: their numbers, with numbers or bytes."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        value: Any
        if tag & 7 == 0:
            value, at = _number(data, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(tag & 7) or _number(data, at)
            value, at = data[at : at + size], at + size
        found.append((tag >> 3, value))
    return found


def field(data: bytes, number: int) -> bytes:
    """The first field of that number in a message, which is bytes.

    >>> field(bytes([0x08, 5, 0x12, 2, 104, 105]), 2)
    b'hi'
    """
    return next(bytes(value) for k, value in _fields(data) if k == number)


def device_ids(data: bytes) -> list[list[int]]:
    """The devices of a written assignment, by replica and partition.

    >>> device_ids(bytes([8, 1, 16, 2, 26, 3, 10, 1, 7, 26, 3, 10, 1, 0]))
    [[7, 0]]
    """
    columns = []
    for number, column in _fields(data):
        if number == 3:
            ids: list[int] = []
            for _, value in _fields(column):
                at = 0
                while not isinstance(value, int) and at < len(value):
                    one, at = _number(value, at)
                    ids.append(one)
                if isinstance(value, int):
                    ids.append(value)
            columns.append(ids)
    return [list(row) for row in zip(*columns, strict=True)]
