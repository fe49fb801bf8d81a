"""Which worker of a machine has which GPU."""

from __future__ import annotations

from dataclasses import dataclass

from edl_master.core.identifiers import WorkerId


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """The GPUs of a job's machine: each worker has one, by its number.

    Attributes:
        names: as ``CUDA_VISIBLE_DEVICES`` takes them; empty: workers train on processors, or the
            platform itself assigns devices.
        shared: whether several workers may have the same one.
    """

    names: tuple[str, ...] = ()
    shared: bool = False

    def gpu_of(self, worker: WorkerId) -> str:
        """Return the GPU of a worker; empty: it has none."""
        return self.names[worker % len(self.names)] if self.names else ""

    def find_fault(self, workers: int) -> str:
        """Return why so many workers cannot have a GPU each; empty if they can."""
        if not self.names or self.shared or workers <= len(self.names):
            return ""
        count = f"{len(self.names)} GPU" + "s" * (len(self.names) > 1)
        return f"each worker needs a GPU of its own, and there are {workers} workers for {count}"


NO_GPUS = GpuAssignment()
