"""The project itself: imports, the test command, its tables of cases, the benchmarks."""
