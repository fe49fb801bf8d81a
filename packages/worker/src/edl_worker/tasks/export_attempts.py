"""Earlier attempts at an export: which form of the model they wrote when their process ended.

Code of Keras, TensorFlow or the user may end the process, which no exception tells. So an attempt
names the form that it is writing in a file, which stays if it does not come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edl_worker.trained_model import directory as trained_model

FORMS = (
    trained_model.KERAS,
    trained_model.SAVED_MODEL,
    trained_model.LITERT,
    trained_model.ONNX,
)
"""The forms that a trained model may lack."""

_MAX_CRASHES = 2
_WRITING = ".writing"


@contextmanager
def note_writing(path: Path) -> Iterator[None]:
    """Note that this form is being written, for the next attempt if this one ends here."""
    note = path.parent / _WRITING
    note.write_text(path.name, encoding="utf-8")
    try:
        yield
    finally:
        note.unlink()


def crashed_forms(crashes: int, place: Path | None = None) -> frozenset[str]:
    """Return the forms to leave out.

    Args:
        crashes: attempts that ended with their process.
        place: where this attempt writes, next to the earlier ones; None if they cannot be seen.

    Returns:
        Nothing before the second crash; then the forms that attempts were writing, or all if that
        is not known.
    """
    if crashes < _MAX_CRASHES:
        return frozenset()
    found = _read_notes(place) if place is not None else set()
    return frozenset(found or FORMS)


def _read_notes(place: Path) -> set[str]:
    """Return the notes of the same job's other attempts, whose paths differ in the last part."""
    job = place.name.rsplit(".", 2)[0]
    found = set()
    for other in place.parent.iterdir():
        if other.name.startswith(f"{job}.") and other.name.endswith(".tmp"):
            try:
                found.add((other / _WRITING).read_text(encoding="utf-8"))
            except OSError:
                continue  # it ended elsewhere, or is gone
    return found & set(FORMS)
