"""``edl zoo verify``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edl.plugins.commands import argument, command, errors_as_output, output_option, print_result
from edl.plugins.errors import Problem, error_of, usage
from edl.plugins.options import BY_NAME, UNUSED, Given, Verb, find_given, gather, takes
from edl.plugins.submissions import build_submission
from edl_images import signatures


@command(
    "verify",
    examples="edl zoo verify registry.example.com/me/zoo@sha256:..."
    " --image-public-key signing.pub\n"
    "edl zoo verify registry.example.com/me/zoo@sha256:... -o json",
)
@takes([BY_NAME["image_public_key"]])
@argument("image", metavar="NAME@DIGEST", help="Name of an image.")
@output_option
def verify(**values: Any) -> None:
    """Check who has signed an image, and show how it was made."""
    output_format = values["output_format"]
    with errors_as_output(output_format):
        image = values["image"]
        options = [BY_NAME["image_public_key"]]
        statement = _verify_image(image, find_given(options, values))
        provenance = (statement or {}).get("predicate", {})
        print_result(
            {"image": image, "provenance": provenance or None},
            output_format,
            [f"{image}: signed", *_describe_provenance(provenance)],
            [image],
        )


def _describe_provenance(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that say how an image was made."""
    if not provenance:
        yield "  no signed statement says how it was made"
        return
    builder = provenance.get("runDetails", {}).get("builder", {})
    yield f"  builder  {builder.get('id', 'unknown')}"
    for each in provenance.get("buildDefinition", {}).get("resolvedDependencies", ()):
        digests = ", ".join(f"{kind}:{value}" for kind, value in each.get("digest", {}).items())
        yield f"  from     {each.get('uri') or each.get('name', '')} ({digests})"


def _verify_image(
    image: str,
    flags: Mapping[str, Given],
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
        given = gather(Verb.TRAIN, asked, environ=environ, cwd=folder)
        job = build_submission(Verb.TRAIN, given, cwd=str(folder), environ=environ)
        if not job.image_public_key:
            raise usage(
                "no public key is given",
                where="--image-public-key",
                remedy="Add --image-public-key FILE, or set image-public-key in your settings.",
            )
    except Problem as problem:
        raise error_of(problem) from None
    signatures.check(image, job.image_public_key)
    return signatures.provenance(image, job.image_public_key)
