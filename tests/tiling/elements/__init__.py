"""One element as an expression: the maps that it is built from, and which folds may be taken apart."""
