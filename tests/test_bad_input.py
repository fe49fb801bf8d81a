"""Each error is told on one screen, with what, where and what to do.

What the client finds by itself is tested in the client's package (``cli/test_bad_input.py``). Every
case also ends with a documented exit code, leaves no process (the ``edl`` fixture sees to
that) and nothing half-written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Edl, eventually
from refusals import (
    DATA,
    FAILED,
    GOOD,
    MODEL,
    USAGE,
    attempt,
    check_refusal,
    nothing_began,
)


@pytest.fixture
def zoo(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a model file that is right but for what the test changes."""

    def write(source: str) -> Path:
        place = tmp_path / "zoo"
        place.mkdir()
        (place / "mine.py").write_text(source)
        return place

    return write


def test_the_model_file_of_these_tests_is_right(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    done = attempt(edl, tmp_path, digit_data / "train", model_def="mine", zoo=zoo(GOOD))
    assert done.code == 0, str(done)


@pytest.mark.own_start
def test_a_check_that_is_killed_leaves_no_process(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    source = f"import pathlib, time\npathlib.Path({str(tmp_path / 'loads')!r}).touch()\n"
    place = zoo(source + "time.sleep(600)\n" + GOOD)
    model = ("--model-zoo", str(place), "--model-def", "mine", "--data", f"{digit_data}/train")
    command = edl.start("zoo", "check", *model)
    eventually((tmp_path / "loads").exists, "the model file is loaded")
    assert edl.processes()
    command.kill()
    command.communicate()
    eventually(lambda: not edl.processes(), "the check has ended", timeout=60)


# --- data ----------------------------------------------------------------------------------


def test_a_file_cut_short(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    whole = (digit_data / "train" / "digits-00.recordio").read_bytes()
    (tmp_path / "cut.recordio").write_bytes(whole[:-100])
    check_refusal(attempt(edl, tmp_path, tmp_path / "cut.recordio"), DATA, "cut.recordio", "offset")


def test_a_file_with_a_flipped_bit_in_a_record(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    content = bytearray((digit_data / "train" / "digits-00.recordio").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "flipped.recordio").write_bytes(content)
    check_refusal(
        attempt(edl, tmp_path, tmp_path / "flipped.recordio"),
        DATA,
        *("flipped.recordio", "CRC", "chunk", "offset"),
    )


def test_values_of_another_type(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace(
        '"label": tf.io.FixedLenFeature([1], tf.int64)',
        '"label": tf.io.FixedLenFeature([1], tf.float32)',
    )
    assert wrong != GOOD
    done = attempt(edl, tmp_path, digit_data / "train", model_def="mine", zoo=zoo(wrong))
    check_refusal(done, done.code, "label")
    assert done.code in (MODEL, FAILED)


def test_values_of_another_shape(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace("keras.Input((28, 28)", "keras.Input((32, 32)")
    data = digit_data / "train"
    check_refusal(
        attempt(edl, tmp_path, data, "--dry-run", model_def="mine", zoo=zoo(wrong)),
        MODEL,
        *("28, 28", "32, 32"),
    )


# --- the model file ------------------------------------------------------------------------


def test_a_model_file_that_raises_when_imported(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace("keras.layers.Dense(10)", "keras.layers.Dens(10)")
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", model_def="mine", zoo=zoo(wrong)),
        MODEL,
        *("mine.py", "Dens", ":6"),
    )


def test_a_model_file_that_misses_parts_hears_of_all_of_them(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace("def loss(", "def cost(").replace("def optimizer(", "def sgd(")
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", model_def="mine", zoo=zoo(wrong)),
        MODEL,
        *("loss", "optimizer"),
    )


def test_an_optimizer_that_the_master_lacks(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace("SGD(0.01)", "SGD(0.01, gradient_accumulation_steps=2)")
    server = ("--strategy", "parameter-server")
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", *server, model_def="mine", zoo=zoo(wrong)),
        MODEL,
        "gradient_accumulation_steps",
        "--strategy allreduce",
    )


def test_a_loss_that_is_not_a_number(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace("SGD(0.01)", "SGD(1e38)")
    check_refusal(
        attempt(
            edl,
            tmp_path,
            digit_data / "train",
            "--num-epochs",
            "5",
            model_def="mine",
            zoo=zoo(wrong),
        ),
        MODEL,
        *("loss", ".recordio", "learning rate"),
    )


def test_user_code_that_raises_while_it_works(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD.replace(
        "    return dataset.map(parse)",
        "    def bad(image, label):\n"
        "        raise KeyError('no such digit')\n"
        "    return dataset.map(parse).map(lambda image, label: tf.numpy_function(\n"
        "        bad, [image, label], [tf.float32, tf.int64]))",
    )
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", model_def="mine", zoo=zoo(wrong)),
        MODEL,
        "no such digit",
    )


def test_a_worker_that_crashes_in_a_loop(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD + "\nimport os, sys\nprint('going down', file=sys.stderr)\nos._exit(77)\n"
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", model_def="mine", zoo=zoo(wrong)),
        FAILED,
        *("77", "going down"),
    )


def test_an_unknown_parameter(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", "--params", "learning_rat=0.1"),
        USAGE,
        "learning_rat",
    )


# --- a dry run -----------------------------------------------------------------------------


def test_a_dry_run_finds_an_optimizer_that_keras_does_not_have(
    edl: Edl, tmp_path: Path, digit_data: Path, zoo: Callable[[str], Path]
) -> None:
    wrong = GOOD[: GOOD.index("def optimizer")] + "optimizer = 'sgdd'\n"
    check_refusal(
        attempt(edl, tmp_path, digit_data / "train", "--dry-run", model_def="mine", zoo=zoo(wrong)),
        MODEL,
        *("sgdd", "mine.py:24, optimizer", "Did you mean sgd?"),
    )
    nothing_began(edl)


def test_a_dry_run_finds_a_misspelt_parameter(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    wrong = ("--params", "learning_rat=0.1")
    done = attempt(edl, tmp_path, digit_data / "train", "--dry-run", *wrong)
    check_refusal(done, USAGE, "learning_rat", "lr")
    nothing_began(edl)


def test_a_dry_run_finds_a_flipped_bit_in_a_file_that_its_trial_does_not_read(
    edl: Edl, tmp_path: Path, digit_data: Path
) -> None:
    (tmp_path / "data").mkdir()
    content = bytearray((digit_data / "train" / "digits-00.recordio").read_bytes())
    (tmp_path / "data" / "first.recordio").write_bytes(content)
    content[len(content) // 2] ^= 1
    (tmp_path / "data" / "flipped.recordio").write_bytes(content)
    done = attempt(edl, tmp_path, tmp_path / "data", "--dry-run")
    check_refusal(done, DATA, "flipped.recordio", "CRC", "chunk")
    nothing_began(edl)
