"""`python -m tests.hostile --seconds 60 --seed 0`: random programs and situations, one after another, and what they found.

Programs run many in a process, each situation in one of its own, with the C library's checks of its memory where there are any.
A process that ends by a signal or hangs is a finding of the seed that it was at. `--only p17` and `--only s4` repeat a program or
a situation; `--only p17 --show` prints the program.
"""

from __future__ import annotations

import argparse
import functools
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field

from tests.hostile import judge, programs, situations

CHECKS = "libc_malloc_debug.so.0"  # since glibc 2.34 malloc checks what it is given with this library alone
LIMIT_SECONDS = {"p": 120.0, "s": 60.0}
BATCH = 40  # programs in a process
SITUATION_EVERY = 12  # programs
DIES_AT = "TILEWRIGHT_HOSTILE_DIES_AT"  # a case that ends its process, for the test that this is found
EMPTY = {"p": 0, "s": 0}


@dataclass
class Outcome:
    """How many programs and situations were tried, and what was found: the case (`p17`, `s4`) and the lines about it."""

    tried: dict[str, int] = field(default_factory=EMPTY.copy)
    findings: list[tuple[str, list[str]]] = field(default_factory=list)


def one(case: str) -> list[str]:
    """Tries a case in this process; the lines about what is wrong with it."""
    seed = int(case[1:])
    try:
        return judge.tried(seed) if case[0] == "p" else situations.tried(seed)
    except Exception as e:  # noqa: BLE001 (whatever it is, it is what is looked for)
        frames = reversed(traceback.extract_tb(e.__traceback__)[-30:])
        where = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames)
        return [f"{type(e).__name__}: {e}".replace("\n", " | ")[:2000] + f" [{where}]"]


def serve(cases: list[str]) -> int:
    """Tries cases and writes what is wrong: a line when one begins, one for each fault, one when it has ended."""
    for case in cases:
        print(f"begins {case}", flush=True)
        if case == os.environ.get(DIES_AT):
            os.abort()
        for line in one(case):
            print(f"fault {line}", flush=True)
        print(f"ends {case}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # threads that hang are findings already


OVERRUN = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
at = libc.malloc(2000)
ctypes.memset(at + 2000, 1, 1)
libc.free(at)
"""


@functools.cache
def has_checks(library: str = CHECKS) -> bool:
    """Whether a byte written beside a block ends a process of this Python: some run on without the library, in silence."""
    command = [sys.executable, "-S", "-c", OVERRUN]
    return subprocess.run(command, env=checked(library), stderr=subprocess.DEVNULL, check=False).returncode == -signal.SIGABRT


def checked(library: str = CHECKS) -> dict[str, str]:
    """The environment of a process under the C library's checks of what is freed, and of what is written beside it."""
    checks = {"LD_PRELOAD": library, "GLIBC_TUNABLES": "glibc.malloc.check=3"} if sys.platform == "linux" else {}
    return {**os.environ, **checks, "PYTHONHASHSEED": "0", "MALLOC_PERTURB_": "165"}


def attempt(cases: list[str], outcome: Outcome) -> list[str]:
    """Tries cases in a process; those that are left when it ended early."""
    environment = checked() if has_checks() else {**os.environ, "PYTHONHASHSEED": "0", "MALLOC_PERTURB_": "165"}
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.hostile", "--serve", *cases],
            stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        )  # fmt: skip
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                lines.put(line.rstrip("\n"))
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        left, faults, hung = list(cases), [], False
        limit = time.monotonic() + LIMIT_SECONDS[cases[0][0]]
        while True:
            try:
                line = lines.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                hung = True
                dump(child)
                break
            if line is None:
                break
            kind, _, rest = line.partition(" ")
            if kind == "begins":
                faults = []
            elif kind == "fault":
                faults.append(rest)
            elif kind == "ends":
                limit = time.monotonic() + LIMIT_SECONDS[cases[0][0]]
                outcome.tried[rest[0]] += 1
                left.remove(rest)
                if faults:
                    found(outcome, rest, faults)
                faults = []
        code = child.wait()
        if left:
            errors.seek(0)
            last = [line for line in errors.read().splitlines() if line.strip()][-300:]
            how = f"hangs for {LIMIT_SECONDS[left[0][0]]:.0f} s" if hung else f"ends its process with {code}"
            case = left.pop(0)
            outcome.tried[case[0]] += 1
            found(outcome, case, [*faults, how, *last])
        return left


def dump(child: subprocess.Popen[str]) -> None:
    """Ends a process that hangs by the signal at which Python tells where its threads are."""
    child.send_signal(signal.SIGABRT)
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()


def found(outcome: Outcome, case: str, lines: list[str]) -> None:
    outcome.findings.append((case, lines))
    print(f"FOUND python -m tests.hostile --only {case}", *lines, sep="\n    ", flush=True)


def run(cases: list[str], outcome: Outcome | None = None) -> Outcome:
    """Tries cases (`p17`: a program, `s4`: a situation), the programs together and each situation in a process of its own."""
    outcome = outcome or Outcome()
    programs = [c for c in cases if c[0] == "p"]
    while programs:
        programs = attempt(programs, outcome)
    for case in cases:
        if case[0] == "s":
            attempt([case], outcome)
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="no further batch begins after that time")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="cases to repeat: p17 is a program, s4 a situation")
    parser.add_argument("--show", action="store_true", help="with --only: print the program, its machine and its arguments")
    parser.add_argument("--serve", nargs="+", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return serve(options.serve)
    without = f"malloc checks nothing: {CHECKS} is not here, or without effect on this Python"
    print("malloc checks what it is given" if has_checks() else without, flush=True)
    if options.only and options.show:
        for case in options.only:
            made = programs.program(int(case[1:]))
            print(made.text, *(f"// {v.name}: {how}" for v, how in made.arguments), f"// {judge.setting(made.seed)}", sep="\n")
    if options.only:
        outcome = run(options.only)
    else:
        outcome = Outcome()
        seed, begun = options.seed, time.monotonic()
        while time.monotonic() - begun < options.seconds:
            situations = range(seed // SITUATION_EVERY, (seed + BATCH) // SITUATION_EVERY)
            now = time.monotonic() - begun
            print(f"{now:6.0f} s: p{seed} to p{seed + BATCH - 1}, {len(outcome.findings)} findings", flush=True)
            run([*(f"p{k}" for k in range(seed, seed + BATCH)), *(f"s{k}" for k in situations)], outcome)
            seed += BATCH
    print(f"{outcome.tried['p']} programs, {outcome.tried['s']} situations, {len(outcome.findings)} findings:",
          *(case for case, _ in outcome.findings))  # fmt: skip
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
