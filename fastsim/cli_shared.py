"""What all commands read and print alike."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", help="Print JSON.")]


def _whole(kind: Any, tokens: Any) -> int:
    """A whole number as written: cyclopts would cut 2.5 to 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


Whole = Annotated[int, Parameter(converter=_whole)]


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())
