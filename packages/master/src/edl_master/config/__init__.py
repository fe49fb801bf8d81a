"""The settings that a master starts with, read from its job and its environment.

What the settings mean is decided where they are used.
"""
