"""A command, a job platform and an experiment tracker for edl."""
