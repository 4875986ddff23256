"""What is known about a workload in words: where it came from, what was assumed, what it amounts to."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

_WIDTH = 12


class Finding(msgspec.Struct, frozen=True):
    """Rows that were dropped or repaired for one reason.

    Parameters
    ----------
    reason : str
        What was wrong with them, or what was done to them.
    rows : int
        How many.
    first : str
        The first of them, e.g. ``"line 7, column output_length: value 0"``.
    """

    reason: str
    rows: int
    first: str = ""

    def __str__(self) -> str:
        return f"{self.rows} x {self.reason}" + (f" (first: {self.first})" if self.first else "")


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Rows read, dropped and repaired; figures; assumptions and their reasons. ``str()`` prints it.

    Parameters
    ----------
    source : str
        File name or generator.
    format, format_why : str
        Format of the file and how it was recognised; empty for generators.
    rows_read : int
        Rows in the source, blank lines and headers not counted.
    requests : int
        Requests in the workload.
    dropped, repaired : tuple of Finding
    time_unit, time_unit_why, block_tok, block_why
        Unit of the times in the source and tokens per hash id, with the reason for assuming them.
    ignored_columns : tuple of str
        Columns of the source that play no part.
    notes : tuple of str
        Whatever else was assumed or done: sorting, windows, repetitions.
    span_s : float
        Last arrival minus first, in seconds.
    rate_rps : float or None
        ``(requests - 1) / span_s``; None where all requests arrive at one time.
    mean_prompt_tok, mean_output_tok : float
    distinct_symbol_tok : int
        Tokens of all distinct symbols: what a cache holding everything shareable would need.
    """

    source: str = ""
    format: str = ""
    format_why: str = ""
    rows_read: int = 0
    requests: int = 0
    dropped: tuple[Finding, ...] = ()
    repaired: tuple[Finding, ...] = ()
    time_unit: str = ""
    time_unit_why: str = ""
    block_tok: int | None = None
    block_why: str = ""
    ignored_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    span_s: float = 0.0
    rate_rps: float | None = None
    mean_prompt_tok: float = 0.0
    mean_output_tok: float = 0.0
    distinct_symbol_tok: int = 0

    def measured(
        self, arrival_s: np.ndarray, prompt_tok: np.ndarray, output_tok: np.ndarray, symbol_tok: np.ndarray
    ) -> WorkloadSummary:
        """Return this summary with the figures of these arrays; the words stay."""
        n = len(arrival_s)
        span_s = float(arrival_s[-1] - arrival_s[0])
        return msgspec.structs.replace(
            self,
            requests=n,
            span_s=span_s,
            rate_rps=(n - 1) / span_s if span_s > 0 else None,
            mean_prompt_tok=float(prompt_tok.mean()),
            mean_output_tok=float(output_tok.mean()),
            distinct_symbol_tok=int(symbol_tok.sum()),
        )

    def noted(self, *notes: str) -> WorkloadSummary:
        """Return this summary with more notes."""
        return msgspec.structs.replace(self, notes=self.notes + notes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values, ready for JSON."""
        return msgspec.to_builtins(self)

    def __str__(self) -> str:
        return "\n".join(f"{label:<{_WIDTH}}{text}" for label, text in self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        rate = "all at one time" if self.rate_rps is None else f"{self.rate_rps:.4g} requests/s"
        lines = [
            ("source", self.source or "(made in memory)"),
            ("requests", f"{self.requests:,} over {self.span_s:,.1f} s, {rate}"),
            ("tokens", f"mean prompt {self.mean_prompt_tok:,.1f}, mean output {self.mean_output_tok:,.1f}"),
        ]
        if self.format:
            dropped = sum(f.rows for f in self.dropped)
            repaired = sum(f.rows for f in self.repaired)
            lines.insert(1, ("format", f"{self.format}: {self.format_why}"))
            lines.insert(2, ("rows", f"{self.rows_read:,} read, {dropped:,} dropped, {repaired:,} repaired"))
        lines += [("dropped", str(f)) for f in self.dropped]
        lines += [("repaired", str(f)) for f in self.repaired]
        if self.time_unit:
            lines.append(("time unit", f"{self.time_unit}: {self.time_unit_why}"))
        if self.format:
            block = "none" if self.block_tok is None else f"{self.block_tok} tokens"
            lines.append(("block size", f"{block}: {self.block_why}"))
        if self.ignored_columns:
            lines.append(("ignored", "columns " + ", ".join(self.ignored_columns)))
        lines += [("note", note) for note in self.notes]
        return lines
