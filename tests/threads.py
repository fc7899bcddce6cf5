"""Several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def in_threads(work: Callable[[int], None], count: int) -> None:
    """work(0), …, work(count - 1), each in a thread of its own; raises what one of them raises."""
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(work, range(count)):
            pass
