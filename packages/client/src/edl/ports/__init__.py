"""The ports of use cases and commands to the outside world, in types of the core.

Adapters implement these ports: some are classes, others are modules whose functions are the port's
methods. ``edl.app`` says which adapter a command gets. Nothing here reads, writes or connects.
"""
