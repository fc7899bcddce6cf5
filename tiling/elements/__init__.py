"""One element as an expression: how it is built from the program, its rules, ranges and monoids."""
