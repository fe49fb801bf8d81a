"""Adapts the definitions of a model file to the engine: one module per definition."""
