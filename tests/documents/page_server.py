"""Runs the code of documents, each in a process of its own.

`python -m tests.documents.page_server` takes a request in each line of its input, `{"path": …, "environment": {…}}` as JSON, and
answers `{"code": …, "output": …}`. Each page runs in a fork of a process that has imported what all of them import, and nothing
else: what a page registers or changes ends with it.
"""

from __future__ import annotations

import doctest
import json
import os
import sys
import tempfile
import traceback

import codegen.native.lower
import interp
import tilewright

COMMON = (codegen.native.lower, interp, tilewright)  # their imports take longer than most pages
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_page(path: str, environment: dict[str, str]) -> int:
    """1 where an example of the page fails; what it found is printed."""
    os.environ.clear()
    os.environ.update(environment)
    failed, tried = doctest.testfile(path, module_relative=False, optionflags=FLAGS, encoding="utf-8")
    if not tried:
        print(f"{path} has no examples")
    return int(failed > 0 or not tried)


def answer(path: str, environment: dict[str, str]) -> dict[str, object]:
    """The exit code and the output of a process that runs the page."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                code = run_page(path, environment)
            except BaseException:  # noqa: BLE001 (whatever it is, the test shows it)
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "output": output.read().decode(errors="replace")}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(request["path"], request["environment"])), flush=True)


if __name__ == "__main__":
    main()
