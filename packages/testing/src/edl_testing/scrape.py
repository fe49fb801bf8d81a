"""The metrics of a job, as a scraper of the same user gets them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from edl_runtime.identity.page_key import metrics_token_file
from edl_runtime.local import job_directory


def scrape(job_dir: Path, timeout_s: float = 200.0) -> str:
    """Return the metrics in Prometheus' text format.

    Args:
        job_dir: directory of a job whose page is served.
    """
    facts = json.loads((job_dir / job_directory.MASTER).read_bytes())
    token = metrics_token_file(job_dir / job_directory.PAGE).read_text()
    request = urllib.request.Request(
        f"{facts['dashboard_url']}metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return str(answer.read().decode())
