"""Images in registries, and what is signed about them."""
