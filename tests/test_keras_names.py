"""Names that the client knows without Keras are those that Keras has."""

from __future__ import annotations

import keras
import pytest

from edl_sql import keras_metrics


def test_metrics_that_the_client_knows_are_those_of_keras() -> None:
    found = set(keras.src.metrics.ALL_OBJECTS_DICT)
    assert found <= keras_metrics.NAMES, "statements would be refused"
    assert found >= keras_metrics.NAMES, "statements would fail in a job"


def test_a_name_that_the_client_refuses_is_none_of_keras() -> None:
    assert not keras_metrics.is_known("Acuracy")
    with pytest.raises(ValueError, match="Acuracy"):
        keras.metrics.get("Acuracy")
