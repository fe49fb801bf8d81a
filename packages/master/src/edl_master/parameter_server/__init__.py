"""A parameter server: a process next to the master that holds a part of the parameters."""
