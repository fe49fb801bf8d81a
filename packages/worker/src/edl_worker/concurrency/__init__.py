"""State that the threads of a worker share, and the one call that runs in the background."""
