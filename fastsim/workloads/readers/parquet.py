"""Parquet files as the text that a table of their columns would be."""

from __future__ import annotations

import io

from fastsim.errors import InputError

MAGIC = b"PAR1"
_OF_JSON = ("input_length", "conversations")  # columns of formats that come as JSON lines


def to_text(name: str, data: bytes) -> bytes:
    """Return a Parquet file's rows as JSON lines, if it has lists or its format comes so, else as CSV.

    Parameters
    ----------
    name : str
        For messages.
    data : bytes

    Raises
    ------
    InputError
        If it is damaged.
    """
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        raise InputError(f"{name}: it begins as a Parquet file, but cannot be read; it is damaged") from None
    nested = any(dtype.is_nested() for dtype in frame.dtypes)
    out = io.BytesIO()
    if nested or any(column in _OF_JSON for column in frame.columns):
        frame.write_ndjson(out)
    else:
        frame.write_csv(out)
    return out.getvalue()
