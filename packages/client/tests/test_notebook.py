"""The magics in IPython's own shell; a real notebook is in ``tests/test_notebooks.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import elasticdl
from edl.cli.output import print_result
from edl.cli.root import root
from edl.cli.submit import make_notice
from edl.render import notebook_display
from edl.render.row_table import RowTable


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "edl"))
    yield InteractiveShell.instance(colors="nocolor")
    InteractiveShell.clear_instance()


@pytest.fixture
def loaded(shell: Any) -> Any:
    shell.run_line_magic("load_ext", "elasticdl")
    return shell


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the command lines of edl, which do nothing."""
    found: list[list[str]] = []
    monkeypatch.setattr(root, "main", lambda args, **_: found.append(args))
    return found


def run(shell: Any, cell: str) -> Any:
    """Run a cell, and return its value; an error is raised."""
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def test_a_line_is_a_command(loaded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(loaded, "name = 'version'\n%edl {name}")
    assert capsys.readouterr().out.startswith("edl ")
    assert loaded.user_ns["_exit_code"] == 0


def test_an_error_shows_what_the_command_prints(
    loaded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(elasticdl.NotFoundError):
        run(loaded, "%edl status nosuch")
    shown = capsys.readouterr().out
    assert "error:" in shown
    assert "there is no job named nosuch" in shown
    assert "what to do: " in shown
    assert "Traceback" not in shown
    assert "notebook.py" not in shown
    assert loaded.user_ns["_exit_code"] == 6


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%edl train --num-worker 2\npass", "Did you mean --num-workers?"),
        ("%%edl trian\npass", "Did you mean train?"),
        ("%%edl train --data x --output y\n ", "the cell has no code"),
        ("%%edl train --model-zoo zoo\npass", "the cell is the model file"),
        ("%%edl train --model_zoo=zoo\npass", "the cell is the model file"),
        ("%%edl status mine\npass", "edl status takes no model file, and the cell would be one"),
        ("%%edl train --output 'y\npass", "cannot be split into words: no closing quotation"),
        ("%%edl_sql --db sqlite:///x.db\n  ", "the cell has no statements"),
        (
            "%%edl train --data nosuch --output y --model-def cell.Net\nclass Other: pass",
            "has no Net",
        ),
    ],
)
def test_mistakes_are_told(
    loaded: Any, capsys: pytest.CaptureFixture[str], cell: str, said: str
) -> None:
    with pytest.raises(elasticdl.EdlError):
        run(loaded, cell)
    assert said in capsys.readouterr().out
    assert loaded.user_ns["_exit_code"] in (2, 4)


