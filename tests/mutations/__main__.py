"""python -m tests.mutations [--table] [--most N] [PARENT ...]: mutants before the prover; those that it accepts are listed."""

from __future__ import annotations

import argparse

from tests.mutations.table import outcomes, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("parents", nargs="*", help="names of programs, all by default")
    parser.add_argument("--table", action="store_true", help="print a row for each field of each kind of step")
    parser.add_argument("--most", type=int, default=2, help="mutants of one field of one program by one change")
    parser.add_argument("--share", type=float, default=1.0, help="how many of them, from 0 to 1")
    args = parser.parse_args()
    found = []
    for o in outcomes(args.parents, args.most, share=args.share):
        found.append(o)
        if o.verdict in ("accepted", "out of scope", "undecided"):
            print(f"{o.verdict}: {o.parent}: {o.mutant.step}.{o.mutant.field} {o.mutant}: {o.fault} {o.reason}"[:330], flush=True)
    if args.table:
        print(table(found))


if __name__ == "__main__":
    main()
