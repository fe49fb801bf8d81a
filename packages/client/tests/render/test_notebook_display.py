"""What a notebook shows of a job: text, and images in HTML."""

from __future__ import annotations

import base64
import math
import re
import sys
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.core.options import Verb
from edl.render import notebook_display
from edl.render.charts import Chart, Line, draw, sparkline
from edl.render.notebook_display import NotebookDisplay, find_charts, in_notebook, panel


def status(**changes: Any) -> JobStatus:
    known: dict[str, Any] = {
        "state": JobState.RUNNING,
        "records_done": 300,
        "records_total": 400,
        "epoch": 4,
        "num_epochs": 4,
        "version": 30,
        "loss": 0.25,
        "metrics": {"accuracy": 0.75},
        "curves": {
            "loss": ((1, 1.0), (10, 0.5), (20, math.nan), (30, 0.25)),
            "accuracy": ((10, 0.5), (30, 0.75)),
            "validation loss": ((10, 0.6), (30, 0.4)),
        },
        "workers_min": 2,
        "workers_max": 2,
    }
    return JobStatus("circle", Verb.TRAIN, **{**known, **changes})


def test_the_panel_reads_well_as_text() -> None:
    assert panel(status())["text/plain"].splitlines() == [
        "circle: 75% of 400 records, 0/s, epoch 4/4, loss 0.25, val accuracy 0.75, 0 of 2 workers",
        "  loss, training        1 █▃▁ 0.25",
        "  loss, validation      0.6 █▁ 0.4",
        "  accuracy, validation  0.5 ▁█ 0.75",
    ]


def test_the_axis_counts_epochs_where_there_are_some() -> None:
    loss, _ = find_charts(status())
    assert loss.x_unit == "epochs"
    assert loss.lines[0].points == [(0.1, 1.0), (1.0, 0.5), (3.0, 0.25)]
    stream, _ = find_charts(status(is_stream=True))
    assert (stream.x_unit, stream.lines[1].points) == ("steps", [(10, 0.6), (30, 0.4)])


def test_rows_of_epochs_add_what_the_master_does_not_know() -> None:
    rows = [
        {"epoch": 1, "loss": 9.0, "mae": 3.0, "val_mae": 4.0, "learning_rate": 0.1},
        {"epoch": 2, "loss": 9.0, "mae": 2.0, "val_mae": 3.0, "learning_rate": 0.1},
    ]
    charts = {chart.title: chart for chart in find_charts(status(), rows)}
    assert list(charts) == ["loss", "accuracy", "mae"]
    assert charts["mae"].lines == [
        Line("training", [(1, 3.0), (2, 2.0)]),
        Line("validation", [(1, 4.0), (2, 3.0)]),
    ]
    assert charts["loss"].lines[0].points[0] == (0.1, 1.0)


def test_the_panel_shows_images_which_no_viewer_takes_out() -> None:
    html = panel(status())["text/html"]
    assert "<svg" not in html
    assert '<progress max="1" value="0.7500">' in html
    assert 'alt="loss: training from 1 to 0.25, validation from 0.6 to 0.4"' in html
    sources = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    drawings = [ElementTree.fromstring(base64.b64decode(source)) for source in sources]
    lines = [len(each.findall("{*}polyline")) for each in drawings]
    assert lines == [2, 1]
    assert "<progress" not in panel(status(state=JobState.SUCCEEDED))["text/html"]


def test_names_of_metrics_are_no_html() -> None:
    curves = {"<b>&": ((1, 1.0), (2, 2.0))}
    html = panel(status(curves=curves, metrics={"<b>&": 2.0}))["text/html"]
    assert "<b>&" not in html
    drawn = draw(Chart("<b>&", [Line("<i>", [(0, 1.0), (1, 1.0)])], "steps"))
    assert "".join(ElementTree.fromstring(drawn).itertext()).count("<b>&") == 1


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [1e300, -1e300], [5.0] * 1000])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    assert 0 < len(sparkline(values)) <= 24
    points = list(enumerate(values))
    ElementTree.fromstring(draw(Chart("loss", [Line("training", points)], "steps")))


def test_a_notebook_is_one_whose_kernel_shows_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    for shell, wanted in (
        (None, False),
        (SimpleNamespace(), False),
        (SimpleNamespace(kernel=1), True),
    ):
        module = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert in_notebook() is wanted


def test_one_panel_is_replaced_once_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[tuple[bool, str]] = []

    def publish(content: dict[str, str], display_id: str, *, is_new: bool) -> None:
        shown.append((is_new, content["text/plain"].splitlines()[0]))

    clock = {"now": 100.0}
    monkeypatch.setattr(notebook_display, "_publish", publish)
    monkeypatch.setattr(notebook_display, "time", SimpleNamespace(monotonic=lambda: clock["now"]))
    display = NotebookDisplay()
    for now, done in ((100.1, 0), (100.6, 100), (101.2, 200), (102.5, 200)):
        clock["now"] = now
        display.update(status(records_done=done))
    display.update(status(state=JobState.SUCCEEDED, records_done=400, seconds=2.0))
    assert [is_new for is_new, _ in shown] == [True, False, False]
    assert "50% of 400 records" in shown[1][1]
    assert shown[2][1].startswith("circle: succeeded, 100% of 400 records")
    assert shown[2][1].endswith(", 2.0 s")
    for kind, severity in (("EvaluationEnded", "info"), ("WorkerLost", "warning")):
        display.show_event(JobEvent(1, "2030-01-01T10:00:00Z", 1.0, kind, severity, "so it is"))
    assert capsys.readouterr() == ("10:00:00 warning WorkerLost: so it is\n", "")
