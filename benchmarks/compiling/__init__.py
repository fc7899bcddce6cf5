"""What maps, planning, proofs and compiling cost, and how good the planner's predictions are."""
