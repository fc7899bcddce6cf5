"""What maps are asked for by their methods: functions of files that import `indexing.map`, for which it cannot ask itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexing.exact.images import image, preimage
from indexing.exact.inverse import invert
from indexing.exact.relation import same_relation
from indexing.map import IndexingMap
from indexing.map_simplifier import simplify_map
from indexing.notation import format_document
from indexing.transform import ranges_to_dims, rescale_ranges, restrict, select_results

if TYPE_CHECKING:
    import islpy

__all__ = [
    "format_document",
    "image",
    "invert",
    "preimage",
    "ranges_to_dims",
    "rescale_ranges",
    "restrict",
    "same_relation",
    "select_results",
    "simplify_map",
    "to_isl",
]


def to_isl(m: IndexingMap) -> islpy.Map:
    """`indexing.exact.isl.to_isl`; islpy is loaded when it is first asked."""
    from indexing.exact import isl

    return isl.to_isl(m)
