"""Click-through and census models with embedding tables; scripts in tools/ generate the data."""
