"""What ends a program on many processes."""

from __future__ import annotations

from hlo.errors import TilewrightError

__all__ = ["MeshError", "PeerError"]


class MeshError(TilewrightError):
    """Processes that do not agree, that wait for one which will not come, or a grid that does not fit the program."""


class PeerError(MeshError):
    """Another process has failed: `rank` is its number. Its own error is raised there."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank
