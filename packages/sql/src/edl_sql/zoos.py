"""The zoos that statements find their models in: this package brings one with it."""

from __future__ import annotations

from pathlib import Path

from edl.plugins.jobs import source_of
from edl.plugins.texts import did_you_mean
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.image_names import IMAGE_ZOO

OWN_ZOO = Path(__file__).parent / "zoo"
"""The models of tables. In the repository this is a link to ``model_zoo``."""
MODELS = (
    *("regressor.DNN", "regressor.wide_and_deep.MagicalWAD", "regressor.deepfm.DeepFM"),
    *("classifier.DNN", "classifier.wide_and_deep.WideAndDeep", "classifier.deepfm.DeepFM"),
    "anomaly.Autoencoder",
)
_FURTHER_ZOOS = ("model_zoo", IMAGE_ZOO)


def find_zoo(model_def: str, given: str) -> tuple[str, str, str]:
    """Return the zoo that has a model, the text of the model's file, and its name in that file.

    Args:
        given: the folder or URL of ``--model-zoo``; by default ``model_zoo`` here, or
            ``/model_zoo``. Models that it lacks are those of this package.

    Raises:
        EdlError: MODEL_NOT_FOUND or MODEL_IMPORT.
    """
    further = [given] if given else [zoo for zoo in _FURTHER_ZOOS if Path(zoo).is_dir()][:1]
    errors = []
    for zoo in (*further, str(OWN_ZOO)):
        try:
            return zoo, *source_of(Path(zoo), model_def)
        except EdlError as error:
            if error.code != ErrorCode.MODEL_NOT_FOUND:
                raise
            errors.append(error)
    found = errors[0]
    found.remedy = did_you_mean(model_def, MODELS) or found.remedy
    raise found
