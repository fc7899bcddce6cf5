"""Ops that change a part of a value: where they are written, and where what they change is known when the program is planned."""
