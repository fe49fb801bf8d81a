"""The outside world: processes, files, masters on the network."""
