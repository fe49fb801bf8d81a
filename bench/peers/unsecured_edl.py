"""The command ``edl``, whose jobs have no identities: the peer that shows what security costs."""

from __future__ import annotations

from edl.__main__ import main
from edl.adapters.local import job_identities


def _none(*_: object) -> None:
    """A job without the folder is not secured."""


if __name__ == "__main__":
    job_identities.create = _none
    main()
