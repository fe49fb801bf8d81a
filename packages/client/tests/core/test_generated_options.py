"""The files that are written from the table of options are those of the present table."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
GENERATOR = ROOT / "tools" / "generate_options.py"


@pytest.mark.skipif(not GENERATOR.exists(), reason="the package is tested without its repository")
def test_the_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("generate_options", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.main(["--check"]) == 0, capsys.readouterr().err
