"""The recipe: a Dockerfile, and where everything lies in the build's context.

From what changes seldom to what changes often: base, worker, requirements, code. A change of the
code alone leaves the layers before it as they are.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from edl_builder.core.content import Runtime
from edl_builder.core.references import OUR_LABELS

ZOO = "/model_zoo"
USER = "10001:10001"
"""Any number but 0; Kubernetes checks runAsNonRoot by number."""

CONTEXT_ZOO = "zoo"
CONTEXT_RUNTIME = "runtime"
CONTEXT_REQUIREMENTS = "requirements"

IMAGE_LABEL = f"{OUR_LABELS}image"
"""Label of each image and half-built image that the builder has made."""

KEY_LABEL = f"{OUR_LABELS}key"
CACHE_LABEL = f"{OUR_LABELS}cache"

_PIP = "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install"
_PIP_OPTIONS = "--no-input --no-cache-dir --disable-pip-version-check"
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
    """The recipe of an image.

    Args:
        base: pinned by digest.
        runtime: the worker, unless the base has it.
        has_requirements: whether the zoo asks for packages.
        index: where pip looks.
        cache: whose layers may be used again; others would learn what somebody has installed.
    """
    pip = f"{_PIP} {_PIP_OPTIONS}"
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
            lines.append(f"COPY {CONTEXT_RUNTIME}/ /opt/edl-runtime/")
            found = " --find-links /opt/edl-runtime"
        lines.append(f"RUN {pip}{found} {asked}")
    lines.append(f"RUN python3 -c {shlex.quote(_CHECK)}")
    if has_requirements:
        lines += [
            f"COPY {CONTEXT_REQUIREMENTS}/ /opt/edl-requirements/",
            f"RUN {pip} -r /opt/edl-requirements/requirements.txt",
        ]
    lines += [
        f"COPY {CONTEXT_ZOO}/ {ZOO}/",
        # Libraries write caches below HOME; the user has no home of its own.
        "ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1",
        f"WORKDIR {ZOO}",
        f"USER {USER}",
    ]
    return "\n".join(lines) + "\n"
