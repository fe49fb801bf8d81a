"""``examples/sqlflow``: statements become models and columns, as a person would run it."""

from __future__ import annotations

import json

from conftest import ROOT, Edl

from edl_testing.requirements import require
from tests import database_servers


def test_statements_and_a_submitter_predict_columns_of_tables(edl: Edl) -> None:
    require(database_servers.missing())
    done = edl.shell("examples/sqlflow/run.sh", ROOT, timeout=900)
    assert "90 predictions in testdata.predicted_salary" in done.out
    assert "the label is salary, the last column" in done.err
    # The comparison ends with an error unless each row has its prediction.
    found = json.loads(done.out[done.out.index("{") :])
    print(json.dumps(found))
    salaries, diabetes = found["salaries, error"], found["diabetes, error"]
    for how in ("edl sql", "submitter"):
        assert salaries[how] < 0.5 * salaries["the mean"]
    assert diabetes["edl sql"] < 0.9 * diabetes["the mean"]
    assert found["wine, accuracy"]["edl sql"] > 0.85
