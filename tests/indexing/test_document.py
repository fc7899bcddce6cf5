"""The documentation's page on index maps, which holds every example of XLA's document, is what the code prints."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "index-maps.md"


def test_the_page_is_what_the_code_prints() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted > 80
