"""What communication costs, for choosing between two of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Network"]


@dataclass(frozen=True)
class Network:
    """A collective takes `latency_seconds` for each step of its ring, and its bytes; a process does `work_per_second`.

    Of a collective that runs beside kernels the share `hidden` costs nothing: none, where nobody has measured it.
    """

    latency_seconds: float = 2e-5
    bytes_per_second: float = 1e9
    work_per_second: float = 4e9
    hidden: float = 0.0

    def __str__(self) -> str:
        beside = f", {self.hidden:.0%} of it beside kernels" if self.hidden else ""
        return f"{self.latency_seconds * 1e6:.3g} us for a step, {self.bytes_per_second / 1e9:.3g} GB/s{beside}"

    def seconds(self, sent_bytes: float, members: int) -> float:
        """What a collective of so many members takes in which each sends so many bytes.

        >>> Network(1e-5, 1e9).seconds(1e6, 4)
        0.00103
        """
        return self.latency_seconds * (members - 1) + sent_bytes / self.bytes_per_second
