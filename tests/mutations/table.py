"""The mutation table: for each field of each kind of step how many mutants are refuted, equal in their results, out of scope."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.mutations.judge import Judge
from tests.mutations.mutants import Mutant, mutants
from tests.mutations.programs import parents
from tiling import Proof, prove

OPERATIONS, SECONDS = 1_000_000, 20.0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `fault` is what it does otherwise (None: nothing), `proof` what the prover says."""

    parent: str
    mutant: Mutant
    fault: str | None
    verdict: str  # "equal", "refuted", "undecided", "out of scope" or "accepted"
    reason: str = ""  # of an undecided one


def chosen(every: Sequence[Mutant], most: int, rng: random.Random) -> list[Mutant]:
    """At most so many mutants of one field by one change."""
    by_key: dict[tuple[str, str, str], list[Mutant]] = {}
    for m in every:
        by_key.setdefault(m.key, []).append(m)
    return [m for group in by_key.values() for m in (group if len(group) <= most else rng.sample(group, most))]


def outcomes(names: Sequence[str] = (), most: int = 2, seed: int = 0, share: float = 1.0) -> Iterator[Outcome]:
    """What becomes of the mutants of some parents (all of them by default), a `share` of those chosen."""
    rng = random.Random(seed)
    for name, parent in parents().items():
        if names and name not in names:
            continue
        judge = Judge(parent)
        for m in chosen(list(mutants(parent)), most, rng):
            if share < 1.0 and rng.random() >= share:
                continue
            yield judged(name, judge, m)


def judged(name: str, judge: Judge, m: Mutant) -> Outcome:
    fault = judge.why_other(m.schedule)
    if fault is None:
        return Outcome(name, m, None, "equal")
    proof = prove(m.schedule, OPERATIONS, SECONDS)
    if proof.refuted:
        return Outcome(name, m, fault, "refuted")
    if proof.undecided:
        return Outcome(name, m, fault, "undecided", str(proof.undecided[0]))
    reason = out_of_scope(m, proof)
    return Outcome(name, m, fault, "accepted" if reason is None else "out of scope", reason or "")


ARITHMETIC = ("Apply", "Choose", "Condition", "Load", "Scalar")
EXPRESSIONS = (("Store", "node"), ("FoldStep", "nodes"), ("FoldStep", "inits"))


def out_of_scope(m: Mutant, proof: Proof) -> str | None:
    """The proof's own reason why it takes a statement's arithmetic for granted, where that is what was changed."""
    if m.step not in ARITHMETIC and (m.step, m.field) not in EXPRESSIONS:
        return None
    for o in proof.assumed:
        at = re.search(r"phase (\d+) step (\d+)", o.subject)
        if at is not None and m.path.startswith(f".phases[{at[1]}].steps[{at[2]}]"):
            return o.witness
    return None


def table(found: Sequence[Outcome]) -> str:
    """A row for each field of each kind of step."""
    counts: Counter[tuple[str, str, str]] = Counter((o.mutant.step, o.mutant.field, o.verdict) for o in found)
    verdicts = ("refuted", "undecided", "out of scope", "accepted", "equal")
    rows = [("step", "field", *verdicts)]
    for step, field in sorted({(o.mutant.step, o.mutant.field) for o in found}):
        rows.append((step, field, *(str(counts[step, field, v] or "") for v in verdicts)))
    totals = Counter(o.verdict for o in found)
    rows.append(("**all**", "", *(str(totals[v]) for v in verdicts)))
    lines = ["| " + " | ".join(r) + " |" for r in rows]
    return "\n".join([lines[0], "|---|---|---:|---:|---:|---:|---:|", *lines[1:]])
