"""A form of the model in which attempts at an export have ended is left out by later ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from edl_worker.tasks.export_attempts import FORMS, crashed_forms, note_writing

KERAS, SAVED_MODEL, *_ = FORMS


def place(root: Path, token: int, job: str = "job") -> Path:
    path = root / f".out.edl-{job}.ab12-{token}.tmp"
    path.mkdir()
    return path


def crash(path: Path, form: str) -> None:
    """Run a process that ends while it writes a form."""
    code = "import os, sys, pathlib\nfrom edl_worker.tasks.export_attempts import note_writing\n"
    code += "with note_writing(pathlib.Path(sys.argv[1])): os.abort()"
    ended = subprocess.run([sys.executable, "-c", code, str(path / form)], check=False)
    assert ended.returncode < 0


def test_a_form_in_which_two_attempts_ended_is_left_out(tmp_path: Path) -> None:
    crash(place(tmp_path, 3), SAVED_MODEL)
    crash(place(tmp_path, 4), SAVED_MODEL)
    crash(place(tmp_path, 4, "another"), KERAS)
    own = place(tmp_path, 5)
    assert crashed_forms(1, own) == set(), "the machine may have been at fault"
    assert crashed_forms(2, own) == {SAVED_MODEL}
    crash(own, KERAS)
    assert crashed_forms(3, place(tmp_path, 6)) == {KERAS, SAVED_MODEL}


def test_all_forms_are_left_out_where_earlier_attempts_cannot_be_seen(tmp_path: Path) -> None:
    assert crashed_forms(1) == set()
    assert crashed_forms(2) == set(FORMS)
    assert crashed_forms(2, place(tmp_path, 3)) == set(FORMS)


def test_an_attempt_that_comes_back_leaves_no_note(tmp_path: Path) -> None:
    own = place(tmp_path, 3)
    with contextlib.suppress(ValueError), note_writing(own / KERAS):
        assert len(os.listdir(own)) == 1
        raise ValueError
    assert os.listdir(own) == []
