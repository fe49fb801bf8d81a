"""Minibatches of records, by ``tf.data`` or by an input function that a thread calls ahead."""
