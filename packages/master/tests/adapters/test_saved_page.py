"""Where the page of a job is saved, and what is left alone there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import fsspec
import pytest

from edl_master.adapters.saved_page import save_page, saved_page
from edl_master.core.timeline_summary import JobTimes
from edl_proto.v1 import job_pb2


def page(events: int = 1) -> bytes:
    """The page of a job with this many events."""
    status = job_pb2.JobStatus(name="mine</script>")
    happened = [job_pb2.Event(number=n, kind=f"Kind{n}") for n in range(1, events + 1)]

    def read(after: int, limit: int) -> Sequence[job_pb2.Event]:
        return happened[after : after + limit]

    return saved_page(status, read, JobTimes())


def test_a_page_is_saved_beside_the_output_and_replaced(tmp_path: Path) -> None:
    for name in ("first", "second"):
        save_page(f"{tmp_path}/model/", page() + name.encode())
        assert (tmp_path / "model.html").read_bytes().endswith(name.encode())
    assert [path.name for path in tmp_path.iterdir()] == ["model.html"]


def test_another_file_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "model.html").write_text("notes")
    save_page(f"file://{tmp_path}/model", page())
    assert (tmp_path / "model.html").read_text() == "notes"
    assert "another file" in caplog.text


def test_a_place_that_cannot_be_written_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_page(str(tmp_path / "none" / "model"), page())
    assert "cannot be saved" in caplog.text


def test_a_store_gets_the_page_too() -> None:
    save_page("memory://pages/model", page())
    assert b"saved-job" in fsspec.filesystem("memory").cat_file("/pages/model.html")


def test_the_latest_events_are_kept_and_no_text_ends_the_data() -> None:
    text = page(5003).decode()
    assert '"Kind3"' not in text
    assert '"Kind4"' in text
    assert '"Kind5003"' in text
    assert "mine</script>" not in text
    assert "unsafe-inline" not in text
