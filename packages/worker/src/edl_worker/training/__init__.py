"""The model's weights: their layout, one training step, and this worker's copy of a version."""
