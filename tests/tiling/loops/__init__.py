"""The loops as data: boxes, cut domains, names."""
