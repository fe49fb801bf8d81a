"""Doubles of the processes of a job, for tests, and the rules that doubles and services share.

- ``scripted_master``: the services Tasks and Parameters of one job, for tests of workers.
- ``scripted_job``: a process with the service Job and a job's directory, for tests of the client.
- ``acting_worker``: a worker without TensorFlow, for tests of masters.
- ``conformance``: the suite that the scripted master and the real one pass.
"""
