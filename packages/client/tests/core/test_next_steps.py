"""What a person can do with a job that is over, of which the remedy of its failure tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.core.job_status import Failure, JobState, JobStatus, next_steps
from edl.core.options import Verb


@pytest.mark.parametrize(
    ("failure", "way"),
    [
        (Failure("UNKNOWN_PARAMETER", "nothing takes lr", "--params, lr"), "edl delete"),
        (Failure("USAGE", "not a literal", "--params"), "edl delete"),
        (Failure("MODEL_NOT_FOUND", "nets has several models: A, B", "nets.py"), "edl delete"),
        (Failure("USAGE", "one value", "--postprocess softmax, output y; a"), "edl delete"),
        (Failure("USAGE", "no pyarrow", "import pyarrow"), "edl resume"),
        (Failure("USER_CODE", "boom", "model.py:3"), "edl resume"),
    ],
)
def test_a_job_whose_options_are_wrong_is_not_to_be_resumed(failure: Failure, way: str) -> None:
    status = JobStatus("j", Verb.TRAIN, JobState.FAILED, failure=failure)
    assert next_steps(status).count("edl ") == 1
    assert way in next_steps(status)
    on_a_trained_model = replace(status, verb=Verb.EVALUATE, saved_version=0)
    code_fails = way == "edl delete" or failure.code == "USER_CODE"
    assert ("edl delete" in next_steps(on_a_trained_model)) == code_fails


FROM_VERSION = (
    "edl resume j continues it from parameter version 7; edl export j writes the model of that "
    "version."
)
MENDED = f"With a corrected model file: {FROM_VERSION.replace('j c', 'j --code new c')}"
NEW_DATA = "Corrected data needs a new job: --init-from takes that model."
WITH_NEW_CODE = "With a corrected model file: edl resume j --code new."


@pytest.mark.parametrize(
    ("code", "version", "takes_code", "steps"),
    [
        ("MODEL_CONTRACT", None, True, WITH_NEW_CODE),
        ("MODEL_IMPORT", 0, False, "A job keeps its image: edl delete j, and submit again."),
        ("USER_CODE", None, False, "edl resume j starts it again."),
        ("SHAPE_MISMATCH", None, True, f"With corrected data: edl resume j. {WITH_NEW_CODE}"),
        ("USER_CODE", 7, True, MENDED),
        ("MODEL_CONTRACT", 7, True, MENDED),
        ("USER_CODE", 7, False, FROM_VERSION),
        ("DISK_FULL", None, True, "edl resume j starts it again."),
        ("DISK_FULL", 7, True, FROM_VERSION),
        ("DATA_DAMAGED", 7, True, f"{FROM_VERSION} {NEW_DATA}"),
        ("SHAPE_MISMATCH", 7, True, f"{FROM_VERSION} {NEW_DATA} {WITH_NEW_CODE}"),
    ],
)
def test_resume_is_recommended_only_where_it_helps(
    code: str, version: int | None, takes_code: bool, steps: str
) -> None:
    status = JobStatus("j", Verb.TRAIN, JobState.FAILED, failure=Failure(code, "no"), code="ab12")
    status = replace(status, saved_version=version)
    assert next_steps(status, takes_code=takes_code) == steps
