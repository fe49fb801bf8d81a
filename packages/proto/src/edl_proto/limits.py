"""Limits that the sender keeps and the receiver enforces."""

MOST_ZOO_NBYTES = 1 << 30
MOST_ZOO_FILES = 20_000
"""Of a model zoo that becomes a part of an image; a builder may have settings of its own."""

MOST_CALLBACK_STATE = 1 << 20
"""Bytes of state of a model file's callbacks; a Keras callback has some hundreds."""
