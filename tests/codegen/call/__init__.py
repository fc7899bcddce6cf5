"""Calls of compiled programs: arguments, results, what stays between calls, what is refused."""
