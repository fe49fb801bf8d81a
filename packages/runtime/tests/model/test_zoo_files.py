from __future__ import annotations

import os
from pathlib import Path

import pytest

from edl_runtime.model.zoo_files import select


def write(zoo: Path, **files: str) -> None:
    for name, text in files.items():
        path = zoo / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A folder of a person, with a model in it."""
    write(
        tmp_path,
        model_dot_py="import tensorflow\nfrom layers import Block\nfrom tools.losses import mse\n",
        layers_dot_py="from shared import width\n",
        shared_dot_py="width = 4\n",
        tools__losses_dot_py="from . import constants\n",
        tools__constants_dot_py="",
        tools__unused_dot_py="",
        other_dot_py="import layers\n",
        requirements_dot_txt="pandas\n",
        README_dot_md="",
        _dot_env="TOKEN=1",
        data__train_dot_recordio="x" * 1000,
        data__train_dot_csv="x" * 1000,
        out__trained_model_dot_pb="",
        out__model_zoo__model_dot_py="",
        env__pyvenv_dot_cfg="",
        env__lib__thing_dot_py="",
    )
    return tmp_path


MODEL = ("layers.py", "model.py", "requirements.txt", "shared.py", "tools/constants.py")


def test_a_model_needs_the_modules_that_it_imports_and_nothing_else(zoo: Path) -> None:
    found = select(zoo, ["model.Net"])
    assert found.paths == (*MODEL, "tools/losses.py")
    assert found.nbytes == sum((zoo / name).stat().st_size for name in found.paths)
    assert not found.secrets


def test_a_zoo_without_a_named_model_is_all_of_its_code(zoo: Path) -> None:
    assert select(zoo).paths == (
        *sorted((*MODEL, "other.py")),
        "tools/losses.py",
        "tools/unused.py",
    )


def test_the_results_of_earlier_jobs_are_never_copied_again(zoo: Path) -> None:
    """``--model-zoo .`` with the output in it doubled with each run."""
    before = select(zoo)
    for number in range(3):
        write(zoo, **{f"run{number}__trained_model_dot_pb": "", f"run{number}__a__b_dot_py": ""})
    assert select(zoo) == before


def test_what_has_been_loaded_belongs_to_the_model_however_it_was_found(zoo: Path) -> None:
    assert "other.py" in select(zoo, ["model"], loaded=[zoo / "other.py", Path(os.__file__)]).paths


@pytest.mark.parametrize(
    "code",
    [
        'open(os.path.join(os.path.dirname(__file__), "assets", "words.txt"))',
        'Path(__file__).parent / "assets" / "words.txt"',
        'Path(__file__).with_name("assets/words.txt")',
        'os.path.join("assets", "words.txt")',
    ],
)
def test_a_file_that_the_code_names_belongs_to_the_model(zoo: Path, code: str) -> None:
    write(zoo, model_dot_py=code, assets__words_dot_txt="a b")
    assert "assets/words.txt" in select(zoo, ["model"]).paths


def test_names_of_modules_in_texts_and_packages_are_followed(zoo: Path) -> None:
    write(
        zoo,
        deep____init___dot_py="",
        model_dot_py='import importlib\nimportlib.import_module("deep.inner")\n',
        other_dot_py=f"from {zoo.name}.shared import width\nfrom .layers import Block\n",
    )
    (zoo / "deep").mkdir(exist_ok=True)
    (zoo / "deep" / "__init__.py").write_text("")
    (zoo / "deep" / "inner.py").write_text("from .nearby import x\n")
    (zoo / "deep" / "nearby.py").write_text("")
    found = select(zoo, ["model"]).paths
    assert {"deep/__init__.py", "deep/inner.py", "deep/nearby.py"} <= set(found)
    assert {"shared.py", "layers.py"} <= set(select(zoo, ["other"]).paths)


def test_secrets_data_and_pipes_are_left_out_though_the_code_names_them(zoo: Path) -> None:
    os.mkfifo(zoo / "pipe")
    names = ".env", "data/train.recordio", "pipe", "../elsewhere.txt", "/etc/passwd"
    write(zoo, model_dot_py="\n".join(f"open({name!r})" for name in names))
    found = select(zoo, ["model"])
    assert found.paths == ("model.py", "requirements.txt")
    assert found.secrets == (".env",)


@pytest.mark.parametrize(
    "name", ["kubeconfig", "deploy.keystore", "service-account-prod.json", ".git-credentials"]
)
def test_names_of_secrets_are_known(zoo: Path, name: str) -> None:
    (zoo / name).write_text("x")
    (zoo / "model.py").write_text(f"open({name!r})")
    assert select(zoo, ["model"]).secrets == (name,)


def test_a_private_key_is_a_secret_whatever_its_name(zoo: Path) -> None:
    (zoo / "notes.txt").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    (zoo / "words.txt").write_text("a word\n")
    (zoo / "model.py").write_text("open('notes.txt'), open('words.txt')")
    found = select(zoo, ["model"])
    assert found.secrets == ("notes.txt",)
    assert "words.txt" in found.paths


@pytest.mark.parametrize("ignore_file", ["", "!linked.txt\n!linked.py\n!sub/linked.txt\n"])
@pytest.mark.parametrize("link", ["linked.txt", "linked.py", "sub/linked.txt"])
@pytest.mark.parametrize(
    "target",
    [
        *(".aws/credentials", ".ssh/id_rsa", ".ssh/known_hosts", ".config/gh/hosts.yml", ".netrc"),
        *("keys/id_rsa", "keys/old", "app/.env", "/etc/passwd", "/proc/self/environ"),
    ],
)
def test_a_link_in_the_zoo_of_others_leads_to_no_secret(
    tmp_path: Path, link: str, target: str, ignore_file: str
) -> None:
    """Even ``.edlignore`` allows no such link: the zoo would be packed, and read elsewhere."""
    zoo, secret = tmp_path / "zoo", tmp_path / "home" / target
    zoo.mkdir()
    if not secret.exists():
        secret.parent.mkdir(parents=True)
        secret.write_text("-----BEGIN PRIVATE KEY-----\n" if "keys" in target else "mine\n")
    write(zoo, model_dot_py=f"import linked\nopen({link!r})\n", _dot_edlignore=ignore_file)
    if link.startswith("sub/"):
        (zoo / "sub").mkdir()
    (zoo / link).symlink_to(secret)
    found = select(zoo, ["model"])
    assert link not in found.paths
    assert link in found.secrets


def test_a_link_to_a_secret_of_the_zoo_is_left_out_unless_it_is_added(tmp_path: Path) -> None:
    write(tmp_path, model_dot_py="open('words.txt')\n", _dot_env="TOKEN=1")
    (tmp_path / "words.txt").symlink_to(".env")
    assert select(tmp_path, ["model"]).secrets == ("words.txt",)
    write(tmp_path, _dot_edlignore="!words.txt\n")
    assert "words.txt" in select(tmp_path, ["model"]).paths


def test_a_folder_that_is_a_link_leads_to_no_secret(tmp_path: Path) -> None:
    write(tmp_path / "zoo", model_dot_py="import sub.more\n")
    write(tmp_path / "home" / ".ssh", more_dot_py="mine")
    (tmp_path / "zoo" / "sub").symlink_to(tmp_path / "home" / ".ssh")
    assert "sub/more.py" not in select(tmp_path / "zoo", ["model"]).paths


def test_links_to_code_and_data_are_followed(tmp_path: Path) -> None:
    zoo = tmp_path / ".mine" / "zoo"
    write(zoo, model_dot_py="import shared\nopen('words.txt')\n", real_dot_txt="a word\n")
    write(tmp_path / ".mine" / "common", shared_dot_py="x = 1\n")
    (zoo / "shared.py").symlink_to("../common/shared.py")
    (zoo / "words.txt").symlink_to("real.txt")
    assert select(zoo, ["model"]).paths == ("model.py", "shared.py", "words.txt")


def test_the_ignore_file_adds_and_leaves_out(zoo: Path) -> None:
    write(zoo, _dot_edlignore="# mine\nshared.py\n!data/*.csv\n!.env\n!README.md\n")
    found = select(zoo, ["model"])
    added = {".env", "README.md", "data/train.csv"}
    assert set(found.paths) - {*MODEL, "tools/losses.py"} == {*added, ".edlignore"}
    assert "shared.py" not in found.paths
    assert not found.secrets


def test_code_that_is_no_python_is_copied_as_it_is(zoo: Path) -> None:
    write(zoo, model_dot_py="print 'old'\nimport layers\n")
    assert select(zoo, ["model"]).paths == ("model.py", "requirements.txt")
