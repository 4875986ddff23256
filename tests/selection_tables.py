"""Tables of outcomes made for tests: topics that models are good or bad at, and questions that come twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsim.selection.tables import Outcomes, same_questions

TOPICS = ("algebra sums proofs", "history dates kings", "code loops bugs", "biology cells genes")


def make_table(rows: int = 120, models: int = 3, seed: int = 0, repeats: int = 10, **given: Any) -> Outcomes:
    """Each model knows some topics; dearer ones know more; the last `repeats` rows repeat the first."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, len(TOPICS), rows)
    texts = [
        f"{TOPICS[t]} question {row} " + "word " * int(rng.integers(0, 30)) for row, t in enumerate(topic)
    ]
    for row in range(repeats):
        texts[rows - 1 - row], topic[rows - 1 - row] = texts[row], topic[row]
    skill = 0.2 + 0.7 * (rng.random((models, len(TOPICS))) < np.linspace(0.3, 0.8, models)[:, None])
    scores = (rng.random((rows, models)) < skill[:, topic].T).astype(np.float64)
    costs = np.linspace(1.0, 5.0, models) * rng.uniform(0.5, 1.5, (rows, 1))
    fields: dict[str, Any] = {
        "name": "made",
        "models": tuple(f"m{k}" for k in range(models)),
        "scores": scores,
        "costs": costs,
        "question": same_questions(texts),
        "texts": tuple(texts),
        "domain": tuple(f"topic {t}" for t in topic),
    }
    return Outcomes(**fields | given)
