"""Maps from access functions: of ops, of edges, of ops that read by values, run blocks or exchange between processes."""
