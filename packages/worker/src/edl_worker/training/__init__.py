"""Training without a framework: the steps behind a push, and the copy of a parameter version."""
