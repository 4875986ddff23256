"""Errors a user can cause, and the helper that suggests what they meant."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

_FEW = 12  # names that may all be listed


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
        ``did you mean 'x'?`` where a similar name exists, else ``choose one of: a, b, c``; of many names the
        three nearest.
    """
    known = list(dict.fromkeys(choices))
    by_lower = {choice.lower(): choice for choice in known}
    wanted = str(name).lower()[:_MOST_LETTERS]
    close = [by_lower[each] for each in difflib.get_close_matches(wanted, by_lower, n=3)]
    if close and len(known) <= _FEW:
        return f"did you mean {close[0]!r}?"
    if close:
        return f"did you mean {close[0]!r}?" + (f" Or {' or '.join(close[1:])}?" if close[1:] else "")
    if not known:
        return "there are none to choose from"
    if len(known) <= _FEW:
        return "choose one of: " + ", ".join(known)
    close = difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.0)
    return "the nearest are " + ", ".join(by_lower[each] for each in close)


def shown(value: Any) -> str:
    """A value as an error shows it: one line of at most 80 letters, whatever the value is."""
    try:
        text = " ".join(_BRIEF.repr(value).split())
    except Exception:  # a repr of somebody else's, or a whole number too long to be written
        return f"<{type(value).__name__}>"
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def _brief() -> reprlib.Repr:
    brief = reprlib.Repr()
    brief.maxstring = brief.maxlong = brief.maxother = _MOST_LETTERS
    brief.maxdict = brief.maxlist = brief.maxtuple = 10
    return brief


_MOST_LETTERS = 80
_BRIEF = _brief()
