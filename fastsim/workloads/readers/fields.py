"""Single values, read with care: what is a count, a time, a date, a hash id, and why not."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np

from fastsim.workloads.readers.columns import MAX_TOK

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d+))?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII | re.IGNORECASE
)
MAX_TIME = 2**63  # times as written stay below, so that whole ones fit int64
_EXACT_FLOAT = 2**53


class Bad(ValueError):
    """A value is not allowed; the text is the reason, made to follow "it"."""


def number(text: str) -> int | Decimal:
    """Return a number written in a CSV file.

    Raises
    ------
    Bad
        If it is none; "nan" and "inf" are none either.
    """
    text = text.strip()
    if not text.isascii() or not _NUMBER.fullmatch(text):
        raise Bad("must be a number")
    digits = text.lstrip("+-")
    return int(text) if digits.isdigit() and len(digits) < 40 else Decimal(text)


def count(value: Any) -> int:
    """Return a number of tokens: whole, 0 to `MAX_TOK`; 374.0 is 374, and true is not 1.

    What is to become of 0 is not decided here, and refused as what it is otherwise: no length.

    Raises
    ------
    Bad
    """
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise Bad(f"must be a whole number from 1 to {MAX_TOK:,}")
    if not 0 <= value <= MAX_TOK or value != int(value):
        raise Bad(f"must be a whole number from 1 to {MAX_TOK:,}")
    return int(value)


def time(value: Any) -> int | float:
    """Return a time as written: a finite number of 0 or more, whole numbers kept whole.

    Raises
    ------
    Bad
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise Bad("must be a number")
    if not 0 <= value < MAX_TIME:  # false for NaN, too
        raise Bad("must be a finite time, 0 or more")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def hash_id(value: Any) -> int | str:
    """Return a block's id: a whole number of any size, or a text.

    Raises
    ------
    Bad
        For a float that may have been rounded already, and for anything else.
    """
    if isinstance(value, Decimal) and abs(value) <= _EXACT_FLOAT and value == int(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise Bad("must be a list of whole numbers or texts")
    return value


def date(text: str) -> tuple[int, bool]:
    """Return (nanoseconds since 1970, whether a time zone was given); digits past the ninth are cut off.

    Raises
    ------
    Bad
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise Bad("must be a date and time such as 2023-11-16 18:15:46.68")
    day, clock, fraction, zone = match.groups()
    try:
        seconds = int(np.datetime64(f"{day}T{clock}", "s").astype(np.int64))
    except ValueError:
        raise Bad("must be a date and time that exists") from None
    seconds -= _offset_s(zone) if zone else 0
    ns = seconds * 10**9 + int((fraction or "0")[:9].ljust(9, "0"))
    if not 0 <= ns < MAX_TIME:
        raise Bad("must be a date from 1970 to 2262")
    return ns, zone is not None


def _offset_s(zone: str) -> int:
    if zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -offset if zone[0] == "-" else offset
