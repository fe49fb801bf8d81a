"""Addresses of topics in messages."""

from __future__ import annotations

import pytest

from edl.adapters.data_files import expand
from edl_proto.errors import EdlError


def test_a_password_in_the_address_of_a_topic_is_not_repeated() -> None:
    with pytest.raises(EdlError, match=r"sasl\.password") as error:
        expand("kafka://ada:hush@broker:1/t", "--data")
    assert error.value.where == "kafka://broker:1/t"
    assert "hush" not in str(error.value)
