"""Errors of the index analysis."""

from __future__ import annotations

from hlo import TilewrightError

__all__ = ["BudgetSpent", "ProofError"]


class BudgetSpent(TilewrightError):
    """A question about sets took isl more than its budget; the message says how much that is."""


class ProofError(AssertionError):
    """A rewrite changed a relation: a bug of the rewrite, with both maps in the message."""
