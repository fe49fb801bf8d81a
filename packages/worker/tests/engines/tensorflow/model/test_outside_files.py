"""A file outside the zoo that the model file reads when it is loaded is named with the line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from contract_cases import GOOD
from zoo_folder import ZooFolder

READS = {
    "open": "open(PATH).read()",
    "binary": "open(PATH, 'rb').read()",
    "pathlib": "import pathlib; pathlib.Path(PATH).read_text()",
    "numpy": "np.loadtxt(PATH, dtype=str)",
    "GFile": "tf.io.gfile.GFile(PATH).read()",
    "TextLineDataset": "list(tf.data.TextLineDataset([PATH]))",
    "the vocabulary of a layer": "tf.keras.layers.StringLookup(vocabulary=PATH)",
    "in the function of the model": None,
}
NO_DATA = {
    "of the zoo": "open(__file__.replace('mine.py', 'words.txt')).read()",
    "of a package": "open(np.__file__.replace('.py', '.pyi')).read()",
    "of the system": "open('/etc/passwd').read()",
    "written by itself": "import tempfile\n"
    "t = tempfile.NamedTemporaryFile('w')\nt.write('x')\nt.flush()\nopen(t.name).read()",
    "written": "open(PATH + '.new', 'w').close()",
    "code": "open(PATH + '.py').read()",
}


@pytest.fixture
def outside() -> Path:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cities.txt"
        path.write_text("a\nb\n")
        path.with_name("cities.txt.py").write_text("")
        yield path


def warnings(zoo: ZooFolder, path: Path, source: str) -> tuple[str, ...]:
    zoo.write("words.txt", "a\n", imports=False)
    zoo.write("mine.py", "\n".join([f"PATH = {str(path)!r}", source, *GOOD.values()]))
    return zoo.load("mine").warnings


@pytest.mark.parametrize("how", READS)
def test_the_file_and_the_line_are_named(zoo: ZooFolder, outside: Path, how: str) -> None:
    source = READS[how]
    if source is None:
        model = "\n    ".join(["def build_model():", "open(PATH).read()", "return model"])
        zoo.write(
            "mine.py", "\n".join([f"PATH = {str(outside)!r}", *GOOD.values(), "x = model", model])
        )
        (warning,) = zoo.load("mine.build_model").warnings
        line = zoo.line("mine.py", "    open(PATH)")
    else:
        (warning,) = warnings(zoo, outside, source)
        line = zoo.line("mine.py", source)
    assert warning.startswith(f"mine.py:{line} reads {outside}, which is outside the model zoo")


@pytest.mark.parametrize("what", NO_DATA)
def test_other_files_are_not_named(zoo: ZooFolder, outside: Path, what: str) -> None:
    assert warnings(zoo, outside, NO_DATA[what]) == ()


def test_a_file_in_a_module_that_the_model_file_imports_is_named_there(
    zoo: ZooFolder, outside: Path
) -> None:
    zoo.write("words.py", f"WORDS = open({str(outside)!r}).read()")
    (warning,) = warnings(zoo, outside, "from words import WORDS")
    assert warning.startswith("words.py:")


def test_a_file_of_the_submitted_zoo_is_to_be_read_from_its_copy(
    zoo: ZooFolder, outside: Path
) -> None:
    copy = ZooFolder(Path(f"{zoo.root}{outside.parent}"))
    copy.write("mine.py", "\n".join([f"open({str(outside)!r}).read()", *GOOD.values()]))
    (warning,) = copy.load("mine", copies=str(zoo.root)).warnings
    assert f"reads {outside} where it is, and not the job's copy of the model zoo" in warning
    assert "Path(__file__).parent" in warning
