"""Questions made up from a latent difficulty: who answers what right, at what length and price.

For what cannot be measured yet, and for sweeps that run without a table. All of it is an assumption:

* a model is right on a question if ``sqrt(shared) D + sqrt(1 - shared) E < Phi^-1(its accuracy)``, D the
  question's difficulty for all models, E noise of question and model, both standard normal;
* questions have lognormal lengths and so have answers; a standard deviation of difficulty makes both longer
  by the factor ``exp(harder_longer)``, so what a cascade escalates is longer than the average;
* questions fall into topics by Zipf's law; those of a topic may share the start of their prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.selection.tables import Floats, Outcomes
from fastsim.typed import Seed, checked

Share = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[float, Meta(ge=1, le=1e6)]
Cv = Annotated[float, Meta(ge=0, le=10)]
Rate = Annotated[float, Meta(ge=0)]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `make_table`. Tuples have an entry for each model.

    Attributes
    ----------
    size : int
        Questions.
    accuracy : tuple of float
        Share of the questions that each model answers right.
    input_price, output_price : tuple of float
        $ a million tokens of prompts, of answers.
    answer_tok : tuple of float
        Mean tokens of an answer of each model.
    shared : float
        Share of the variance that is the question's difficulty, the same for all models.
    prompt_tok : float
        Mean tokens of a question, without `context_tok`.
    cv : float
        Coefficient of variation of the lengths, for a given difficulty.
    harder_longer : float
        Logarithm of the factor on lengths for each standard deviation of difficulty.
    topics : int
    zipf : float
        Exponent of the popularity of topics.
    context_tok : int
        Tokens at the start of a prompt that all questions of a topic share.
    """

    size: Annotated[int, Meta(ge=2, le=10_000_000)] = 2000
    accuracy: tuple[Share, ...] = (0.6, 0.85)
    input_price: tuple[Rate, ...] = (0.05, 0.9)
    output_price: tuple[Rate, ...] = (0.1, 0.9)
    answer_tok: tuple[Tokens, ...] = (250.0, 350.0)
    shared: Share = 0.6
    prompt_tok: Tokens = 150.0
    cv: Cv = 0.6
    harder_longer: Annotated[float, Meta(ge=-2, le=2)] = 0.25
    topics: Annotated[int, Meta(ge=1, le=100_000)] = 40
    zipf: Annotated[float, Meta(ge=0, le=10)] = 1.0
    context_tok: Annotated[int, Meta(ge=0, le=10_000_000)] = 1500


@checked
def make_table(models: Sequence[str], made: Made, *, seed: Seed = 0, replicate: Seed = 0) -> Outcomes:
    """Make a table of outcomes.

    Parameters
    ----------
    models : sequence of str
        K names.
    made : Made
    seed, replicate : int
        Of the random stream "questions".

    Raises
    ------
    InputError
        For one that has not an entry for each model.
    """
    from scipy.special import ndtri

    for name in ("accuracy", "input_price", "output_price", "answer_tok"):
        if len(getattr(made, name)) != len(models):
            raise InputError(
                f"questions: {name} has {len(getattr(made, name))} entries; it must have one for each of the "
                f"models {', '.join(models)}"
            )
    rng = generator(seed, replicate, "questions")
    n, k = made.size, len(models)
    difficulty = rng.standard_normal(n)
    noise = rng.standard_normal((n, k))
    z = np.sqrt(made.shared) * difficulty[:, None] + np.sqrt(1.0 - made.shared) * noise
    topic = rng.choice(made.topics, n, p=_zipf(made.topics, made.zipf))
    own_tok = made.prompt_tok * _stretched(made, difficulty, rng.standard_normal(n))
    answer_tok = _stretched(made, difficulty[:, None], rng.standard_normal((n, k))) * made.answer_tok
    input_tok = np.tile(np.maximum(np.rint(own_tok), 1.0)[:, None] + made.context_tok, (1, k))
    output_tok = np.maximum(np.rint(answer_tok), 1.0)
    rates = np.array([made.input_price, made.output_price]) / 1e6
    costs = input_tok * rates[0] + output_tok * rates[1]
    return Outcomes(
        name="made questions",
        models=tuple(models),
        scores=(z < ndtri(np.array(made.accuracy))).astype(np.float64),
        costs=costs,
        question=np.arange(n, dtype=np.int64),
        length=input_tok[:, 0],
        input_tok=input_tok,
        output_tok=output_tok,
        domain=tuple(f"topic {t}" for t in topic),
        assumptions=("questions, lengths and who answers them right are made up (fastsim.fleet.questions)",),
    )


def _zipf(topics: int, exponent: float) -> Floats:
    weight = np.arange(1, topics + 1) ** -exponent
    return weight / weight.sum()


def _stretched(made: Made, difficulty: Floats, z: Floats) -> Floats:
    """Lengths of mean 1: lognormal, and longer where a question is harder."""
    variance = np.log1p(made.cv**2)
    spread = variance + made.harder_longer**2
    return np.exp(np.sqrt(variance) * z + made.harder_longer * difficulty - 0.5 * spread)
