"""What was shown of a schedule: obligations with their verdicts, and how they are told."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import Any

from indexing.show.display import html_table

__all__ = ["Obligation", "Proof", "Verdict"]

ASSUMPTIONS = (
    "access functions, index maps and the intervals of scalar functions are the ops' own",
    "micro-kernels, turns and routines do what their steps declare; sums may be associated in any order",
)
"""What every proof takes for granted."""


class Verdict(enum.Enum):
    PROVED = "proved"
    REFUTED = "refuted"
    ASSUMED = "assumed"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Obligation:
    """One thing to show. `witness` is a counterexample for what is refuted, the reason for what is undecided."""

    name: str
    subject: str
    verdict: Verdict
    witness: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.subject}: {self.verdict.value}" + (f": {self.witness}" if self.witness else "")


@dataclass(frozen=True)
class Proof:
    """Obligations with their verdicts."""

    obligations: tuple[Obligation, ...]
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """True when every obligation is proved, or is one of those that are `assumed`."""
        return all(o.verdict in (Verdict.PROVED, Verdict.ASSUMED) for o in self.obligations)

    @property
    def refuted(self) -> tuple[Obligation, ...]:
        return tuple(o for o in self.obligations if o.verdict is Verdict.REFUTED)

    @property
    def assumed(self) -> tuple[Obligation, ...]:
        """What is taken for granted, each with the reason."""
        return tuple(o for o in self.obligations if o.verdict is Verdict.ASSUMED)

    @property
    def undecided(self) -> tuple[Obligation, ...]:
        return tuple(o for o in self.obligations if o.verdict is Verdict.UNDECIDED)

    def table(self) -> list[dict[str, Any]]:
        """For each kind of obligation how many are proved, refuted and undecided."""
        counts: Counter[tuple[str, Verdict]] = Counter((o.name, o.verdict) for o in self.obligations)
        names = dict.fromkeys(o.name for o in self.obligations)
        return [{"obligation": n, **{v.value: counts[n, v] for v in Verdict}} for n in names]

    def __str__(self) -> str:
        rows = [("obligation", *(v.value for v in Verdict))]
        rows += [(r["obligation"], *(str(r[v.value]) for v in Verdict)) for r in self.table()]
        widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
        lines = ["  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]) for r in rows]
        assumed = [f"assumed: {reason}" for reason in self._assumptions]
        return "\n".join([*lines, *(str(o) for o in (*self.refuted, *self.undecided)), *assumed])

    def __repr__(self) -> str:
        counts = Counter(o.verdict for o in self.obligations)
        return f"<Proof: {', '.join(f'{counts[v]} {v.value}' for v in Verdict if counts[v]) or 'nothing to show'}>"

    def _repr_html_(self) -> str:
        """A row for each kind of obligation, then what is not shown, with its witness, and what is taken for granted."""
        counts = [(r["obligation"], *(str(r[v.value]) for v in Verdict)) for r in self.table()]
        open_ = [(o.name, o.subject, o.verdict.value, o.witness) for o in (*self.refuted, *self.undecided)]
        taken = [(reason,) for reason in self._assumptions]
        tables = html_table(counts, ("obligation", *(v.value for v in Verdict)), repr(self)[1:-1])
        tables += html_table(open_, ("obligation", "of what", "verdict", "witness or reason")) if open_ else ""
        return tables + html_table(taken, ("taken for granted",))

    @property
    def _assumptions(self) -> list[str]:
        return list(dict.fromkeys((*ASSUMPTIONS, *(o.witness for o in self.assumed))))
