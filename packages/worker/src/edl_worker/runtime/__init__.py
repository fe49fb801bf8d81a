"""The life of a worker process: register, load, work, leave; and its heartbeats."""
