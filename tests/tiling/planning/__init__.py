"""The planner: stages, fusions, machines, costs, and the reasons for each decision."""
