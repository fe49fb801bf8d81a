"""Tables of scikit-learn in PostgreSQL, and how near predictions in them come to the truth.

``python tables.py fill URL`` makes the tables, ``python tables.py compare URL`` prints what came of
them as JSON. Every fourth row is predicted; the others are learned from. ``python tables.py
generate URL ROWS`` makes tables of so many rows, of which a quarter is predicted, and ``python
tables.py rename URL`` puts the predicted salaries aside.
"""

import json
import sys
from itertools import compress

import numpy as np
import psycopg
from sklearn.datasets import load_diabetes, load_wine
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

PATIENTS = load_diabetes(scaled=False)
WINES = load_wine()
CULTIVARS = np.array(["Barolo", "Grignolino", "Barbera"])[WINES.target]
PAY = {"clerk": 30_000, "engineer": 60_000, "manager": 80_000, "director": 120_000}
EMPLOYEES = [(f"employee {number}", role) for number, role in enumerate([*PAY, *PAY, "clerk"] * 40)]
SALARIES = np.array([PAY[role] + number % 37 * 100.0 for number, (_, role) in enumerate(EMPLOYEES)])


def is_new(rows):
    return np.arange(rows) % 4 == 0


def fill(connection):
    for table, found, label, truth, kind in (
        ("patients", PATIENTS, "progression", PATIENTS.target, "float8"),
        ("wines", WINES, "cultivar", CULTIVARS, "text"),
    ):
        names = [name.replace("/", "_") for name in found.feature_names]
        declared = "id serial PRIMARY KEY, " + ", ".join(f"{name} float8" for name in names)
        connection.execute(f"CREATE TABLE {table} ({declared}, {label} {kind})")
        connection.execute(f"CREATE TABLE new_{table} ({declared})")
        new = is_new(len(truth))
        known = [*found.data[~new].T.tolist(), truth[~new].tolist()]
        copy(connection, table, [*names, label], zip(*known, strict=True))
        copy(connection, f"new_{table}", names, found.data[new].tolist())
    connection.execute("CREATE TABLE employee (name text PRIMARY KEY, role text, salary float8)")
    connection.execute("CREATE TABLE testdata (name text PRIMARY KEY, role text)")
    new = is_new(len(EMPLOYEES))
    paid = [(*who, pay) for who, pay in zip(EMPLOYEES, SALARIES.tolist(), strict=True)]
    copy(connection, "employee", ["name", "role", "salary"], compress(paid, ~new))
    copy(connection, "testdata", ["name", "role"], compress(EMPLOYEES, new))


def generate(connection, rows):
    """Rides of three cities: what they cost, but for a fourth of them."""
    connection.execute(
        f"""CREATE TABLE rides AS
            SELECT id, distance, minutes, city,
                2.5 + 1.2 * distance + 0.3 * minutes + 3 * (city = 'Turin')::int::float8 AS price
            FROM (SELECT number AS id, number % 997 / 40.0::float8 AS distance,
                    number % 61 + number % 997 / 20 AS minutes,
                    (ARRAY['Milan', 'Turin', 'Genoa'])[number % 3 + 1] AS city
                FROM generate_series(1, {rows}) AS number) AS ride"""
    )
    connection.execute("CREATE TABLE charged AS SELECT id, price FROM rides WHERE id % 4 = 0")
    connection.execute(
        "CREATE TABLE new_rides AS SELECT id, distance, minutes, city FROM rides WHERE id % 4 = 0"
    )
    connection.execute("ALTER TABLE new_rides ADD PRIMARY KEY (id)")
    connection.execute("DELETE FROM rides WHERE id % 4 = 0")


def copy(connection, table, names, rows):
    statement = f"COPY {table} ({', '.join(names)}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(statement) as lines:
        for row in rows:
            lines.write_row(row)


def compare(connection):
    def column(name, table, key="id"):
        rows = connection.execute(f"SELECT {name} FROM {table} ORDER BY {key}").fetchall()
        if (None,) in rows:
            raise SystemExit(f"a row of {table} has no {name}")
        return np.array([value for (value,) in rows])

    new = is_new(len(EMPLOYEES))
    roles = np.array([[role == known for known in PAY] for _, role in EMPLOYEES], float)
    # Rows by name, as the columns below are read.
    order = sorted(np.flatnonzero(new), key=lambda number: EMPLOYEES[number][0])
    truth = SALARIES[order]
    yield (
        "salaries, error",
        {
            "edl sql": error(column("salary_by_edl_sql", "testdata", "name"), truth),
            "submitter": error(column("predicted_salary", "testdata", "name"), truth),
            **peers(roles[~new], SALARIES[~new], roles[order], truth, epochs=100),
        },
    )
    new = is_new(len(PATIENTS.target))
    known, truth = PATIENTS.target[~new], PATIENTS.target[new]
    yield (
        "diabetes, error",
        {
            "edl sql": error(column("predicted_progression", "new_patients"), truth),
            **peers(PATIENTS.data[~new], known, PATIENTS.data[new], truth, epochs=20),
        },
    )
    if connection.execute("SELECT to_regclass('new_rides')").fetchone() != (None,):
        truth = column("price", "charged")
        paid = connection.execute("SELECT avg(price) FROM rides").fetchone()[0]
        yield (
            "rides, error",
            {
                "rows": len(truth),
                "edl sql": error(column("price", "new_rides"), truth),
                "the mean": error(float(paid), truth),
            },
        )
    new = is_new(len(CULTIVARS))
    peer = make_pipeline(StandardScaler(), MLPClassifier((64, 32), random_state=0))
    peer.fit(WINES.data[~new], CULTIVARS[~new])
    found = column("predicted_cultivar", "new_wines")
    yield (
        "wine, accuracy",
        {
            "edl sql": float(np.mean(found == CULTIVARS[new])),
            "MLPClassifier": float(peer.score(WINES.data[new], CULTIVARS[new])),
        },
    )


def peers(rows, values, new_rows, truth, *, epochs):
    """The errors of scikit-learn's network, and of the mean."""
    mean, deviation = values.mean(), values.std()
    errors = []
    for seed in range(5):
        network = MLPRegressor(
            hidden_layer_sizes=(10, 100, 20, 5),
            learning_rate_init=0.01,
            batch_size=32,
            max_iter=epochs,
            random_state=seed,
        )
        peer = make_pipeline(StandardScaler(), network)
        peer.fit(rows, (values - mean) / deviation)
        errors.append(error(mean + deviation * peer.predict(new_rows), truth))
    return {"MLPRegressor, mean of five": float(np.mean(errors)), "the mean": error(mean, truth)}


def error(predicted, truth):
    """The root of the mean squared difference."""
    return float(np.sqrt(np.mean(np.square(predicted - truth))))


if __name__ == "__main__":
    what, url, *rest = sys.argv[1:]
    with psycopg.connect(url) as connection:
        if what == "fill":
            fill(connection)
        elif what == "rename":
            connection.execute(
                "ALTER TABLE testdata RENAME COLUMN predicted_salary TO salary_by_edl_sql"
            )
        elif what == "generate":
            generate(connection, int(rest[0]))
        else:
            print(json.dumps(dict(compare(connection)), indent=2))
