"""SQL for edl: statements that train models with rows, and the databases behind them.

What reads rows into records or writes predictions into tables belongs here; formats of files
belong to ``edl_convert``.
"""
