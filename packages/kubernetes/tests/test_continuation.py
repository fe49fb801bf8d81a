"""What a job on Kubernetes can be continued with."""

from __future__ import annotations

from typing import Any, cast

import pytest

from edl_kubernetes.continuation import ClusterContinuation
from edl_proto.errors import EdlError, ErrorCode


def test_more_epochs_are_refused_before_the_cluster_is_asked() -> None:
    nothing = cast(Any, None)
    with pytest.raises(EdlError) as caught:
        ClusterContinuation(nothing, nothing).resume("mine", num_epochs=20)
    error = caught.value
    assert error.code == ErrorCode.USAGE
    assert error.what == "on Kubernetes, a job keeps its number of epochs"
    assert error.where == "--num-epochs"
    assert "--init-from" in error.remedy
