"""OpenTelemetry spans in OTLP JSON: a model call is a span with token counts, by its start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from fastsim.workloads.readers import fields
from fastsim.workloads.readers.columns import Columns, Complaints, Phrase
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.source import Source

# Attributes by the conventions of OpenTelemetry (gen_ai, old names too), OpenLLMetry and OpenInference.
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
INPUT += ("llm.token_count.prompt",)
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
OUTPUT += ("llm.token_count.completion",)
SESSION = ("gen_ai.conversation.id", "session.id")
_MODEL = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
START, SPAN, PARENT, TRACE = "startTimeUnixNano", "spanId", "parentSpanId", "traceId"


def read(source: Source, complaints: Complaints, options: ReadOptions) -> Columns:
    """Read spans with input tokens; a span above another one with them only adds these up."""
    spans = list(_spans(source.data, complaints))
    above = _above(spans)
    by_id = {span.get(SPAN): (span, told) for _, span, told in spans}
    rows: list[tuple[int, int, int, int, str]] = []
    seen: dict[str, None] = {}
    sums = silent = 0
    for line, span, told in spans:
        seen.update(dict.fromkeys(told))
        if _value(told, INPUT) is None and _value(told, OUTPUT) is None:
            silent += _value(told, _MODEL) is not None
        elif span.get(SPAN) in above:
            sums += 1
        elif (row := _row(line, span, told, complaints)) is not None:
            rows.append((*row, _session(span, told, by_id)))
    lines, time, prompt, output, session = zip(*rows, strict=True) if rows else ((),) * 5
    columns = Columns(
        np.array(lines, dtype=np.int64),
        np.array(time, dtype=np.int64),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        session=list(session),
        time_column=START,
        prompt_column=INPUT[0],
        output_column=OUTPUT[0],
        there="the spans have none; ",
        ignored=tuple(name for name in seen if name not in (*INPUT, *OUTPUT, *SESSION)),
    )
    notes = ["requests are spans with token counts, by their starts; sessions are conversations or traces"]
    notes += [f"spans left out that only add up the calls below them: {sums:,}"] if sums else []
    notes += [f"warning: model calls left out that have no token counts: {silent:,}"] if silent else []
    columns.notes = tuple(notes)
    return columns


def _spans(data: bytes, complaints: Complaints) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Every span with its line and its attributes, those of its resource included."""
    for line, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            for each in msgspec.json.decode(text)["resourceSpans"]:
                for scope in each.get("scopeSpans") or each.get("instrumentationLibrarySpans") or ():
                    yield from [
                        (line, span, _attributes(span.get("attributes"))) for span in scope.get("spans") or ()
                    ]
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError):
            shown = text.decode("utf-8", "replace").strip()
            complaints.row(line, "", shown, "must be OTLP JSON with resourceSpans")


def _attributes(listed: Any) -> dict[str, Any]:
    return {
        each["key"]: next(iter(each["value"].values()), None) for each in listed or () if each.get("value")
    }


def _above(spans: list[tuple[int, dict[str, Any], dict[str, Any]]]) -> set[Any]:
    """Ids of the spans that have one with token counts anywhere below them."""
    parent = {span.get(SPAN): span.get(PARENT) for _, span, _ in spans}
    found: set[Any] = set()
    for _, span, told in spans:
        at = span.get(PARENT) if _value(told, INPUT) is not None else None
        while at and at in parent and at not in found:
            found.add(at)
            at = parent[at]
    return found


def _value(told: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((told[name] for name in names if told.get(name) is not None), None)


def _row(
    line: int, span: dict[str, Any], told: dict[str, Any], complaints: Complaints
) -> tuple[int, int, int, int] | None:
    """Return (line, start, input, output) of a call, or None after a complaint."""
    values = {START: span.get(START), INPUT[0]: _value(told, INPUT), OUTPUT[0]: _value(told, OUTPUT)}
    numbers: list[int] = []
    for name, value in values.items():
        if value is None and name == OUTPUT[0]:
            value = 0  # a call without an answer
        try:
            # 64-bit integers are texts in OTLP's JSON.
            each = fields.number(value) if isinstance(value, str) else value
            numbers.append(int(fields.time(each)) if name == START else fields.count(each))
        except fields.Bad as bad:
            shown = Phrase("a span without it") if value is None else value
            complaints.row(line, name, shown, str(bad))
            return None
    return line, numbers[0], numbers[1], numbers[2]


def _session(span: dict[str, Any], told: dict[str, Any], by_id: dict[Any, Any]) -> str:
    """The conversation that a span or one above it belongs to, or else its trace."""
    trace, seen = span.get(TRACE) or "", set()
    while True:
        session = _value(told, SESSION)
        if session is not None:
            return str(session)
        seen.add(span.get(SPAN))
        if span.get(PARENT) not in by_id or span.get(PARENT) in seen:
            return str(trace)
        span, told = by_id[span.get(PARENT)]
