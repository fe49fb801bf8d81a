"""Adapters: each turns one definition of a model file into a value of the strict description."""
