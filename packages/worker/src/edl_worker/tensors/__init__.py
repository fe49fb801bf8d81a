"""TensorFlow functions that know nothing of jobs: tracing and quantization."""
