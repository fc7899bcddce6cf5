"""The planner: stages, fusions, tile sizes, costs, and the reasons for each decision."""
