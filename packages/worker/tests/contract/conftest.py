from __future__ import annotations

from pathlib import Path

import pytest
from zoo_folder import ZooFolder


@pytest.fixture
def zoo(tmp_path: Path) -> ZooFolder:
    return ZooFolder(tmp_path)
