"""Pure functions of a submission, without any call: the objects of a job on Kubernetes."""
