"""Everything that touches files, object stores, processes or HTTP.

Adapters implement what the core and the recovery ask for. They decide nothing about tasks or
workers, and no module of the core imports them.
"""
