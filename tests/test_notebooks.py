"""The cells of ``docs/notebooks.md`` in a real kernel, and the exported notebook in a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import ROOT, Edl
from page.browser import Chromium, find_chromium

from edl_testing.requirements import do_without
from tests import jupyter


def cells_of_the_page() -> list[str]:
    text = (ROOT / "docs" / "notebooks.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)


def texts(cell: dict[str, Any]) -> str:
    """Return all that a cell shows, as text; what edl shows of a job comes once, at its end."""
    return "".join(
        "".join(output.get("text") or output.get("traceback") or output["data"]["text/plain"])
        for output in cell["outputs"]
    )


def run_notebook(edl: Edl, folder: Path, cells: list[str | list[str]]) -> list[dict[str, Any]]:
    """Run cells in a kernel in a folder, and return them with what they show."""
    modules = jupyter.install()
    (folder / "cells.json").write_text(json.dumps(cells))
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "run_notebook.py", "cells.json", "."],
        env={
            **edl.env,
            "PYTHONPATH": os.pathsep.join((str(modules), edl.env.get("PYTHONPATH", ""))),
            "JUPYTER_PATH": str(modules / "share" / "jupyter"),
            "IPYTHONDIR": str(folder / "ipython"),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "cells.ipynb").read_text())["cells"]
    return found


def test_the_cells_of_the_page_run_and_can_be_exported(edl: Edl, tmp_path: Path) -> None:
    load, train, result, fit, table, query, *rest = cells_of_the_page()
    assert not rest
    endless = fit.replace("epochs=10", "epochs=5000, name='endless'")
    shown = run_notebook(
        edl,
        tmp_path,
        [
            *(load, train, result, table, query),
            [endless, "epoch 2/5000"],
            "job = elasticdl.attach('endless')\njob",
            "%edl stop endless\n%edl status nosuch",
            "_exit_code",
            "elasticdl.fit(model, x[:5], y)",
        ],
    )
    errors = [
        (number, output["ename"])
        for number, cell in enumerate(shown)
        for output in cell["outputs"]
        if output["output_type"] == "error"
    ]
    assert errors == [(5, "KeyboardInterrupt"), (7, "NotFoundError"), (9, "UsageError")]
    trained, kept, queried, left = map(texts, (shown[1], shown[2], shown[4], shown[5]))
    assert "the model file is edl_cells/cell-" in trained
    panels = re.findall(r"^cell-\w{4}: (.*?), loss 0\.", trained, re.M)
    assert panels == ["succeeded, 100% of 40,000 records, epoch 20/20"], "it was replaced"
    assert re.search(r"^  accuracy, validation  0\.\d+ [▁-█]{20} 0\.9", trained, re.M)
    assert re.search(r"^accuracy  0\.9", trained, re.M), "the results of the command"
    assert kept.startswith(f"('{tmp_path}/edl_models/1',")
    assert "'accuracy': 0.9" in kept
    assert "quality" in queried
    assert "endless: " in left
    assert "The job endless continues. elasticdl.attach('endless', model).wait() returns" in left
    assert "Epoch " not in left, "the panel says it"
    assert "job_watcher.py" not in left
    assert "endless: " in texts(shown[6])
    assert "of 8,000,000 records" in texts(shown[6])
    assert "endless cancelled" in texts(shown[7])
    assert "there is no job named nosuch" in texts(shown[7])
    assert texts(shown[8]) == "6"
    assert "api_errors.py" not in texts(shown[9])
    see_in_browser(tmp_path / "cells.html")


def see_in_browser(page: Path) -> None:
    """Check that an exported notebook shows curves and runs no script of edl."""
    if find_chromium() is None:
        do_without("Chromium is not installed (apt install chromium)")
    with Chromium() as browser:
        tab = browser.open(page.as_uri(), width=1000)
        tab.wait_for("document.readyState === 'complete'")
        images = "[...document.querySelectorAll('img[alt^=loss], img[alt^=accuracy]')]"
        widths = tab.evaluate(f"{images}.map(each => each.naturalWidth)")
        assert len(widths) >= 4
        assert set(widths) == {340}
        # What nbconvert itself wants from the network is not there.
        assert [line for line in tab.complaints if "cdnjs" not in line] == []
