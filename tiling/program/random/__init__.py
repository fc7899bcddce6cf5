"""Random bits as arithmetic: generators' states and counters, and Threefry's rounds as one function of an element."""
