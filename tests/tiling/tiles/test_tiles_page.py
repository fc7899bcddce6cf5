"""The page on tiles and proofs: its examples are run."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_examples_of_the_page() -> None:
    page = Path(__file__).parents[3] / "docs" / "tiles-and-proofs.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0
