"""The engine of TensorFlow and Keras: everything of the worker that imports them."""
