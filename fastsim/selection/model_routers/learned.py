"""Routers that learn from features of questions how good each model's answer will be."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.selection.model_routers.features import lengths, words, words_and_length
from fastsim.selection.model_routers.registry import UNUSED, Predict, model_router
from fastsim.selection.tables import Floats, Outcomes, Questions

Positive = Annotated[float, Meta(gt=0.0)]
Count = Annotated[int, Meta(ge=1)]


class Neighbours(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the k-nearest-neighbour router; k is capped by the table's size."""

    k: Count = 40


class Inverse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of logistic routers: inverse strength of the L2 penalty, as scikit-learn has it."""

    c: Positive = 1.0


class Factors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of matrix factorisation: factors, and the ridge penalty."""

    factors: Count = 4
    penalty: Positive = 3.0


@model_router("length", needs=("features",))
def length(train: Outcomes, params: object, seed: int) -> Predict:
    """Fits a straight line of each model's score against the logarithm of the question's length."""
    features = lengths(train)
    x = features(train.questions)[:, 0]
    slopes = (x[:, None] * (train.scores - train.scores.mean(axis=0))).mean(axis=0)  # x has unit variance
    means = train.scores.mean(axis=0)
    return lambda questions: means + features(questions) * slopes


@model_router("win_probability", needs=("features",), params=Inverse)
def win_probability(train: Outcomes, params: Inverse, seed: int) -> Predict:
    """Thresholds the logistic probability that the best model beats the cheapest; uses these two alone.

    The rule of RouteLLM (arXiv 2406.18665, section 3): strong iff P(strong wins) reaches the threshold.
    """
    weak, strong = int(np.argmin(train.costs.mean(axis=0))), int(np.argmax(train.scores.mean(axis=0)))
    features = words_and_length(train)
    wins = (train.scores[:, strong] > train.scores[:, weak]).astype(np.float64)
    chance = _logistic(features(train.questions), wins, params.c)

    def predict(questions: Questions) -> Floats:
        found = np.full((questions.size, len(train.models)), UNUSED)
        found[:, weak] = 0.0
        found[:, strong] = chance(features(questions))  # alone where the best is the cheapest
        return found

    return predict


@model_router("knn", needs=("features",), params=Neighbours)
def knn(train: Outcomes, params: Neighbours, seed: int) -> Predict:
    """Predicts the mean scores of the k questions with the most similar words."""
    from sklearn.neighbors import NearestNeighbors

    features = words(train)
    near = NearestNeighbors(n_neighbors=min(params.k, train.size)).fit(features(train.questions))

    def predict(questions: Questions) -> Floats:
        return train.scores[near.kneighbors(features(questions), return_distance=False)].mean(axis=1)

    return predict


@model_router("logistic", needs=("features",), params=Inverse)
def logistic(train: Outcomes, params: Inverse, seed: int) -> Predict:
    """Predicts each model's score by a logistic regression of its own on words and length."""
    features = words_and_length(train)
    low, high = train.score_range
    x = features(train.questions)
    fits = [_logistic(x, scores, params.c) for scores in ((train.scores - low) / (high - low)).T]

    def predict(questions: Questions) -> Floats:
        seen = features(questions)
        return low + (high - low) * np.column_stack([chance(seen) for chance in fits])

    return predict


@model_router("matrix_factorisation", needs=("features",), params=Factors)
def matrix_factorisation(train: Outcomes, params: Factors, seed: int) -> Predict:
    """Factorises scores into questions times models, a question's factors being linear in its features.

    RouteLLM's v_M . (W1 v_q + b) (arXiv 2406.18665) with squared loss: a truncated SVD of the centred scores
    gives the models' vectors, a ridge regression of the questions' factors gives W1 and b.
    """
    from sklearn.linear_model import Ridge

    features = words_and_length(train)
    means = train.scores.mean(axis=0)
    _, _, vectors = np.linalg.svd(train.scores - means, full_matrices=False)
    vectors = vectors[: params.factors]
    wanted = (train.scores - means) @ vectors.T
    line = Ridge(alpha=params.penalty, solver="lsqr", tol=1e-8).fit(features(train.questions), wanted)

    def predict(questions: Questions) -> Floats:
        factors = np.asarray(line.predict(features(questions))).reshape(questions.size, -1)
        return means + factors @ vectors

    return predict


def _logistic(x: Any, target: Floats, c: float) -> Predict:
    """Logistic regression on targets in [0, 1], a fraction being so much of a success and of a failure."""
    from sklearn.linear_model import LogisticRegression

    weight = np.concatenate([target, 1.0 - target])
    rows = np.flatnonzero(weight > 0.0)
    label = (rows < len(target)).astype(np.int64)
    if label.min() == label.max():
        return lambda seen: np.full(seen.shape[0], float(label[0]))
    model = LogisticRegression(C=c, solver="liblinear")  # ten times as fast as the default on hashed words
    fitted = model.fit(x[rows % len(target)], label, weight[rows])
    return lambda seen: fitted.predict_proba(seen)[:, 1]
