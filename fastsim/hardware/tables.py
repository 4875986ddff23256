"""TOML files of named tables, read into typed records: the form of every catalogue here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from fastsim.errors import InputError, nearest, shown

Record = TypeVar("Record", bound=msgspec.Struct)


def read_tables(path: str | Path, kind: type[Record]) -> dict[str, Record]:
    """Read the tables of a TOML file as records of `kind`, whose field `name` takes the table's name.

    Raises
    ------
    InputError
        If the file cannot be read, or a table has a missing, unknown or invalid field.
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    return {name: _record(table, name, path, kind) for name, table in tables.items()}


def find(name: str | Record, kind: type[Record], builtin: Mapping[str, Record]) -> Record:
    """Look up a name in the built-in tables, or ``FILE.toml:NAME`` in a user's; return a record as it is.

    Raises
    ------
    InputError
        If there is no such record.
    """
    if isinstance(name, kind):
        return name
    if not isinstance(name, str):
        raise InputError(f"{kind.__name__.lower()} must be a name or a {kind.__name__}, not {shown(name)}")
    records, key = builtin, name
    file, colon, rest = name.rpartition(":")
    if colon and file.endswith(".toml"):
        records, key = read_tables(file, kind), rest
    if key not in records:
        raise InputError(f"unknown {kind.__name__.lower()} {shown(name)}; {nearest(key, records)}")
    return records[key]


def require(record: msgspec.Struct, fields: tuple[str, ...], *, positive: bool) -> None:
    """Refuse a record in which one of these numbers is negative (with `positive`, zero) or not finite."""
    for field in fields:
        value = getattr(record, field)
        if not (0 <= value < float("inf")) or (positive and value == 0):
            bound = "above 0" if positive else "at least 0"
            raise InputError(f"{field} is {value}; it must be {bound} and finite")


def _record(table: object, name: str, path: Path, kind: type[Record]) -> Record:
    where = f"{path.name}, table [{name}]"
    if not isinstance(table, dict):
        raise InputError(f"{where}: must be a table with the fields of {kind.__name__}, not {table!r}")
    for field in table:
        if field not in kind.__struct_fields__:
            raise InputError(f"{where}: unknown field {field!r}; {nearest(field, kind.__struct_fields__)}")
    try:
        return msgspec.convert({**table, "name": name}, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from error
