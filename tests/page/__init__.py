"""The job's page in a real browser."""
