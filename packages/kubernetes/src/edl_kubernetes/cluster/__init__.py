"""The code that both halves use: names of a job's objects, and calls to the API server."""
