"""Jobs: running and finding them, and what is known of model files and trained models."""

from __future__ import annotations

from edl import api
from edl.adapters import model_zoo, trained_models
from edl.adapters.model_zoo import parameters_of, source_of
from edl.app import job_catalog, job_submitter, open_in_browser
from edl.core.model_file import (
    candidates,
    definitions,
    learns_label,
    learns_whole_epochs,
    takes_parameter,
)
from edl.render.line_display import SilentDisplay
from edl.render.notebook_display import NotebookDisplay, command_name, in_notebook, panel
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_submission import JobSubmitter
from edl.use_cases.job_watcher import JobDisplay, JobWatcher, change

__all__ = [
    "JobCatalog",
    "JobDisplay",
    "JobSubmitter",
    "JobWatcher",
    "NotebookDisplay",
    "SilentDisplay",
    "api",
    "candidates",
    "change",
    "command_name",
    "definitions",
    "in_notebook",
    "job_catalog",
    "job_submitter",
    "learns_label",
    "learns_whole_epochs",
    "model_zoo",
    "open_in_browser",
    "panel",
    "parameters_of",
    "source_of",
    "takes_parameter",
    "trained_models",
]
