"""The experiment tracker MLflow, for ``--tracker mlflow`` and ``edl track``.

What calls MLflow belongs here; what is sent to a tracker, and when, is decided by ``edl``.
"""
