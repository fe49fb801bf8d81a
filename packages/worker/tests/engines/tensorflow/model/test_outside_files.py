"""A file outside the zoo that the model file reads when it is loaded is named with the line."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_cases import GOOD
from example_data import float_images
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_runtime.model import zoo_files
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.model_file.zoo.outside_files import read_files

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


def write_library(folder: Path, step: int) -> None:
    """Write a module, and one that it imports, outside the zoo."""
    (folder / "steps.py").write_text(f"STEP = {step}\n")
    (folder / "library").mkdir(exist_ok=True)
    (folder / "library" / "__init__.py").write_text("from steps import STEP\n")


@pytest.fixture
def library(outside: Path) -> Iterator[Path]:
    yield outside.parent
    for name in ("library", "steps"):
        sys.modules.pop(name, None)
    sys.path[:] = [each for each in sys.path if each != str(outside.parent)]


def test_a_module_that_is_not_of_the_zoo_is_named(zoo: ZooFolder, library: Path) -> None:
    write_library(library, 1)
    source = f"import sys\nsys.path.insert(0, {str(library)!r})\nfrom library import STEP"
    path = library / "library" / "__init__.py"
    for _ in range(2):  # the second time Python has the module already
        (warning,) = warnings(zoo, library / "cities.txt", source)
        line = zoo.line("mine.py", "from library")
        assert warning.startswith(f"mine.py:{line} imports {path}, which is outside the model zoo")


def test_workers_are_compared_by_files_and_code_outside_the_zoo(
    zoo: ZooFolder, library: Path
) -> None:
    write_library(library, 1)
    source = (
        f"import sys\nsys.path.insert(0, {str(library)!r})\nfrom library import STEP\n"
        "open(PATH).read()"
    )

    def digests() -> dict[str, str]:
        warnings(zoo, library / "cities.txt", source)
        states = zoo.load("mine").layer_states
        assert all(state.optional for state in states)
        return {state.name: state.summarize().digest for state in states if "file" in state.name}

    first = digests()
    changed = {}
    for path in (
        library / "cities.txt",
        library / "steps.py",
        library / "library" / "__init__.py",
    ):
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        changed[f"file {path}"] = digests()
        path.write_bytes(before)
    assert sorted(first) == sorted(changed)
    for name, found in changed.items():
        assert {each for each in first if first[each] != found[each]} == {name}


def test_a_file_that_has_changed_since_the_training_is_named(zoo: ZooFolder, outside: Path) -> None:
    warnings(zoo, outside, "open(PATH).read()")
    saved = zoo.load("mine").layer_states
    assert len(zoo.load("mine", saved=saved).warnings) == 1
    outside.write_text("c\n")
    _, warning = zoo.load("mine", saved=saved).warnings
    line = zoo.line("mine.py", "open(PATH)")
    assert warning.startswith(f"file {outside} (mine.py:{line}) has changed since the model was")


def test_the_files_of_the_zoo_that_its_code_reads_are_told(zoo: ZooFolder, outside: Path) -> None:
    warnings(zoo, outside, "import pathlib\nnext(pathlib.Path(__file__).parent.glob('w*')).open()")
    words = zoo.root.resolve() / "words.txt"
    assert words in read_files()
    assert "words.txt" in zoo_files.select(zoo.root, ["mine"], read_files()).paths


def test_packages_of_edl_are_not_named(zoo: ZooFolder, outside: Path) -> None:
    assert warnings(zoo, outside, "import recordio, elasticdl\nimport edl_proto.errors") == ()


def load_and_call(zoo: ZooFolder, **options: Any) -> ModelFile:
    """Load the model file and give its dataset function some records."""
    file = zoo.load("mine", **options)
    file.build(batches(file, float_images(4))[0])
    return file


def test_a_file_that_the_dataset_function_reads_is_named_and_compared(
    zoo: ZooFolder, outside: Path
) -> None:
    parse = GOOD["dataset_fn"]
    opened = f"    open({str(outside)!r}).read()\n    def parse"
    source = {**GOOD, "dataset_fn": parse.replace("    def parse", opened)}
    zoo.write("mine.py", "\n".join(source.values()))
    file = load_and_call(zoo)
    (warning,) = file.warnings
    line = zoo.line("mine.py", "    open(")
    assert warning.startswith(f"mine.py:{line} reads {outside}, which is outside the model zoo")
    saved = file.layer_states
    assert saved[-1].name == f"file {outside}"
    assert len(load_and_call(zoo, saved=saved).warnings) == 1
    outside.write_text("c\n")
    _, warning = load_and_call(zoo, saved=saved).warnings
    assert "has changed since the model was trained" in warning
