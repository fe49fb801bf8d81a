"""The objects of a job on Kubernetes: pure functions of a submission, without any call."""
