"""Programs that run in images while they are built, with the image's own Python alone."""
