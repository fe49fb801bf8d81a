"""The experiment tracker MLflow, for ``--tracker mlflow`` and ``edl track``."""
