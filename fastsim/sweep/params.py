"""Parameters as nested tables: dotted names, overrides, canonical text and content hashes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fastsim.errors import InputError, nearest

Params = dict[str, Any]


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one table with dotted names: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def with_values(table: Mapping[str, Any], values: Mapping[str, Any]) -> Params:
    """A copy of nested tables with the dotted names in `values` set; the input stays as it was."""
    copy: Params = {}
    for key, value in table.items():
        copy[key] = with_values(value, {}) if isinstance(value, Mapping) else value
    for name, value in values.items():
        *parents, last = name.split(".")
        here = copy
        for depth, parent in enumerate(parents):
            here = here.setdefault(parent, {})
            if not isinstance(here, dict):
                where = ".".join(parents[: depth + 1])
                raise InputError(f"{name} cannot be set: {where} is the value {here!r}, not a table")
        here[last] = value
    return copy


def resolve(name: str, known: Iterable[str], where: str) -> str:
    """The dotted name meant by `name`: itself, or the only known name that ends in it.

    Parameters
    ----------
    name : str
        What the user wrote, such as ``cluster.replicas`` or just ``replicas``.
    known : iterable of str
        Dotted names that exist.
    where : str
        What `name` is, for the error: ``grid axis``.

    Raises
    ------
    InputError
        If no name or more than one fits; it suggests the nearest.
    """
    names = list(dict.fromkeys(known))
    if name in names:
        return name
    fits = [full for full in names if full.endswith("." + name)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise InputError(f"{where} {name!r} could be {' or '.join(fits)}; write the whole name")
    leaves = {full.rsplit(".", 1)[-1]: full for full in names}
    hint = nearest(name, names if "." in name else [*names, *leaves])
    raise InputError(f"{where} {name!r} is unknown; {hint}")


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise InputError for the first key of `table` that is not known, with the nearest good one."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has no {key!r}; {nearest(key, names)}")


def identity(params: Mapping[str, Any]) -> Params:
    """The parameters that decide a result.

    A file counts by what is in it: a parameter ``x`` that comes with ``x_digest`` keeps its file name, for
    the reader, and loses its folder, so that moved files and copied results still match.
    """
    kept: Params = {}
    for key, value in params.items():
        if isinstance(value, Mapping):
            kept[key] = identity(value)
        else:
            kept[key] = Path(value).name if f"{key}_digest" in params else value
    return kept


def canonical(value: Any) -> str:
    """JSON text with sorted keys: equal values give equal text in every process."""
    return msgspec.json.encode(value, order="deterministic").decode()


def text(params: Mapping[str, Any]) -> str:
    """What decides a result, as canonical text: the name of a cell."""
    return canonical(identity(params))


def digest(value: Any) -> str:
    """Content hash of anything JSON can hold: 32 hexadecimal digits."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Content hash of a file's bytes: 32 hexadecimal digits. Every cell of a sweep asks; it is read once."""
    info = path.stat()
    return _file_digest(path, info.st_size, info.st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _file_digest(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
