"""The reference page of all parameters: docs/parameters.md, from what is declared in the code.

Run as ``python -m fastsim.report.parameters > docs/parameters.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import docstring_parser
import msgspec

from fastsim.typed import Parameter, parameters_of

HEADER = """# Parameters

Written by `python -m fastsim.report.parameters`; do not edit. What calls, sweeps and `--set` take, and
what each value may be; anything else is refused by a sentence that names it.
"""


def page() -> str:
    """The whole page."""
    return HEADER + "".join(f"\n## {title}\n\n{_table(what)}" for title, what in _described())


def _described() -> Iterator[tuple[str, Any]]:
    from fastsim import fleet, queueing, workloads
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.orders import ORDERS
    from fastsim.cluster.outages import Restart
    from fastsim.cluster.routers import ROUTERS
    from fastsim.cluster.simulate import simulate
    from fastsim.selection.choose import choose
    from fastsim.selection.compare_routers import compare
    from fastsim.selection.model_routers import MODEL_ROUTERS
    from fastsim.selection.searchers import SEARCHERS

    yield from (("`fastsim.Cluster`", Cluster), ("A restart", Restart), ("`fastsim.simulate`", simulate))
    yield from (("`workloads.load`", workloads.load), ("`workloads.from_prompts`", workloads.from_prompts))
    yield from (("`queueing.simulate`", queueing.simulate), ("`queueing.balls`", queueing.balls))
    yield from (("`fleet.Served`", fleet.Served), ("`fleet.simulate`", fleet.simulate))
    yield from (("Questions made up (`fleet.Made`)", fleet.Made),)
    yield from (("`fastsim select`", choose), ("`fastsim route`", compare))
    for kind, entries in (
        ("Workload", workloads.GENERATORS),
        ("Router", ROUTERS),
        ("Order", ORDERS),
        ("Model router", MODEL_ROUTERS),
        ("Searcher", SEARCHERS),
    ):
        for name in entries:
            if entries[name].params.__struct_fields__:
                yield f"{kind} `{name}`", entries[name].params


def _table(what: Any) -> str:
    said = _meanings(what)
    rows = [
        f"| `{each.name}` | {each.allowed()} | {_default(each)} | {said.get(each.name, '')} |"
        for each in parameters_of(what)
    ]
    return "\n".join(["| name | value | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _meanings(what: Any) -> dict[str, str]:
    """What the docstring says of each parameter, in its first paragraph."""
    found: dict[str, str] = {}
    for each in getattr(what, "__mro__", (what,))[::-1]:
        for part in docstring_parser.parse(each.__doc__ or "").params:
            text = " ".join((part.description or "").split())
            found |= dict.fromkeys((name.strip() for name in part.arg_name.split(",")), text)
    return {name: text.replace("|", "\\|") for name, text in found.items()}


def _default(parameter: Parameter) -> str:
    value = parameter.default
    if parameter.required or value is msgspec.NODEFAULT:
        return "needed"
    return "" if value is None else f"`{value!r}`"


if __name__ == "__main__":
    print(page(), end="")
