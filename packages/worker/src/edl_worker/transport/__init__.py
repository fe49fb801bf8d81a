"""Adapters to the services of the master and of the parameter servers."""
