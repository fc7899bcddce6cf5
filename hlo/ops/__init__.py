"""The definitions of all ops. Importing this package fills the registry."""

from hlo.ops import contraction, elementwise, movement, structure

__all__ = ["contraction", "elementwise", "movement", "structure"]
