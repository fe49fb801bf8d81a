"""What model files written for ElasticDL use: its modules, its layers, and the Keras of its time.

Nothing here is imported before a model file asks for it. ``old_modules`` is the finder that serves
the modules; everything else in the worker works with the strict description of a model file.
"""
