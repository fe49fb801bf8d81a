"""What the processes tell those who watch them: logs, metrics, health and spans."""
