"""The subcommands of the command line: their options, their results as tables and as JSON."""
