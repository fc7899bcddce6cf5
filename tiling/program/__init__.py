"""The program in normal form: passes from a module to a module that the evaluator can still run."""
