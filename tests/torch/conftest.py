"""What tests of torch begin with: its module, seeded, with nothing compiled."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.torch.packages import packages


@pytest.fixture
def torch() -> Any:
    t = packages().torch
    t.manual_seed(0)
    t._dynamo.reset()
    return t
