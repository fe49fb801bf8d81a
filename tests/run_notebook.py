"""Runs cells in a kernel as Jupyter does, and writes the notebook, also as HTML.

    python tests/run_notebook.py CELLS.json FOLDER

A cell is its text, or its text and a part of its output at which the kernel is interrupted. Jupyter
must be in the path (``tests/jupyter.py``).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbconvert import HTMLExporter


def main(cells: list[str | list[str]], folder: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    kernel = KernelManager()
    client = NotebookClient(notebook, km=kernel, timeout=300, allow_errors=True)
    with client.setup_kernel():
        for number, given in enumerate(cells):
            text, awaited = given if isinstance(given, list) else (given, "")
            cell = nbformat.v4.new_code_cell(text)
            notebook.cells.append(cell)
            if awaited:
                start = threading.Thread(
                    target=interrupt, args=(kernel, cell, awaited), name="interrupt", daemon=True
                )
                start.start()
            client.execute_cell(cell, number)
    nbformat.write(notebook, folder / "cells.ipynb")
    page, _ = HTMLExporter().from_notebook_node(notebook)
    (folder / "cells.html").write_text(page)


def interrupt(kernel: Any, cell: Any, awaited: str) -> None:
    while awaited not in json.dumps(cell.outputs):
        time.sleep(0.1)
    kernel.interrupt_kernel()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
