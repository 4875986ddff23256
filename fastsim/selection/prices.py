"""Prices of models per token and per call, and what a table of outcomes costs under them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.errors import InputError, nearest
from fastsim.selection.tables import Floats
from fastsim.typed import check

CHARS_PER_TOK = 4.0  # a rule of thumb for English; said in the assumptions wherever it is used
Amount = Annotated[float, Meta(ge=0.0)]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a call of a model costs, in dollars.

    Attributes
    ----------
    input_price, output_price : float
        A million tokens of prompt, of answer.
    call_price : float
        Every call, beside its tokens.
    size : str
        Size of the model, not used.
    """

    input_price: Amount = 0.0
    output_price: Amount = 0.0
    call_price: Amount = 0.0
    size: str = ""


def read_prices(path: str | Path) -> dict[str, Price]:
    """Read a JSON or TOML file that maps each model to its ``input_price`` and ``output_price``.

    Raises
    ------
    InputError
        If it cannot be read or holds something else.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        given = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise InputError(f"prices: {str(path)!r} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"prices: {file.name} is not valid: {error}") from None
    return make_prices(given)


def make_prices(given: Mapping[str, Any]) -> dict[str, Price]:
    """Check prices given as mappings, or as `Price`.

    Raises
    ------
    InputError
        For an unknown field, a negative price, or something that is no price.
    """
    if not isinstance(given, Mapping):
        raise InputError("prices must map names of models to input_price and output_price in $/M tokens")
    return {model: _price(model, value) for model, value in given.items()}


def _price(model: str, value: Any) -> Price:
    if isinstance(value, Price):
        return value
    if not isinstance(value, Mapping):
        raise InputError(
            f"price of {model!r}: {value!r} is not allowed; give input_price and output_price in $/M tokens"
        )
    return check(Price, dict(value), f"price of {model!r}")


def price_calls(
    name: str,
    models: Sequence[str],
    prices: Mapping[str, Price],
    size: int,
    input_tok: Floats | None,
    output_tok: Floats | None,
) -> tuple[Floats, tuple[str, ...]]:
    """Cost of every call, and what had to be assumed.

    Parameters
    ----------
    name : str
        Of the table, for messages.
    models : sequence of str
    prices : mapping of str to Price
        For each model at least.
    size : int
        Number of questions, n.
    input_tok, output_tok : float64[n, K], or None
        Where None, those tokens are not charged for, and it is said.

    Returns
    -------
    costs : float64[n, K]
        In dollars.
    assumptions : tuple of str

    Raises
    ------
    InputError
        For a model without a price, or prices under which every call is free.
    """
    for model in models:
        if model not in prices:
            raise InputError(f"{name}: model {model!r} has no price; {nearest(model, prices)}")
    listed = [prices[model] for model in models]
    costs = np.tile([price.call_price for price in listed], (size, 1)).astype(np.float64)
    assumed = []
    for tokens, field, what in (
        (input_tok, "input_price", "prompts"),
        (output_tok, "output_price", "answers"),
    ):
        per_tok = np.array([getattr(price, field) for price in listed]) / 1e6
        if tokens is not None:
            costs += tokens * per_tok
        elif per_tok.any():
            assumed.append(f"the table does not hold the length of {what}: their tokens are not charged for")
    if not costs.any():
        raise InputError(f"{name}: every call is free under these prices; give some that differ from 0")
    return costs, tuple(assumed)
