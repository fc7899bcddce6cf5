"""The table of what does which behavior names what there is, and each definition once."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.project.behaviors import BEHAVIORS, Behavior, definitions
from tests.project.counts import ROOT


@pytest.mark.parametrize("b", BEHAVIORS, ids=lambda b: b.name.replace(" ", "_"))
def test_places_are_there(b: Behavior) -> None:
    assert sum(n for _, n in definitions(ROOT, b.now)) > 0
    assert not b.new or sum(n for _, n in definitions(ROOT, b.new)) > 0


def test_no_definition_is_counted_twice() -> None:
    found = Counter(name for b in BEHAVIORS for name, _ in definitions(ROOT, (*b.now, *b.new)))
    assert not [name for name, times in found.items() if times > 1]


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        list(definitions(ROOT, ("tiling/loops/monoid.py: Group",)))
