"""Messages of the command line in the words of the Python API."""

from __future__ import annotations

import pytest

from edl.core.python_names import translate


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("For example: --num-workers 1:4", 'For example: num_workers="1:4"'),
        ("--data: it is empty", "data: it is empty"),
        ("--data is empty", "data is empty"),
        ("Choose another --output, or remove it.", "Choose another output, or remove it."),
        ('For example: --data "train/*.recordio"', 'For example: data="train/*.recordio"'),
        ("Add --num-epochs 3.", "Add num_epochs=3."),
        ("Leave --detach out", "Leave detach out"),
        ("--no-shuffle keeps the order.", "shuffle=False keeps the order."),
        ("For example: --shuffle", "For example: shuffle=True"),
        ("--overwrite replaces a model", "overwrite=True replaces a model"),
        ("the option --num-worker", "the option num_worker"),
        ("pip install --find-links dist x", "pip install --find-links dist x"),
        ("edl scale j --num-workers 4", "edl scale j --num-workers 4"),
        ("edl delete j --yes, then --name k", "edl delete j --yes, then name k"),
        ("edl resume j continues it.", 'elasticdl.resume("j") continues it.'),
        ("edl resume j --num-epochs 4", 'elasticdl.resume("j", num_epochs=4)'),
        ("edl export j --output DIR writes it", 'elasticdl.export("j", output=DIR) writes it'),
        ("edl export j --overwrite does", 'elasticdl.export("j", overwrite=True) does'),
        ("edl train has no option --keep", "elasticdl.train has no option keep"),
        ("edl train --help lists them", "help(elasticdl.train) lists them"),
        (
            "edl predict --trained-model my_model --keep x,y",
            'elasticdl.predict(trained_model="my_model", keep="x,y")',
        ),
    ],
)
def test_options_and_commands_have_their_python_names(text: str, translated: str) -> None:
    assert translate(text, ["num_worker"]) == translated
