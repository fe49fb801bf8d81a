"""The command line: a module for each group of commands, which parses, calls and prints.

The root command imports only the module of the called command.
"""
