"""The explorer: a program's maps, tiles, plan and loops as one page to click in, without a network and without a kernel."""
