"""Settings that everybody may see are complete, and have no passwords."""

from __future__ import annotations

from edl_proto.public_settings import public_settings, without_user_info


def test_settings_are_flat_and_have_no_passwords() -> None:
    settings = {
        "data": ["s3://key:secret@host/a", "b"],
        "training": {"num_epochs": 2, "optimizer": {"rate": 0.1}, "loss": "", "seed": None},
        "containers": {"environment": "TOKEN=secret"},
    }
    assert public_settings(settings, ("containers",)) == {
        "data": "s3://host/a, b",
        "training.num_epochs": "2",
        "training.optimizer.rate": "0.1",
    }


def test_only_user_and_password_of_a_uri_go() -> None:
    assert without_user_info("no http://u:p@host/x@y nor u@v") == "no http://host/x@y nor u@v"
