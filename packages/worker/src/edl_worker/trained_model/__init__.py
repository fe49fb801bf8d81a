"""A trained model's directory: what is in it, and how its values are read and written."""
