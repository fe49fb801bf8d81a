"""Doubles of the processes of a job, for tests, and the rules that doubles and services share.

- ``fake_master``: the services Tasks and Parameters of one job, for tests of workers.
- ``fake_parameter_servers``: Coordinator and Shard, for tests of workers.
- ``fake_job``: a process with the service Job and a job's directory, for tests of the client.
- ``fake_worker``: a worker without TensorFlow, for tests of masters.
- ``fork_server``: workers that begin with TensorFlow imported, for tests of whole jobs.
- ``scrape``: the metrics of a job that runs.
- ``master_conformance``, ``parameter_server_conformance``: the suites that fakes and real services
  pass.
"""
