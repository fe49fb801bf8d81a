"""People like those of a census as RecordIO files: numbers, words, and whether they earn much.

    python tools/census.py DIR [--records N] [--files N] [--sharpness X]

writes DIR/train/*.recordio and DIR/test/*.recordio of tf.Example records with ``age``,
``education_years``, ``capital_gain`` and ``hours_per_week`` (float), ``workclass``, ``education``,
``marital_status``, ``occupation``, ``relationship`` and ``country`` (strings) and ``income``
(int64, 1 for a high one). All of it is drawn; no person is in it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import recordio.example
from digits import write

EDUCATION = ("none", "primary", "secondary", "some-college", "bachelors", "masters", "doctorate")
WORDS = {
    "workclass": ("private", "self-employed", "federal", "state", "local", "without-pay"),
    "marital_status": ("never-married", "married", "divorced", "widowed", "separated"),
    "occupation": tuple(f"occupation-{n}" for n in range(40)),
    "relationship": ("husband", "wife", "own-child", "unmarried", "other"),
    "country": tuple(f"country-{n}" for n in range(120)),
}


def records(count: int, seed: int = 0, sharpness: float = 1.0) -> list[bytes]:
    """People; the sharper, the less of their income is chance."""
    random = np.random.default_rng(seed)
    weights = np.random.default_rng(99)  # what words mean is the same in every run
    age = np.clip(random.normal(39, 13, count), 17, 90)
    school = random.choice(len(EDUCATION), count, p=(0.03, 0.1, 0.35, 0.22, 0.2, 0.08, 0.02))
    years = 3.0 + 2 * school + random.integers(0, 2, count)
    gain = np.where(random.random(count) < 0.08, random.exponential(9000, count), 0.0)
    hours = np.clip(random.normal(40, 11, count), 1, 99)
    logit = 0.35 * (years - 12) + 0.04 * (age - 38) - 0.0012 * (age - 45) ** 2
    logit += gain / 6000 + 0.03 * (hours - 40) - 1.2
    words: dict[str, list[bytes]] = {"education": [EDUCATION[s].encode() for s in school]}
    for name, kinds in WORDS.items():
        skew = 1.0 / np.arange(1, len(kinds) + 1)
        drawn = random.choice(len(kinds), count, p=skew / skew.sum())
        logit = logit + weights.normal(0, 0.8, len(kinds))[drawn]
        words[name] = [kinds[kind].encode() for kind in drawn]
    income = random.random(count) < 1 / (1 + np.exp(-sharpness * logit))
    numbers = {"age": age, "education_years": years, "capital_gain": gain, "hours_per_week": hours}
    return [
        recordio.example.encode(
            {
                **{name: np.array([column[i]], np.float32) for name, column in numbers.items()},
                **{name: [column[i]] for name, column in words.items()},
                "income": np.array([int(income[i])]),
            }
        )
        for i in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=20_000, help="for training")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument(
        "--sharpness", type=float, default=1.0, help="the more, the less chance is in the incomes"
    )
    chosen = parser.parse_args()
    train = records(chosen.records, 0, chosen.sharpness)
    test = records(max(1, chosen.records // 5), 1, chosen.sharpness)
    write(chosen.directory / "train", train, chosen.files, "people")
    write(chosen.directory / "test", test, 1, "people")


if __name__ == "__main__":
    main()
