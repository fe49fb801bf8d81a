"""How much a tenant may use in a day."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.names import BuilderError, Caller, Reason

_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may use in a day (UTC); 0: as much as it likes.

    Attributes:
        builds: requests.
        nbytes: of archives sent.
        minutes: of builds and pushes in the engine.
    """

    builds: int = 0
    nbytes: int = 0
    minutes: float = 0.0


@dataclass(slots=True)
class Usage:
    """What a tenant has used in a day, in the units of ``Quota``."""

    builds: int = 0
    nbytes: int = 0
    minutes: float = 0.0


class UsageLedger:
    """What each tenant has used today. Not thread-safe: its owner holds a lock."""

    def __init__(self, day: int = 0, usages: dict[Caller, Usage] | None = None) -> None:
        self.day = day
        self.usages = usages if usages is not None else {}

    def usage(self, tenant: Caller, now: float) -> Usage:
        """What a tenant has used on the day of ``now`` (seconds since 1970), to be added to."""
        day = int(now // _DAY_S)
        if day > self.day:
            # A clock that goes back gives nothing back.
            self.day = day
            self.usages.clear()
        return self.usages.setdefault(tenant, Usage())

    def check(self, tenant: Caller, quota: Quota, now: float) -> None:
        """Raises: BuilderError: LIMIT, if the tenant has used up one of its quotas."""
        used = self.usage(tenant, now)
        for count, limit, what in (
            (used.builds, quota.builds, "builds"),
            (used.nbytes, quota.nbytes, "bytes of archives"),
            (used.minutes, quota.minutes, "minutes of building"),
        ):
            if limit and count >= limit:
                raise BuilderError(
                    Reason.LIMIT,
                    f"{tenant} has used up its {limit:g} {what} of today (UTC)",
                    where="quota",
                    remedy="Try again tomorrow, or ask the operator of the builder.",
                )
