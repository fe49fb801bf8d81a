"""The weights of a Keras model as flat buffers, and the traced steps that change them."""
