"""What the benchmarks compare with, each a process of its own."""
