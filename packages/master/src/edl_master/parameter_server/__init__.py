"""A parameter server: a process beside the master that holds a part of the parameters."""
