"""The quotas of tenants per day and per hour."""

from __future__ import annotations

from dataclasses import dataclass

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.identifiers import Caller

_DAY_S = 86400
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a tenant per day (UTC); 0 means unlimited.

    Attributes:
        builds: requests.
        nbytes: of archives sent.
        minutes: of builds and pushes in the engine.
        hourly_builds: requests in one hour of the day, so that a loop does not use up the day.
        concurrent_builds: builds that the engine works on at a time; the others wait.
    """

    builds: int = 0
    nbytes: int = 0
    minutes: float = 0.0
    hourly_builds: int = 0
    concurrent_builds: int = 0


@dataclass(slots=True)
class Usage:
    """The usage of a tenant in a day, in the units of ``Quota``; ``hour`` counts from 1970."""

    builds: int = 0
    nbytes: int = 0
    minutes: float = 0.0
    hour: int = 0
    hourly_builds: int = 0


class DailyUsage:
    """The usage of all tenants on the current day. Not thread-safe: its owner holds a lock."""

    def __init__(self, day: int = 0, usages: dict[Caller, Usage] | None = None) -> None:
        self.day = day
        self.usages = usages if usages is not None else {}

    def usage(self, tenant: Caller, now: float) -> Usage:
        """Return the mutable usage of a tenant on the day of ``now`` (seconds since 1970)."""
        day = int(now // _DAY_S)
        if day > self.day:
            # Only for a later day: a clock that was set back returns no quota.
            self.day = day
            self.usages.clear()
        used = self.usages.setdefault(tenant, Usage())
        hour = int(now // _HOUR_S)
        if hour > used.hour:
            used.hour, used.hourly_builds = hour, 0
        return used

    def count_build(self, tenant: Caller, now: float) -> None:
        """Add one request."""
        used = self.usage(tenant, now)
        used.builds += 1
        used.hourly_builds += 1

    def check(self, tenant: Caller, quota: Quota, now: float) -> None:
        """Raise BuilderError (LIMIT) if the tenant has used up one of its quotas."""
        used = self.usage(tenant, now)
        for count, limit, what, when in (
            (used.builds, quota.builds, "builds of today (UTC)", "tomorrow"),
            (used.hourly_builds, quota.hourly_builds, "builds of this hour", "in the next hour"),
            (used.nbytes, quota.nbytes, "bytes of archives of today (UTC)", "tomorrow"),
            (used.minutes, quota.minutes, "minutes of building of today (UTC)", "tomorrow"),
        ):
            if limit and count >= limit:
                raise BuilderError(
                    Reason.LIMIT,
                    f"{tenant} has used up its {limit:g} {what}",
                    where="quota",
                    remedy=f"Try again {when}, or ask the operator of the builder.",
                )
