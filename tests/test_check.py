"""``./dev check`` runs the tests that are nearest to a change first."""

from __future__ import annotations

import check
import workspace

MASTER = workspace.packages()["master"]
CHANGED = "packages/master/src/edl_master/core/permutation.py"


def test_tests_are_sorted_by_their_distance_from_a_change() -> None:
    tests = check.sort_tests(MASTER, [CHANGED])
    assert tests[0] == "packages/master/tests/core/test_permutation.py"
    assert check.sort_tests(MASTER, [CHANGED, tests[-1]])[0] == tests[-1]


def test_a_package_is_tested_with_what_it_requires_and_with_no_other_service() -> None:
    found = workspace.own_requirements(MASTER)
    assert found["master"] == ()
    assert set(found) == {"master", "proto", "recordio", "runtime", "spans", "testing"}
