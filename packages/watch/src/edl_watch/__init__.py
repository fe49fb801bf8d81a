"""Watching jobs: the page of all jobs, with a Prometheus of one's own, and traces.

What shows jobs to people in another form belongs here. What the client knows of a job, and the page
of a single job, do not: the latter is the master's.
"""
