"""Limits that senders respect and receivers enforce."""

MAX_ZOO_NBYTES = 1 << 30
MAX_ZOO_FILES = 20_000
"""Limits on a model zoo that is built into an image; a builder may have settings of its own."""

MAX_CALLBACK_STATE_NBYTES = 1 << 20
"""Limit on the bytes of state of a model file's callbacks; a Keras callback has some hundreds."""
