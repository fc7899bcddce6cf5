"""From kernel source to machine code: lowering, the cache of object code, compile helpers."""
