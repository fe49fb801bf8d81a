"""The recipe: a Dockerfile, and where everything lies in the build's context.

From what changes seldom to what changes often: base, worker, requirements, code. A change of the
code alone leaves the layers before it as they are.
"""

from __future__ import annotations

import importlib.resources
import json
import shlex
from dataclasses import dataclass

from edl_builder import in_image
from edl_builder.core.content import Runtime
from edl_builder.core.references import OUR_LABELS
from edl_runtime.image_names import IMAGE_ZOO

USER = "10001:10001"
"""Any number except 0: Kubernetes checks runAsNonRoot by number."""

RUNTIME = "/opt/edl-runtime"
REQUIREMENTS = "/opt/edl-requirements"
SBOM = "/usr/share/edl/sbom.cdx.json"
"""The list of an image's packages."""

EPOCH = 315532800
"""The time of every file, in seconds since 1970: 1980, the first that zip files have."""

# Each of these is copied to the root: folders that a step makes itself have a time of their own.
CONTEXT_ZOO = "zoo"
CONTEXT_RUNTIME = "runtime"
CONTEXT_REQUIREMENTS = "requirements"

IMAGE_LABEL = f"{OUR_LABELS}image"
"""The label of each finished or half-built image of the builder."""

KEY_LABEL = f"{OUR_LABELS}key"
CACHE_LABEL = f"{OUR_LABELS}cache"

_PIP = "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore"
_CHECK = (
    "import importlib.util, sys; "
    "sys.exit(0 if importlib.util.find_spec('edl_worker') else "
    "'the image has no edl_worker: use a base image with the worker')"
)


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """Where pip finds packages, by the operator's choice; empty: pip's own default."""

    url: str = ""
    find_links: str = ""


def dockerfile(
    base: str,
    runtime: Runtime,
    has_requirements: bool,
    index: PackageIndex,
    cache: str = "",
) -> str:
    """Return the recipe of an image.

    Args:
        base: pinned by digest.
        runtime: the worker, unless the base has it.
        has_requirements: whether the zoo asks for packages.
        index: where pip looks.
        cache: whose layers may be reused; others would learn what a tenant has installed.
    """
    pip = f"{_PIP} {_program('install.py')}"
    if index.url:
        pip += f" --index-url {shlex.quote(index.url)}"
    if index.find_links:
        pip += f" --find-links {shlex.quote(index.find_links)}"
    # The first step already differs, so that no layer is shared with another cache.
    own = f' {CACHE_LABEL}="{cache}"' if cache else ""
    lines = [f"FROM {base}", f'LABEL {IMAGE_LABEL}="1"{own}', "USER 0"]
    if runtime.requirements:
        asked = " ".join(shlex.quote(each) for each in runtime.requirements)
        found = ""
        if runtime.wheels:
            lines.append(f"COPY {CONTEXT_RUNTIME}/ /")
            found = f" --find-links {RUNTIME}"
        lines.append(_run(f"{pip}{found} -- {asked}"))
    lines.append(_run(f"python3 -P -B -c {shlex.quote(_CHECK)}"))
    if has_requirements:
        lines += [
            f"COPY {CONTEXT_REQUIREMENTS}/ /",
            _run(f"{pip} -- -r {REQUIREMENTS}/requirements.txt"),
        ]
    lines += [
        _run(f"{_program('sbom.py')} {SBOM}"),
        f"COPY {CONTEXT_ZOO}/ /",
        # Libraries write caches below HOME; the user has no home of its own.
        "ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1",
        f"WORKDIR {IMAGE_ZOO}",
        f"USER {USER}",
    ]
    return "\n".join(lines) + "\n"


def _run(command: str) -> str:
    """Return a step whose layer has fixed times, also in compiled files of Python."""
    set_times = f'{_program("set_times.py")} "$begin" {EPOCH}'
    return f"RUN export SOURCE_DATE_EPOCH={EPOCH} begin=$(date +%s.%N) && {command} && {set_times}"


def _program(name: str) -> str:
    """Return the command that runs a program of ``in_image`` without a file in the image."""
    text = (importlib.resources.files(in_image) / name).read_text("utf-8")
    return f"python3 -P -B -c {shlex.quote(f'exec({json.dumps(text)})')}"
