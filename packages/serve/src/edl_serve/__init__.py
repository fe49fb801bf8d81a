"""Predictions of a trained model over HTTP, from records as they were before training.

What answers single requests belongs here: ``edl serve``. Predictions of whole data sets do not:
they are jobs. The model is computed by the worker's engine, as in these jobs.
"""
