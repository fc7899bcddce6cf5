"""Many processes: a shard of a value is a tile whose number is the process, and what a process does not hold is communication."""
