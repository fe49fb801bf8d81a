"""The engine of TensorFlow passes the suite of engines."""

from __future__ import annotations

from engine_suite import EngineSuite

from edl_worker.engines.tensorflow.framework import TensorFlow


class TestTensorFlow(EngineSuite):
    framework = TensorFlow()
