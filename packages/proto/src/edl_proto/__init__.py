"""What the pieces of edl share: messages, stubs, errors, raw parameter streams, tensor codec."""

__version__ = "0.1.0"
