"""Images in registries, their signatures, and signed statements about them."""
