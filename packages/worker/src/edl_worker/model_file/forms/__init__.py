"""The forms in which a model file can give its model: one adapter each, and one place to choose."""
