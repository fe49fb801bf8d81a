"""The decisions of a worker and its ports: pure, without gRPC, TensorFlow, threads or clocks."""
