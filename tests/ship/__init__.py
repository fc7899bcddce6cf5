"""Compiled programs as files and as C libraries."""
