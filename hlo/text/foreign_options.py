"""The options of a typed foreign call, wherever the text that it was read from has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo.module import Op, Source
from hlo.text.lexer import Lexer
from hlo.text.values import ValueParser

__all__ = ["options_of"]


def options_of(op: Op) -> Mapping[str, Any]:
    """The dictionary of a custom call of XLA's typed foreign functions; empty where there is none.

    StableHLO has it as `backend_config` or, as JAX writes it, `mhlo.backend_config`; HLO's text as a string that holds it.
    """
    found = op.extra.get("mhlo.backend_config", op.attr("backend_config"))
    if isinstance(found, str) and found.startswith("{"):
        found = ValueParser(Lexer(Source(found, "<backend_config>"))).attribute()
    return found if isinstance(found, Mapping) else {}
