"""Lets tests share what is in ``conformance/`` and ``acting/``."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("conformance.platform_suite", "conformance.checkpoint_suite")
