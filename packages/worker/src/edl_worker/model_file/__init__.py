"""The contract of model files, without a framework.

It says what a model file may define, how definitions are found and called, and what is refused
with which message. What a framework makes of the definitions belongs to its engine.
"""
