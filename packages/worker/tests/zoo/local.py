"""An optimizer with slots and a schedule."""

import tensorflow as tf


def scheduled_adam():
    rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay([4, 9], [0.05, 0.02, 0.01])
    return tf.keras.optimizers.Adam(rate)
