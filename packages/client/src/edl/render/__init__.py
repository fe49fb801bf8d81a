"""Texts for people at a terminal: results, errors and displays of jobs and builds.

rich is imported only when something redraws itself, and yaml only when it is written: a command
that does neither starts without them.
"""
