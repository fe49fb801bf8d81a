"""Model zoos and trained models: their sources, their files, and the parameters of models."""
