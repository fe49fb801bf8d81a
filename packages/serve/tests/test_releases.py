"""The last release of a folder is served, and new ones as they come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.trained_model import TRAINED_MODEL
from edl_serve import releases
from edl_serve.instances import EncodedInstances
from edl_serve.releases import LastRelease, list_releases
from edl_testing.waiting import eventually

RECORDS = EncodedInstances([b"a record"], ())


def add(folder: Path, number: int | str) -> None:
    place = folder / str(number)
    place.mkdir(parents=True)
    (place / TRAINED_MODEL).touch()


class Numbered:
    """A model that predicts the number of its release; that of number 3 is damaged."""

    data, version = None, 1

    def __init__(self, place: str) -> None:
        self.about: dict[str, Any] = {"place": place}
        self.predicted = 0

    def prepare(self) -> None: ...

    def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        self.predicted += 1
        number = int(Path(self.about["place"]).name)
        if number == 5:
            raise ValueError("of the model's own code")
        if number == 3:
            raise EdlError(ErrorCode.DATA_DAMAGED, "damaged", where="3", remedy="")
        return [{"number": number}]


@contextmanager
def follow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LastRelease]:
    monkeypatch.setattr(releases, "POLL_S", 0.01)
    model, over = LastRelease(str(folder), Numbered), threading.Event()
    thread = threading.Thread(target=model.follow, args=[over])
    thread.start()
    yield model
    over.set()
    thread.join()


def test_a_trained_model_is_no_folder_of_releases(tmp_path: Path) -> None:
    add(tmp_path, "model")
    add(tmp_path / "model", 1)
    assert list_releases(str(tmp_path / "model")) == []
    assert list_releases(str(tmp_path / "none")) == []
    add(tmp_path, 9)
    add(tmp_path, 10)
    (tmp_path / "11").mkdir()  # it is not whole yet
    assert list_releases(str(tmp_path)) == [9, 10]


def test_a_new_release_replaces_the_one_before_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 1)
    with follow(tmp_path, monkeypatch) as model:
        assert model.predict(RECORDS) == [{"number": 1}]
        add(tmp_path, 2)
        eventually(lambda: model.version == 2, "the second release is served")
        assert vars(model)["_model"].predicted == 1, "no request waits for its loading"
        assert model.predict(RECORDS) == [{"number": 2}]
        assert model.about["place"].endswith("/2")


def test_a_release_that_cannot_be_loaded_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, 1)
    with follow(tmp_path, monkeypatch) as model:
        model.predict(RECORDS)
        add(tmp_path, 3)
        eventually(lambda: "release 1 stays" in caplog.text, "the damaged release is refused")
        assert model.version == 1
        add(tmp_path, 4)
        eventually(lambda: model.version == 4, "the next one is served")
        add(tmp_path, 5)
        eventually(lambda: "release 4 stays: of the model's own" in caplog.text, "it is refused")
        add(tmp_path, 6)
        eventually(lambda: model.version == 6, "whatever a model raises, the next one is served")
    assert caplog.text.count("stays") <= 2 * releases.ATTEMPTS
