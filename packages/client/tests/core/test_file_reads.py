"""A file that a module reads at its import is found in its text, with the line that reads it."""

from __future__ import annotations

import os

import pytest

from edl.core.file_reads import reads_at_import

FILE = "/zoo/shops/mine.py"
READS = {
    "open": "open('/data/a.csv')",
    "with": "with open('/data/a.csv', encoding='utf-8') as file:\n    rows = list(file)",
    "a loop": "for row in csv.reader(open('/data/a.csv')): ...",
    "a branch": "if CITIES:\n    open('/data/a.csv')",
    "pandas": "lookup.adapt(pd.read_csv('/data/a.csv')['city'])",
    "numpy": "x = np.load('/data/a.csv')",
    "the vocabulary of a layer": "keras.layers.StringLookup(vocabulary='/data/a.csv')",
    "text vectorization": "tf.keras.layers.TextVectorization(vocabulary='/data/a.csv')",
    "files of a dataset": "tf.data.TextLineDataset(['/data/a.csv'])",
    "a method of the path": "Path('/data/a.csv').read_text()",
    "a constant": "PATH = '/data/a.csv'\nnp.loadtxt(PATH)",
    "an annotated constant": "PATH: str = '/data/a.csv'\nnp.loadtxt(PATH)",
    "constants in a text": "NAME = 'a'\nopen(f'/data/{NAME}.csv')",
    "a sum": "open('/data/' + 'a.csv')",
    "a joined path": "open(os.path.join('/data', 'a.csv'))",
    "a path of parts": "(pathlib.Path('/data') / 'a.csv').open()",
    "other methods of a path": "Path('/data', 'b').with_name('a.csv').absolute().open('rb')",
    "next to the zoo": "(Path(__file__).resolve().parents[2] / 'data/a.csv').open()",
    "next to the zoo, by os": "open(os.path.join(os.path.dirname(__file__), '../../data/a.csv'))",
    "a function that the module calls": "def rows(path, mode='r'):\n"
    "    with open(path, mode) as file:\n        return list(file)\nROWS = rows('/data/a.csv')",
    "a default value": "def rows(path='/data/a.csv'):\n    return open(path)\nROWS = rows()",
    "a class": "class Words:\n    def __init__(self, path):\n        open(path)\n"
    "Words('/data/a.csv')",
    "the body of a class": "class Words:\n    path = '/data/a.csv'\n    words = open(path)",
    "the model's function": "def build():\n    return open('/data/a.csv')",
    "a function of the model's function": "PATH = '/data/a.csv'\ndef words(path):\n"
    "    return open(path)\ndef build():\n    return words(PATH)",
}
NO_READS = {
    "in a function that only tasks call": "def dataset_fn(dataset, mode):\n    open('/data/a.csv')",
    "only as a program": "if __name__ == '__main__':\n    open('/data/a.csv')",
    "written": "open('/data/a.csv', 'w')",
    "appended": "Path('/data/a.csv').open(mode='ab')",
    "a name only": "PATH = '/data/a.csv'\nprint(PATH, os.path.exists(PATH))",
    "a path that does not show": "open(os.environ['DATA'] + '/data/a.csv')",
    "a name that stands for something else by then": "p = '/data/a.csv'\np = find()\nopen(p)",
    "the words of a layer": "keras.layers.StringLookup(vocabulary=['/data/a.csv'])",
    "a recursion": "def walk():\n    walk()\nwalk()",
}


def find(source: str) -> list[tuple[int, str]]:
    return [(line, os.path.abspath(path)) for line, path in reads_at_import(source, FILE, "build")]


@pytest.mark.parametrize("how", READS)
def test_the_line_that_reads_a_file_is_found(how: str) -> None:
    source = READS[how]
    lines = source.splitlines()
    readers = ("open(", "read_", "load", "Lookup(", "Vectorization(", "Dataset(")
    (line,) = [n for n, text in enumerate(lines, 1) if any(each in text for each in readers)]
    assert (line, "/data/a.csv") in find(source)


@pytest.mark.parametrize("what", NO_READS)
def test_what_reads_no_file_at_the_import_is_not_found(what: str) -> None:
    assert "/data/a.csv" not in [path for _, path in find(NO_READS[what])]


IMPORTS = {
    "import": "import sys, steps\nsys.path.insert(0, '/lib')\nimport steps",
    "from": "import sys\nsys.path.append(os.path.join('/', 'lib'))\nfrom steps import STEP",
}


@pytest.mark.parametrize("how", IMPORTS)
def test_a_module_from_a_folder_that_the_module_adds_is_found(how: str) -> None:
    line = IMPORTS[how].count("\n") + 1
    assert find(IMPORTS[how]) == [(line, "/lib/steps.py"), (line, "/lib/steps/__init__.py")]
