"""Integrated gradients: what each column adds to a prediction (Sundararajan et al., 2017).

A model that is built from these predicts contributions in place of labels if its features have
``MARK``, which ``sqlflow.explain_input`` adds: ``edl predict --input-fn sqlflow.explain_input``.
"""

import tensorflow as tf

MARK = "edl_explain"
_STEPS = 32


def predict_or_explain(inputs, parts, shares, head):
    """Return what a model makes of the parts of its input, or how much each column adds to that.

    Args:
        inputs: the features; those with ``MARK`` are explained.
        parts: a tensor (n, inputs) for each term.
        shares: returns how much of each term is due to each column: (terms, columns).
        head: a function of the parts: (n, outputs). Of several outputs, the greatest is explained.

    Returns:
        (n, outputs), or (n, columns): the contributions of a row add up to the difference between
        its output and that of an average row, all of whose inputs are zero.
    """
    if MARK not in inputs:
        return head(parts)
    outputs = head(parts)
    chosen = tf.one_hot(tf.argmax(outputs, axis=1), outputs.shape[1])
    slopes = [tf.zeros_like(part) for part in parts]
    for step in range(_STEPS):
        scaled = [(step + 0.5) / _STEPS * part for part in parts]
        with tf.GradientTape() as tape:
            tape.watch(scaled)
            value = tf.reduce_sum(chosen * head(scaled))
        found = tape.gradient(value, scaled, unconnected_gradients="zero")
        slopes = [slope + each / _STEPS for slope, each in zip(slopes, found, strict=True)]
    of_terms = [
        tf.reduce_sum(part * slope, axis=1) for part, slope in zip(parts, slopes, strict=True)
    ]
    return tf.stack(of_terms, axis=1) @ tf.constant(shares(), tf.float32)
