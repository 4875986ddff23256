"""What all commands print alike."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())
