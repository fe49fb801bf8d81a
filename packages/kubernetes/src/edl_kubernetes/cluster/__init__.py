"""What both halves use: the names of a job's objects, and calls to the API server."""
