"""Limits that the sender keeps and the receiver enforces."""

MOST_CALLBACK_STATE = 1 << 20
"""Bytes of state of a model file's callbacks; a Keras callback has some hundreds."""
