"""Seconds until a caller has an image: nothing known, only code changed, nothing changed.

The peer of the last two is the first: what a builder would take each time that keeps no layers
and looks into no registry. Needs a container engine and a registry, as ``./dev engine`` does.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from bench.measure import Measure

ROOT = Path(__file__).resolve().parent.parent
RUNS = 3


def measures() -> list[dict[str, Any]]:
    """Each image of its own repository and requirements, so that none is known beforehand."""
    sys.path.insert(0, str(ROOT / "packages" / "builder" / "tests"))
    import zoos

    from tests.builder.docker_environment import NoEngine, missing_requirements, open_environment
    from tests.builder.service import build, serving

    reason = missing_requirements()
    if reason:
        print(f"bench: builds left out: {reason}", file=sys.stderr)
        return []
    seconds: list[tuple[float, float, float]] = []
    try:
        with (
            open_environment() as docker_env,
            tempfile.TemporaryDirectory() as folder,
            serving(docker_env, Path(folder) / "state") as service,
            service.caller() as stub,
        ):
            for _ in range(RUNS):
                name = uuid.uuid4().hex[:8]
                found = []
                for code in ("x = 1\n", "x = 2\n", "x = 2\n"):
                    wanted = f"toolz==1.0.0 ; platform_version != '{name}'\n"
                    archive = zoos.tar({"requirements.txt": wanted, "m.py": code})
                    outcome = build(stub, f"{docker_env.registry}/bench/{name}", archive)
                    if outcome.error is not None:
                        raise outcome.error
                    found.append(float(outcome.last.result.seconds))
                seconds.append((found[0], found[1], found[2]))
    except NoEngine as error:
        print(f"bench: builds left out: {error}", file=sys.stderr)
        return []
    titles = ("image, only code changed", "image, nothing changed")
    return [
        _measure(title, [(run[0], run[number]) for run in seconds])
        for number, title in enumerate(titles, start=1)
    ]


def _measure(name: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """How many times sooner than a cold build."""
    ratios = sorted(cold / ours for cold, ours in pairs)
    middle = len(pairs) // 2
    return Measure(
        name=name,
        value=sorted(ours for _, ours in pairs)[middle],
        unit="s",
        peer="cold build",
        peer_value=sorted(cold for cold, _ in pairs)[middle],
        ratio=ratios[middle],
        target=None,
        runs=[(cold, ours) for cold, ours in pairs],
    ).to_json()
