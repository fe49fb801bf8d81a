"""Connections to databases: their drivers, addresses, passwords and errors."""
