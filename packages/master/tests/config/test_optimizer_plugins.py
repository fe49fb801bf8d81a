"""Rules that packages of the environment have, by their entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl_master.config.optimizer_plugins import find_installed_rule
from edl_master.core.parameters.keras_config import OptimizerUnsupported

RULE = """
from dataclasses import dataclass
from edl_master.core.parameters.update_rules import ElementwiseRule

@dataclass(frozen=True)
class Rule(ElementwiseRule):
    def update(self, value, gradient, slots, step): ...

class Undecorated(ElementwiseRule):
    pass

@dataclass(frozen=True)
class Plain: ...
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed package ``acme`` 1.0."""
    (tmp_path / "acme_rules.py").write_text(RULE)
    install(tmp_path, "acme", Fine="acme_rules:Rule", Twice="acme_rules:Rule")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install(site: Path, package: str, **points: str) -> None:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[edl.optimizers]", *lines, ""]))


def test_a_rule_is_found_by_the_name_of_the_class(site: Path) -> None:
    rule = find_installed_rule("Fine")
    assert rule is not None
    assert rule.__name__ == "Rule"
    assert find_installed_rule("Other") is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("acme_nothing:Rule", "cannot be loaded .ModuleNotFoundError: .*acme_nothing"),
        ("acme_rules:Missing", "cannot be loaded .AttributeError: "),
        ("acme_rules:Undecorated", "is no dataclass derived from"),
        ("acme_rules:Plain", "is no dataclass derived from ElementwiseRule or WholeVariableRule"),
    ],
)
def test_a_broken_rule_is_reported_with_its_package(site: Path, value: str, problem: str) -> None:
    install(site, "broken", Broken=value)
    with pytest.raises(OptimizerUnsupported, match=problem) as refused:
        find_installed_rule("Broken")
    assert f"Broken, whose rule of broken 1.0 ({value})" in str(refused.value)
    assert refused.value.remedy == "repair or remove that package"


def test_two_packages_with_one_name_are_both_reported(site: Path) -> None:
    install(site, "other", Twice="acme_rules:Rule")
    with pytest.raises(OptimizerUnsupported) as refused:
        find_installed_rule("Twice")
    assert "acme 1.0 (acme_rules:Rule)" in str(refused.value)
    assert "other 1.0 (acme_rules:Rule)" in str(refused.value)
