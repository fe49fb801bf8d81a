"""The actions of users on jobs and images: submit, watch, track, build.

Each gets its ports as arguments. What prints is in ``render``, what reads options in ``cli``.
"""
