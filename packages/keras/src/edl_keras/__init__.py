"""Models, arrays and tables of a Python process become jobs: ``elasticdl.fit`` and ``job``.

What reads a user's source, data and Keras objects belongs here; the job itself is the client's.
"""
