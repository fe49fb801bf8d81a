"""Containers reach the stores that their job names, and no secret is where others look."""

from __future__ import annotations

import configparser
import stat
from pathlib import Path
from typing import Any

import fsspec
import pytest

from edl_docker.store_credentials import StoreAccess, provide, remove
from edl_proto.v1 import job_pb2
from recordio.kafka.addresses import read_settings

SECRET = "very-secret"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The user's settings for fsspec."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(fsspec.config, "conf", found)
    return found


def spec(**places: Any) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(name="boxed", **places)


def credentials(access: StoreAccess) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser()
    found.read(access.variables["AWS_SHARED_CREDENTIALS_FILE"])
    return found


def test_keys_of_the_environment_become_a_file_that_only_the_user_reads(tmp_path: Path) -> None:
    given = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "%t"}
    plain = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_DEFAULT_REGION": "here"}
    access = provide(tmp_path, spec(data=["s3://bucket/*"]), {**given, **plain, "OTHER": SECRET})
    assert dict(credentials(access)["default"]) == {
        "aws_access_key_id": "me",
        "aws_secret_access_key": SECRET,
        "aws_session_token": "%t",
    }
    assert access.variables.items() >= plain.items()
    assert not any(SECRET in text for text in access.variables.values())
    assert access.folder == tmp_path / "stores"
    for path in (access.folder, *access.folder.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    remove(tmp_path)
    assert not list(tmp_path.iterdir())


def test_files_of_the_home_are_copied_anew_each_time(tmp_path: Path) -> None:
    aws, job_dir = tmp_path / ".aws", tmp_path / "job"
    aws.mkdir()
    job_dir.mkdir()
    (aws / "config").write_text("[profile mine]\nregion = here\n")
    for key in ("first", "second"):
        (aws / "credentials").write_text(f"[mine]\naws_access_key_id = {key}\n")
        given = {"HOME": str(tmp_path), "AWS_PROFILE": "mine"}
        access = provide(job_dir, spec(output="s3://bucket/model"), given)
        assert credentials(access)["mine"]["aws_access_key_id"] == key
        assert access.variables["AWS_PROFILE"] == "mine"
        assert "here" in Path(access.variables["AWS_CONFIG_FILE"]).read_text()


def test_settings_of_kafka_and_the_files_that_they_name(tmp_path: Path) -> None:
    authority, config, job_dir = tmp_path / "ca.pem", tmp_path / "team", tmp_path / "job"
    job_dir.mkdir()
    authority.write_bytes(b"a certificate")
    config.write_text(f"ssl.ca.location={authority}\nsasl.username=me\n")
    given = {"EDL_KAFKA_CONFIG": str(config), "EDL_KAFKA_SASL_PASSWORD": SECRET}
    access = provide(job_dir, spec(data=["kafka://a:1/t"]), given)
    assert not any(SECRET in text for text in access.variables.values())
    found = read_settings(access.variables)
    copied = Path(found.pop("ssl.ca.location"))
    assert copied.parent == access.folder
    assert copied.read_bytes() == b"a certificate"
    assert found == {"sasl.username": "me", "sasl.password": SECRET}
    assert provide(job_dir, spec(data=["s3://bucket/a"]), {**given, "HOME": "/"}).folder is None


def test_google_s_credentials_and_settings_of_fsspec(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    own = tmp_path / "own.json"
    own.write_text(SECRET)
    settings |= {"gs": {"project": "p"}, "s3": {"secret": SECRET}}
    given = {"GOOGLE_APPLICATION_CREDENTIALS": str(own), "AWS_SECRET_ACCESS_KEY": SECRET}
    access = provide(tmp_path, spec(trained_model="gs://bucket/m"), given)
    assert Path(access.variables["GOOGLE_APPLICATION_CREDENTIALS"]).read_text() == SECRET
    read: dict[str, Any] = {}
    fsspec.config.set_conf_files(access.variables["FSSPEC_CONFIG_DIR"], read)
    # fsspec takes every file of the folder that ends in .json for settings.
    assert read == {"gs": {"project": "p"}}, "and none of another store"


@pytest.mark.parametrize("place", ["", "/data/of/mine", "file:///data", "memory://bucket"])
def test_a_job_without_such_a_store_gets_nothing(tmp_path: Path, place: str) -> None:
    given = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "here"}
    assert provide(tmp_path, spec(output=place), given) == StoreAccess()
    assert not list(tmp_path.iterdir())
