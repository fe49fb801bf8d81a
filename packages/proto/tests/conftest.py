"""Settings of all tests here."""

from __future__ import annotations

from hypothesis import settings

# A machine that is busy makes an example slow, not wrong.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")
