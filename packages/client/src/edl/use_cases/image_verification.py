"""Says who has signed an image, and how it was made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edl import codec, settings
from edl.core.options import UNUSED, Given, Verb
from edl.core.problem import Problem, usage
from edl.core.submission import build
from edl.ports.images import ImageSignatures


def verify(
    image: str,
    flags: Mapping[str, Given],
    signatures: ImageSignatures,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Mapping[str, Any] | None:
    """Check an image as a job that runs in it does, with the keys of the options.

    Returns:
        The statement of how it was made that one of the keys has signed; None if there is none.

    Raises:
        EdlError: USAGE; FORBIDDEN, if no key has signed it; or REGISTRY_UNAVAILABLE.
    """
    needed = dict.fromkeys(("model_zoo", "model_def", "data", "output"), UNUSED)
    folder = cwd or Path.cwd()
    try:
        asked = {**needed, **flags, "image": Given(image, "IMAGE")}
        given = settings.gather(Verb.TRAIN, asked, environ=environ, cwd=folder)
        job = build(Verb.TRAIN, given, cwd=str(folder), environ=environ)
        if not job.image_public_key:
            raise usage(
                "no public key is given",
                where="--image-public-key",
                remedy="Add --image-public-key FILE, or set image-public-key in your settings.",
            )
    except Problem as problem:
        raise codec.error_of(problem) from None
    signatures.check(image, job.image_public_key)
    return signatures.provenance(image, job.image_public_key)
