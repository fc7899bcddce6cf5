"""One rule for each op, by family. Importing this package fills the table."""

from interp.registry import Rule, rule, rule_for, rule_names
from interp.rules import contraction, control, elementwise, movement, reduction

__all__ = ["Rule", "contraction", "control", "elementwise", "movement", "reduction", "rule", "rule_for", "rule_names"]
