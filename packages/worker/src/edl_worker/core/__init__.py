"""What a worker decides: pure, without gRPC, TensorFlow, threads or clocks."""
