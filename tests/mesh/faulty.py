"""One process of the tests of failures: `python -m tests.mesh.faulty KIND`."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import numpy as np

import codegen
import hlo
from codegen.mpi.channel import the_channel
from codegen.mpi.errors import MeshError
from codegen.mpi.mesh import Mesh

SUM = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = stablehlo.NAME %x : tensor<4xf32>
  %0 = "stablehlo.all_reduce"(%e) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32> }"""


UNANSWERED = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %v:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>, is_host_transfer = true}
    : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %v#0 : tensor<4xf32> }"""


def say(line: str) -> None:
    """One write for the whole line: the launcher passes on what comes, whoever it is of."""
    os.write(1, (line + "\n").encode())


def compiled(name: str = "negate", axis: str = "x", more: int = 0) -> codegen.Executable:
    return codegen.compile(hlo.parse(SUM.replace("NAME", name)), mesh=Mesh({axis: the_channel().size + more}))


def start(odd: bool) -> None:
    """Three disagreements, each of which ends nothing but the attempt."""
    for given in ({"name": "exponential" if odd else "negate"}, {"axis": "y" if odd else "x"}, {"more": 1}):
        try:
            compiled(**given)
        except MeshError as e:
            say(str(e))


def slow(odd: bool) -> None:
    """Process 1 fails after a meeting that process 0 comes out of later than the news of the failure reach it."""
    channel = the_channel()
    channel.gather("before")
    if odd:
        channel.gather("last")
        channel.failed(MeshError("wrong for all"))
        return
    until, waits = channel.until, itertools.count(1)

    def late(is_done: Any, *more: Any) -> None:
        held = next(waits) == 2  # sizes come first; process 1 needs them to come out
        until((lambda: channel.failure is not None and is_done()) if held else is_done, *more)

    channel.until = late  # type: ignore
    say(f"process 0 has {channel.gather('last')}")
    try:
        channel.gather("nobody comes to this one")
    except MeshError as e:
        say(str(e))


def main(kind: str) -> None:
    odd = the_channel().rank == 1
    if kind == "slow":
        slow(odd)
        return
    if kind == "start":
        start(odd)
        return
    if kind == "unanswered":
        codegen.compile(hlo.parse(UNANSWERED), mesh=Mesh({"x": the_channel().size}))(np.ones(4, np.float32))
        return
    executable = compiled()
    x = np.ones(3 if kind == "input" and odd else 4, np.float32)
    if kind == "leaves" and odd:
        return
    if kind == "raises" and odd:
        raise ZeroDivisionError("of one process's own")
    if kind == "forever":
        say("ready")
        while True:
            executable(x)
    executable(x)


if __name__ == "__main__":
    main(sys.argv[1])
