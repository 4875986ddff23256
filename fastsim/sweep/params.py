"""Parameters as nested tables: dotted names, overrides, canonical text and content hashes."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fastsim.errors import InputError, nearest, shown

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
                raise InputError(f"{name} cannot be set: {where} is the value {shown(here)}, not a table")
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
    leaves = [full.rsplit(".", 1)[-1] for full in names]
    raise InputError(f"{where} {shown(name)} is unknown; {nearest(name, names if '.' in name else leaves)}")


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise InputError for the first key of `table` that is not known, with the nearest good one."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has no {shown(key)}; {nearest(str(key), names)}")


def require_table(name: str, value: Any) -> None:
    """Raise InputError unless a value is a table."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {shown(value)}; it must be a table of parameters")


def identity(params: Mapping[str, Any]) -> Params:
    """The parameters that decide a result.

    A file counts by what is in it: a parameter ``x`` that comes with ``x_digest`` keeps its file name, for
    the reader, and loses its folder, so that moved files and copied results still match.
    """
    return {
        key: Path(value).name if f"{key}_digest" in params and isinstance(value, str) else _identity(value)
        for key, value in params.items()
    }


def _identity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return identity(value)
    return [_identity(one) for one in value] if isinstance(value, list | tuple) else value


def plain(value: Any) -> Any:
    """The value as JSON can hold it: structs as tables, tuples as lists, what is not finite as text."""
    return _each_number(msgspec.to_builtins(value), _finite)


def canonical(value: Any) -> str:
    """JSON text that is the same for equal values, in every process, before they are stored and after.

    The order of keys does not count, nor whether a table is a struct or a mapping, nor how a number is
    written: 100, 100.0 and 1e2 are one number. True is not 1.
    """
    return msgspec.json.encode(_each_number(plain(value), _shortest), order="deterministic").decode()


def _each_number(value: Any, change: Callable[[float], Any]) -> Any:
    """A copy of nested tables and lists with all floats changed."""
    if isinstance(value, dict):
        return {key: _each_number(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each_number(one, change) for one in value]
    return change(value) if isinstance(value, float) else value


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _shortest(value: float) -> float | int:
    """An integer where it is one that JSON's readers hold."""
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def text(params: Mapping[str, Any]) -> str:
    """What decides a result, as canonical text: the name of a cell."""
    return canonical(identity(params))


def digest(value: Any) -> str:
    """Content hash of anything JSON can hold: 32 hexadecimal digits."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=16).hexdigest()


def is_file(path: Any) -> bool:
    """Whether there is a file of that name, if one can have it."""
    try:
        return Path(path).is_file()
    except (OSError, TypeError, ValueError):  # too long, with a NUL, no name at all
        return False


def digest_of(what: str, path: Any, hint: str = "") -> str:
    """Content hash of a file that must exist."""
    if not is_file(path):
        raise InputError(f"{what} {shown(path)} does not exist{hint}")
    return file_digest(Path(path))


def file_digest(path: Path) -> str:
    """Content hash of a file's bytes: 32 hexadecimal digits. Every cell of a sweep asks; it is read once."""
    info = path.stat()
    return _file_digest(path, info.st_size, info.st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _file_digest(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
