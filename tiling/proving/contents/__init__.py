"""What a schedule computes, against what the program's ops do: statements, what they read, folds, expressions."""
