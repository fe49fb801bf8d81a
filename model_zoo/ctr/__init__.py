"""Click-through and census models with embedding tables; the data is made by tools/."""
