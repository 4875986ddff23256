"""Numbers that describe a question: hashed words and its length. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastsim.selection.tables import Floats, Outcomes, Questions

HASHES = 2**15  # columns for words and pairs of words; far more than a table of some thousand questions has
Features = Callable[[Questions], Any]


def words(train: Outcomes) -> Features:
    """TF-IDF weights of hashed words and pairs of words, rows of unit length; lengths where texts are absent.

    Returns
    -------
    callable
        questions -> sparse float64[n, HASHES], or dense float64[n, 1].
    """
    if train.texts is None:
        return lengths(train)
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    counts: Any = None  # no norm: TF-IDF takes care of it
    hasher = HashingVectorizer(n_features=HASHES, ngram_range=(1, 2), alternate_sign=False, norm=counts)
    weigh = TfidfTransformer(sublinear_tf=True).fit(hasher.transform(train.texts))
    return lambda questions: weigh.transform(hasher.transform(questions.texts))


def words_and_length(train: Outcomes) -> Features:
    """Both `words` and `lengths` side by side, sparse; lengths alone where texts are absent."""
    if train.texts is None:
        return words(train)
    from scipy.sparse import csr_matrix, hstack

    by_word, by_length = words(train), lengths(train)
    return lambda seen: hstack([by_word(seen), csr_matrix(by_length(seen))], format="csr")


def lengths(train: Outcomes) -> Features:
    """log(1 + length), scaled to mean 0 and deviation 1 where it was learnt: float64[n, 1]."""
    assert train.length is not None
    logs = np.log1p(train.length)
    mean, deviation = logs.mean(), logs.std() or 1.0

    def scaled(questions: Questions) -> Floats:
        assert questions.length is not None
        return ((np.log1p(questions.length) - mean) / deviation)[:, None]

    return scaled
