"""The loops: buffers, nests, stores, folds, what they read and write, and their text."""
