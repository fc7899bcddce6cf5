"""The program model: types, ops, modules, text in and out, verifier.

Nothing in here knows how a program is analysed or run.
"""

from hlo import ops as _ops  # fills the registry
from hlo.builder import Builder
from hlo.decompositions import decompose
from hlo.errors import Declined, DefinitionError, Location, ParseError, SettingError, TilewrightError, VerificationError
from hlo.module import Block, DenseArray, Function, Module, Op, Value, uses, walk
from hlo.text import load, parse
from hlo.text import printer as _printer  # prints modules
from hlo.text.xla.printer import to_hlo_text
from hlo.types import ELEMENT_TYPES, ElementType, TensorType, element_type
from hlo.verify import verify

__all__ = [
    "ELEMENT_TYPES",
    "Block",
    "Builder",
    "Declined",
    "DefinitionError",
    "DenseArray",
    "ElementType",
    "Function",
    "Location",
    "Module",
    "Op",
    "ParseError",
    "SettingError",
    "TensorType",
    "TilewrightError",
    "Value",
    "VerificationError",
    "decompose",
    "element_type",
    "load",
    "parse",
    "to_hlo_text",
    "uses",
    "verify",
    "walk",
]
del _ops, _printer
