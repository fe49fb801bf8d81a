"""Each of Keras's own callbacks is called and does its work, or edl does it instead."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
from model_files import LOSS, MODEL, REST, rows
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_worker.core.tasks import EpochLogs
from edl_worker.engines.tensorflow.epoch_callbacks import CallbackCaller
from edl_worker.engines.tensorflow.training.arena import Arena


def caller(zoo: ZooFolder, callbacks: str) -> CallbackCaller:
    """Return the caller of a new worker."""
    zoo.write("mine.py", f"{MODEL}{REST}{LOSS}\ncallbacks = [{callbacks}]\n")
    file = zoo.load("mine")
    file.build(batches(file, rows())[0])
    file.resolve_callbacks(validates=True)
    return CallbackCaller(file, Arena(file.model), 10)


def run(callers: list[CallbackCaller], losses: list[float]) -> None:
    """Epochs at whose ends all weights are the epoch's number; the callers take turns."""
    state = callers[0].call(0, EpochLogs()).state
    for ended, loss in enumerate(losses, 1):
        one = callers[ended % len(callers)]
        one._model.set_weights([np.full_like(w, ended) for w in one._model.get_weights()])
        state = one.call(ended, EpochLogs(state, {"loss": 2 * loss, "val_loss": loss})).state


def weights(path: Path) -> set[float]:
    model = keras.models.load_model(path, compile=False)
    return {float(value) for w in model.get_weights() for value in w.flat}


LOSSES = [0.5, 0.3, 0.4, 0.1, 0.2]
"""Those that rise are still better than all that the same one of two workers has seen."""


def test_a_checkpoint_of_each_epoch_has_its_weights(zoo: ZooFolder, tmp_path: Path) -> None:
    path = str(tmp_path / "{epoch}-{val_loss:.1f}.keras")
    made = f"tf.keras.callbacks.ModelCheckpoint({path!r})"
    run([caller(zoo, made), caller(zoo, made)], LOSSES)
    found = {file.name: weights(file) for file in tmp_path.glob("*.keras")}
    assert found == {f"{n}-{loss:.1f}.keras": {float(n)} for n, loss in enumerate(LOSSES, 1)}


def test_the_best_checkpoint_is_kept_whichever_worker_wrote_it(
    zoo: ZooFolder, tmp_path: Path
) -> None:
    path = tmp_path / "best.weights.h5"
    made = (
        f"tf.keras.callbacks.ModelCheckpoint({str(path)!r}, save_best_only=True, "
        "save_weights_only=True)"
    )
    callers = [caller(zoo, made), caller(zoo, made)]
    for count, best in ((1, 1), (3, 2), (5, 4)):
        run(callers, LOSSES[:count])
        model = caller(zoo, made)._model
        model.load_weights(path)
        assert {float(value) for w in model.get_weights() for value in w.flat} == {best}
        path.unlink()


@pytest.fixture
def monitor() -> Iterator[tuple[str, list[dict[str, float]]]]:
    """The address of a server, and what it was sent."""
    received: list[dict[str, float]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append(json.loads(urllib.parse.parse_qs(body)["data"][0]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="monitor", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_remote_monitor_is_sent_each_epoch(
    zoo: ZooFolder, monitor: tuple[str, list[dict[str, float]]]
) -> None:
    address, received = monitor
    made = f"tf.keras.callbacks.RemoteMonitor({address!r})"
    run([caller(zoo, made), caller(zoo, made)], LOSSES[:3])
    assert [(each["epoch"], each["val_loss"]) for each in received] == [
        (0, 0.5),
        (1, 0.3),
        (2, 0.4),
    ]


def test_what_edl_does_itself_is_not_called(
    zoo: ZooFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    board, backup = str(tmp_path / "board"), str(tmp_path / "backup")
    names = {
        "TensorBoard": f"({board!r})",
        "BackupAndRestore": f"({backup!r})",
        "TerminateOnNaN": "()",
        "History": "()",
        "ProgbarLogger": "()",
    }
    with caplog.at_level("INFO"):
        one = caller(zoo, ", ".join(f"tf.keras.callbacks.{n}{a}" for n, a in names.items()))
    assert one._callbacks == ()
    for name in names:
        assert f"the callback {name} is not called: " in caplog.text
    run([one], LOSSES)
    assert not (tmp_path / "board").exists()
    assert not (tmp_path / "backup").exists()
