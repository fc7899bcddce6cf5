"""What communication costs, for choosing between two of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Network"]


@dataclass(frozen=True)
class Network:
    """A collective takes `latency_seconds` for each step of its ring, and its bytes; a process does `work_per_second`."""

    latency_seconds: float = 2e-5
    bytes_per_second: float = 1e9
    work_per_second: float = 4e9

    def __str__(self) -> str:
        return f"{self.latency_seconds * 1e6:.3g} us for a step, {self.bytes_per_second / 1e9:.3g} GB/s"

    def seconds(self, sent_bytes: float, members: int) -> float:
        """What a collective of so many members takes in which each sends so many bytes.

        >>> Network(1e-5, 1e9).seconds(1e6, 4)
        0.00103
        """
        return self.latency_seconds * (members - 1) + sent_bytes / self.bytes_per_second
