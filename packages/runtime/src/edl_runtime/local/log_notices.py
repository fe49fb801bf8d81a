"""Notices in logs that say nothing about an error."""

from __future__ import annotations

import re

# What TensorFlow and its libraries print at every start.
_NOTICE = re.compile(
    r"oneDNN|cpu_feature_guard|To enable the following instructions|TF_ENABLE_ONEDNN_OPTS"
    r"|computation_placer|Unable to register cu|cuda_\w+\.cc|TF-TRT Warning|port\.cc:\d+"
    r"|All log messages before absl::InitializeLog|MLIR V1 optimization pass|rebuild TensorFlow"
    r"|Skipping registering GPU devices|Cannot dlopen some GPU libraries"
)


def without_notices(lines: list[str]) -> list[str]:
    """Return the lines without the notices that TensorFlow prints at every start."""
    return [line for line in lines if not _NOTICE.search(line)]
