"""Check keyword parameters against a typed msgspec struct, with errors a person can act on."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from fastsim.errors import InputError, nearest

Spec = TypeVar("Spec", bound=msgspec.Struct)


def check(spec: type[Spec], given: dict[str, Any], owner: str) -> Spec:
    """Return `given` as an instance of `spec`, defaults filled in.

    Parameters
    ----------
    spec : msgspec.Struct type
        Its annotations hold the types and ranges (``msgspec.Meta``).
    given : dict
        Parameters by name; NumPy scalars count as Python numbers.
    owner : str
        What they belong to, for the message, e.g. ``"workload long_documents"``.

    Raises
    ------
    InputError
        For a name that does not exist, with the nearest one; for a value of the wrong type or out
        of range, with the range.
    """
    names = spec.__struct_fields__
    for name in given:
        if name not in names:
            raise InputError(f"{owner}: it has no parameter {name!r}; {nearest(name, names)}")
    plain = {name: _plain(value) for name, value in given.items()}
    for name, value in plain.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{owner}: {name} = {value!r} is not allowed; it must be a finite number")
    try:
        return msgspec.convert(plain, spec)
    except msgspec.ValidationError as error:
        raise InputError(_explain(error, spec, plain, owner)) from None


def _plain(value: Any) -> Any:
    is_numpy_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0
    return value.item() if is_numpy_scalar else value


def _explain(error: msgspec.ValidationError, spec: type[msgspec.Struct], given: dict, owner: str) -> str:
    """Turn msgspec's "Expected `float` > 0.0 - at `$.rate_rps`" into a sentence with the value."""
    expected, _, place = str(error).partition(" - at `$.")
    name = place.rstrip("`")
    if name not in given:
        return f"{owner}: {error}"
    refused = f"{owner}: {name} = {given[name]!r} is not allowed; "
    choices = _choices(spec, name)
    if choices:
        return refused + nearest(str(given[name]), choices)
    return refused + expected[:1].lower() + expected[1:].replace("`", "")


def _choices(spec: type[msgspec.Struct], name: str) -> list[str]:
    """Return the words a parameter may be, if it is a choice among words."""
    info: Any = msgspec.inspect.type_info(spec)
    kind = next(field.type for field in info.fields if field.encode_name == name)
    return [str(value) for value in kind.values] if isinstance(kind, msgspec.inspect.LiteralType) else []
