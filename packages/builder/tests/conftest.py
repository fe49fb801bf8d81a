"""Makes the folder importable: ``fakes``, ``zoos``, ``conformance``."""
