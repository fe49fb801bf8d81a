"""The commands ``edl sql`` and ``edl data load``: parse, call, print."""
