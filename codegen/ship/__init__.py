"""Compiled programs as files and as C libraries: object code, the call's tables, the linker, the container."""
