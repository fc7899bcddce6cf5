"""What a schedule costs on a CPU: its work, the averages of its loops, the borders between threads, the seconds."""
