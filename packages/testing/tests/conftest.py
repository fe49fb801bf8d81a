"""Lets failures of the suites say what was compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "edl_testing.master_conformance", "edl_testing.parameter_server_conformance"
)
