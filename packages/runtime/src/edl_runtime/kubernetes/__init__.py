"""What client and master share about Kubernetes: names of objects, and calls of the API server."""
