"""Messages of ``edl.v1`` to and from the worker's own types; only these modules know them."""
