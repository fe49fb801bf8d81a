"""The wire between edl's services: messages, stubs, errors, tensor codec, secured channels."""

__version__ = "0.1.0"
