"""What a call does as a program: a tree of its steps, their memories, the launcher's instructions."""
