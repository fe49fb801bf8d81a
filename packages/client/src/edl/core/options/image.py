"""Options of the container image."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import EVALUATE_OR_PREDICT, TRAIN, Option, declare
from edl.core.options.value_types import Flag, Names, Text


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The options that say which image a job uses, and which builder makes it."""

    image: str = declare(
        Option(
            Text("NAME@DIGEST"),
            "Use this image instead of building one.",
            "registry.example.com/me/zoo@sha256:" + 64 * "0",
            default_text="the trained model's image, or built from the model zoo",
            spec="image",
        )
    )
    trusted_images: tuple[str, ...] = declare(
        Option(
            Names("REPOSITORY,..."),
            "Image repositories, or the beginnings of their paths, that trained models may name.",
            "registry.example.com/team",
            default=(),
            default_text="the one of --repository",
            verbs=EVALUATE_OR_PREDICT,
            protects_user=True,
        )
    )
    trust_model: bool = declare(
        Option(
            Flag(),
            "Run the code of another user's trained model: its image and its model zoo.",
            default=False,
            verbs=EVALUATE_OR_PREDICT,
            per_run=True,
        )
    )
    image_public_key: str = declare(
        Option(
            Text("FILE"),
            "Public keys, in PEM; the job runs only in an image that one of them has signed.",
            "signing.pub",
            default_text="no signature is required",
            is_path=True,
            protects_user=True,
        )
    )
    builder: str = declare(
        Option(
            Text("HOST:PORT"),
            "Address of the builder service.",
            "builder.example.com:50051",
            default_text="a builder on this machine, for this command",
        )
    )
    repository: str = declare(
        Option(
            Text("REGISTRY/PATH"),
            "Repository that images are pushed to.",
            "registry.example.com/me/zoo",
        )
    )
    base_image: str = declare(
        Option(
            Text("NAME"),
            "Image with worker and master to build on.",
            "registry.example.com/edl/worker:0.1.0",
            default_text="set by the builder",
        )
    )
    git_credential: str = declare(
        Option(
            Text("NAME"),
            "Name of the builder's credential for a private git repository of model files.",
            "company-git",
            verbs=TRAIN,
        )
    )
    builder_ca: str = declare(
        Option(
            Text("FILE"),
            "Certificates, in PEM, that authenticate the builder.",
            "builder-ca.pem",
            default_text="the certificates of this machine",
            is_path=True,
            protects_user=True,
        )
    )
    builder_identity: str = declare(
        Option(
            Text("FILE"),
            "Client certificate and key, in PEM, for the builder.",
            "client.pem",
            is_path=True,
        )
    )
    builder_config: str = declare(
        Option(
            Text("FILE"),
            "Settings of the builder on this machine: registries and limits.",
            "builder.toml",
            is_path=True,
        )
    )
    build_network: str = declare(
        Option(
            Text("NAME"),
            "Network of build steps on this machine.",
            "host",
            default_text="the default of the engine",
        )
    )
    engine: str = declare(
        Option(
            Text("URL"),
            "Container engine of this machine.",
            "unix:///run/user/1000/docker.sock",
            default_text="$DOCKER_HOST, or the usual socket",
        )
    )
