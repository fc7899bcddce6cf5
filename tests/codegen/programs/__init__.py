"""Random programs and loops of every kind against the evaluator."""
