"""A model zoo that a test writes."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edl_worker.core.job import ModelReference

if TYPE_CHECKING:
    from edl_worker.engines.tensorflow.model import ModelFile

DESIGN_DOCUMENTS = Path(__file__).parent / "model_file" / "design_documents"
IMPORTS = """\
import tensorflow as tf
import numpy as np
from elasticdl import ElasticDLSpec
from elasticdl.python.common.constants import Mode
"""


HELPERS = frozenset(
    {
        "cifar10/data.py",
        "column_functions.py",
        "columns.py",
        "explanations.py",
        "table_training.py",
        "table_networks.py",
        "table_schema.py",
        "tree_choice.py",
        "tree_ensemble.py",
        "tree_growth.py",
        "tree_inputs.py",
    }
    | {f"ctr/{name}.py" for name in ("__init__", "inputs", "models")}
)
"""The files of the repository's zoo that define no model."""


class ZooFolder:
    """A model zoo that a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, source: str, *, imports: bool = True) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((IMPORTS if imports else "") + textwrap.dedent(source))
        return target

    def write_document_blocks(self, path: str, document: str, *names: str) -> Path:
        """Write a file from code blocks of a design document, with imports in front."""
        blocks = [(DESIGN_DOCUMENTS / document / f"{name}.txt").read_text() for name in names]
        target = self.root / path
        target.write_text(IMPORTS + "\n".join(blocks))
        return target

    def reference(self, model_def: str, **options: Any) -> ModelReference:
        return ModelReference(str(self.root), model_def, **options)

    def load(self, model_def: str, **options: Any) -> ModelFile:
        # Not imported above: many tests need no TensorFlow, which takes seconds to import.
        from edl_worker.engines.tensorflow.model import load_model_file

        names = ("context", "purpose", "seed", "saved", "replicated")
        keep = {k: options.pop(k) for k in names if k in options}
        return load_model_file(self.reference(model_def, **options), **keep)

    def line(self, path: str, text: str) -> int:
        """Number of the first line that contains ``text``."""
        lines = (self.root / path).read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)
