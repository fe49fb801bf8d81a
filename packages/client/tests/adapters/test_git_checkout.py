"""What of a repository on this machine is refused; tests of the product fetch real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.adapters import git_checkout
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.model import git_source


def test_a_link_that_leads_out_of_a_repository_is_refused(tmp_path: Path) -> None:
    zoo = git_source.parse("https://host.example.com/zoo.git")
    assert zoo is not None
    (tmp_path / "secret").write_text("x")
    checkout = tmp_path / "checkout"
    (checkout / "zoo").mkdir(parents=True)
    (checkout / "zoo" / "same").symlink_to("../zoo")
    git_checkout._check_links(zoo, checkout)
    for target in ("../../secret", str(tmp_path / "secret"), "/nowhere"):
        (checkout / "zoo" / "w.txt").symlink_to(target)
        with pytest.raises(EdlError) as refused:
            git_checkout._check_links(zoo, checkout)
        assert refused.value.code == ErrorCode.FORBIDDEN
        assert "zoo/w.txt" in refused.value.where
        (checkout / "zoo" / "w.txt").unlink()
