"""The adapters of the ports: edl's jobs, Optuna's storage, and the folder of a study."""
