"""Layers are checked as a whole: what they are called."""

from __future__ import annotations

import pytest
from contract_cases import GOOD, errors, write
from zoo_folder import ZooFolder

from edl_proto.errors import ErrorCode


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("Dense(10)", "Dense(10, name='d\\nx')", "d\\nx"),
        ("Dense(10)]", "Dense(10)], name='a\\tb'", "a\\tb"),
        (
            "\nmodel",
            "\nf = tf.keras.layers.StringLookup(vocabulary=['a'], name='d\\n')\nmodel",
            "d\\n",
        ),
    ],
)
def test_a_layer_whose_name_has_control_characters(
    zoo: ZooFolder, old: str, new: str, shown: str
) -> None:
    write(zoo, model=GOOD["model"].replace(old, new))
    (error,) = errors(zoo)
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert f"{shown} has control characters" in error.what
    assert "mine.py:" in error.where
