"""Engines compute on models: one package for each framework. Nothing else imports a framework.

Everything outside works with the port ``core.step_engine``; ``app`` chooses the engine.
"""
