"""Jobs in containers of this machine (``--platform docker``); see docs/adr/0030-one-container.md.

What calls a container engine for a job belongs here. How a local job is recorded, supervised and
continued does not: the client does that for processes and containers alike. Images are built by
``edl_builder``.
"""
