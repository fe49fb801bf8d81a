"""What packages that extend edl may import from it; ``docs/extending.md`` shows how.

Every other module of ``edl`` may change at any time. These modules only pass names on; what a
name does is decided and documented where it is defined.
"""
