"""Model zoos and trained models: where they come from, what belongs to them, their parameters."""
