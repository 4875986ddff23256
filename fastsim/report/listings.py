"""What there is to choose from: routers, workloads, hardware, models."""

from __future__ import annotations

from typing import Any

import msgspec

from fastsim.report.text import grid, number

Listing = list[dict[str, Any]]


def routers() -> Listing:
    """Registered policies: name, parameters with defaults, what they do, where they come from."""
    from fastsim.cluster.routers import ROUTERS

    return [
        {
            "name": entry.name,
            "parameters": _defaults(entry.params),
            "what it does": entry.doc,
            "source": entry.source,
            "view": entry.view,
        }
        for entry in ROUTERS.values()
    ]


def orders() -> Listing:
    """Registered orders of a replica's queue: name, parameters with defaults, what they do."""
    from fastsim.cluster.orders import ORDERS

    return [
        {"name": entry.name, "parameters": _defaults(entry.params), "what it does": entry.doc}
        for entry in ORDERS.values()
    ]


def workloads() -> Listing:
    """Synthetic workloads and trace formats."""
    from fastsim.workloads import FORMATS, GENERATORS

    made = [
        {
            "name": entry.name,
            "kind": "generator",
            "parameters": _defaults(entry.params),
            "presets": list(entry.presets),
            "what it is": entry.doc,
        }
        for entry in GENERATORS.values()
    ]
    read = [
        {"name": name, "kind": "trace format", "parameters": {}, "what it is": entry.doc}
        for name, entry in FORMATS.items()
    ]
    return [*made, *read]


def model_routers() -> Listing:
    """Registered routers from a request to a model: name, parameters with defaults, what they do."""
    from fastsim.selection.model_routers import MODEL_ROUTERS

    return [
        {"name": entry.name, "parameters": _defaults(entry.params), "what it does": entry.doc}
        for entry in MODEL_ROUTERS.values()
    ]


def systems() -> Listing:
    """Registered compound systems: their modules, each with its role and what it reads."""
    from fastsim.selection.systems import SYSTEMS

    return [
        {
            "name": system.name,
            "parameters": {
                module.name: f"{module.role}({', '.join(module.inputs)})" for module in system.modules
            },
            "what it is": system.doc,
        }
        for system in SYSTEMS.values()
    ]


def searchers() -> Listing:
    """Registered searchers for allocations: name, parameters with defaults, what they do."""
    from fastsim.selection.searchers import SEARCHERS

    return [
        {"name": entry.name, "parameters": _defaults(entry.params), "what it does": entry.doc}
        for entry in SEARCHERS.values()
    ]


def hardware() -> Listing:
    """The catalogue of GPUs."""
    from fastsim.hardware import gpus

    return [
        {
            "name": gpu.name,
            "maker's name": gpu.title,
            "bf16 (Tflop/s)": gpu.bf16_flop_per_s / 1e12,
            "memory (GB)": gpu.memory_bytes / 1e9,
            "bandwidth (GB/s)": gpu.bandwidth_bytes_per_s / 1e9,
            "compute efficiency": gpu.compute_efficiency,
            "bandwidth efficiency": gpu.bandwidth_efficiency,
            "overhead (ms)": gpu.overhead_s * 1e3,
        }
        for gpu in gpus().values()
    ]


def models() -> Listing:
    """The catalogue of language models."""
    from fastsim.hardware import models

    return [
        {
            "name": model.name,
            "maker's name": model.title,
            "parameters (1e9)": model.params / 1e9,
            "weights (GB)": model.weight_bytes / 1e9,
            "KV cache (kB/token)": model.kv_bytes_per_tok / 1e3,
            "layers": model.layers,
            "precision": model.precision,
        }
        for model in models().values()
    ]


def render(listing: Listing) -> str:
    """A listing as text: a table where all columns are short, else a paragraph an entry."""
    if not listing:
        return ""
    if "parameters" not in listing[0]:
        rows = [[number(value) for value in entry.values()] for entry in listing]
        return grid(list(listing[0]), rows, left=2)
    return "\n".join(_paragraph(entry) for entry in listing)


def _paragraph(entry: dict[str, Any]) -> str:
    sentence = next(value for name, value in entry.items() if name.startswith("what it"))
    parameters = ", ".join(
        f"{name}={number(value, digits=12)}" for name, value in entry["parameters"].items()
    )
    kind = f" ({entry['kind']})" if "kind" in entry else ""
    lines = [f"{entry['name']}{kind}", sentence]
    if entry.get("source"):
        lines.append(f"source: {entry['source']}; native view: {entry['view']}")
    if parameters:
        lines.append(f"parameters: {parameters}")
    if entry.get("presets"):
        lines.append(f"presets: {', '.join(entry['presets'])}")
    return "\n    ".join(lines)


def _defaults(params: type[msgspec.Struct]) -> dict[str, Any]:
    return msgspec.to_builtins(params())
