"""Lets tests share what is in ``conformance/`` and ``fakes/``."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A machine that is busy, or a loop that is compiled, makes an example slow, not wrong.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")

pytest.register_assert_rewrite("conformance.platform_suite", "conformance.checkpoint_suite")
pytest.register_assert_rewrite(
    "edl_testing.master_conformance", "edl_testing.parameter_server_conformance"
)
