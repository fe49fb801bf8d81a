"""What model files of ElasticDL, TensorFlow 1 and Keras 2 use, and the worker does not have.

The worker finds ``shelf.Shelf`` by the entry point group ``edl.compatibility``, and imports the
rest when a model file asks for it. Here belong names that were removed, layouts of former versions
and modules of other products; what edl itself promises belongs into the worker.
"""
