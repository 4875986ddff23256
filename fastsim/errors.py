"""Errors a user can cause, and the helper that suggests what they meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The input is wrong; the message names the field, its value and what is allowed.

    Raised before anything runs, so a caller never gets a partial result with it.
    """


def nearest(name: str, choices: Iterable[str]) -> str:
    """Suggest what `name` was meant to be.

    Parameters
    ----------
    name : str
        What the user wrote.
    choices : iterable of str
        The names that exist.

    Returns
    -------
    str
        ``did you mean 'x'?`` where a similar name exists, else ``choose one of: a, b, c``.
    """
    known = list(choices)
    by_lower = {choice.lower(): choice for choice in known}
    for close in difflib.get_close_matches(str(name).lower(), by_lower, n=1):
        return f"did you mean {by_lower[close]!r}?"
    return "choose one of: " + ", ".join(known) if known else "there are none to choose from"
