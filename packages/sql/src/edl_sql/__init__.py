"""SQL for edl: statements that train models with rows, and what reads and writes databases."""