def test_a_cell_is_the_model_file_of_its_command(
    loaded: Any, calls: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    cell = "%%edl train --data {data} \\\n    --output {data}-model\nmodel = 1\nloss = 2\n"
    run(loaded, "data = 'rows'")
    run(loaded, cell)
    assert calls[0][:5] == ["train", "--data", "rows", "--output", "rows-model"]
    zoo, model_def = calls[0][6], calls[0][8]
    file = Path(zoo) / f"{model_def}.py"
    assert file.read_text().splitlines()[2:] == cell.splitlines()[2:], "lines of the cell's numbers"
    assert capsys.readouterr().out == f"the model file is {file}\n"
    run(loaded, cell)
    run(loaded, cell.replace("= 2", "= 3"))
    assert [args[6] for args in calls[1:]] == [zoo, calls[2][6]], "a folder for each content"
    assert calls[2][6] != zoo
    run(loaded, "%%edl train --model-def cell.Net\nclass Net: pass")
    assert calls[3].count("--model-def") == 1
    run(loaded, "%%edl train --help\n ")
    assert calls[4] == ["train", "--help"]


def test_a_cell_can_run_again_without_an_output(
    loaded: Any, calls: list[list[str]], tmp_path: Path
) -> None:
    for number in ("1", "10"):
        run(loaded, "%%edl train --data x\npass")
        assert calls[-1][-2:] == ["--output", str(Path("edl_models") / number)]
        (tmp_path / "edl_models" / "9").mkdir(parents=True, exist_ok=True)
    run(loaded, "%%edl zoo check\npass")
    assert "--output" not in calls[-1]


def test_the_result_of_a_command_is_kept(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(args: list[str], **_: object) -> None:
        print_result({"output": "m"}, None, ["output  m"])

    monkeypatch.setattr(root, "main", answer)
    run(loaded, "%edl wait j")
    assert loaded.user_ns["_edl"] == {"output": "m"}
    assert capsys.readouterr().out == "output  m\n"


def test_what_is_interrupted_stops_the_cells_after_it(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(root, "main", lambda args, **_: 130)
    with pytest.raises(KeyboardInterrupt):
        run(loaded, "%edl wait mine")
    assert capsys.readouterr().out.strip() == "interrupted"
    assert loaded.user_ns["_exit_code"] == 130
    monkeypatch.setattr(root, "main", lambda args, **_: 8)
    with pytest.raises(RuntimeError, match="exit code 8"):
        run(loaded, "%edl wait mine")


def test_rows_of_the_last_statement_are_the_value(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[list[str]] = []

    def answer(args: list[str], **_: object) -> None:
        given.append(args)
        print_result({"columns": ["a"], "rows": [[1]]}, None, ["a", "1"])
        print_result({"model": "m"}, None, ["the model m is removed"])
        print_result({"columns": ["b", "<i>"], "rows": [[2, None]]}, None, ["b", "2"])

    monkeypatch.setattr(root, "main", answer)
    monkeypatch.setitem(sys.modules, "pandas", None)
    cell = "%%edl_sql --datasource sqlite:///x.db\nSELECT 1;\nDROP MODEL m; SELECT 2;\n"
    rows = run(loaded, cell)
    out = capsys.readouterr().out
    assert given == [
        [
            *("sql", "--datasource", "sqlite:///x.db"),
            *("--execute", "SELECT 1;\nDROP MODEL m; SELECT 2;\n"),
        ]
    ]
    assert out.index("a\n1") < out.index("the model m is removed") < out.index("b  <i>")
    assert repr(rows).splitlines() == ["b  <i>", "2  NULL"]
    assert "<th>&lt;i&gt;</th>" in rows._repr_html_()
    assert loaded.user_ns["_"] is rows


def test_rows_are_shown_though_a_later_statement_fails(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(args: list[str], **_: object) -> None:
        print_result({"columns": ["a"], "rows": [[1]]}, None, ["a", "1"])
        raise MemoryError

    monkeypatch.setattr(root, "main", answer)
    with pytest.raises(elasticdl.MachineError):
        run(loaded, "%%edl_sql --db sqlite:///x.db\nSELECT 1; SELECT 2;")
    assert "a\n1" in capsys.readouterr().out


def test_results_are_printed_again_after_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({}, None, ["a line"])
    assert capsys.readouterr().out == "a line\n"


def test_frames_of_edl_are_left_out_of_the_errors_of_calls(
    loaded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(elasticdl.UsageError):
        run(loaded, "import elasticdl\nelasticdl.train(datta=3)")
    shown = capsys.readouterr().out
    assert "api_errors.py" not in shown
    assert "----> 2 elasticdl.train(datta=3)" in shown


def test_a_cell_that_ends_before_its_job_says_how_to_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notebook_display, "in_notebook", lambda: True)
    notice = make_notice("digits")
    assert notice.startswith("The job digits continues without this cell.")
    assert "elasticdl.attach('digits').wait()" in notice
    assert "%edl stop digits" in notice


def test_there_are_no_magics_outside_of_ipython() -> None:
    with pytest.raises(elasticdl.UsageError, match="work in IPython and in notebooks only"):
        elasticdl.load_ipython_extension(object())


def test_rows_are_a_frame_of_pandas_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pandas:
        __spec__ = object()

        @staticmethod
        def DataFrame(rows: Any, columns: Any) -> Any:
            return rows, columns

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    from edl.render.row_table import make_table

    assert make_table(("a",), [(1,)]) == ([(1,)], ["a"])
    assert RowTable(("a",), []).rows == []
