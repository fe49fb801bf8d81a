"""From what a model file defines to what the engine computes with, one adapter per definition."""
