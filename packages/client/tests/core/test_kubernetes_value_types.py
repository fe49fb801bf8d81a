"""Values of options about pods."""

from __future__ import annotations

import pytest

from edl.core.options.kubernetes_value_types import variable


def test_variables_that_users_set_in_pods() -> None:
    assert variable("EDL_KAFKA_CONFIG=/kafka/it") == ("EDL_KAFKA_CONFIG", "/kafka/it")
    assert variable("EDL_LOG_FORMAT=text") == ("EDL_LOG_FORMAT", "text")
    with pytest.raises(ValueError, match="EDL_POD_NAME is set by edl"):
        variable("EDL_POD_NAME=other")
