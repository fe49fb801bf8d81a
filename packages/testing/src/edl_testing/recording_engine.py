"""An engine of containers that runs none."""

from __future__ import annotations

from typing import Any


class RecordingEngine:
    """Keeps what it is told to create."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, **options: Any) -> None:
        self.created.append(options)

    def containers(self, **filters: Any) -> list[dict[str, Any]]:
        return []

    def start(self, name: str) -> None:
        """Does not run it."""
