"""The weights of a model: layout, what pushes are computed by, and a copy of a version."""
