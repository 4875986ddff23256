"""What can be swept. A new experiment is one module and one entry here."""

from __future__ import annotations

import importlib

from fastsim.errors import InputError, nearest
from fastsim.sweep.experiments.experiment import Experiment, Metric

__all__ = ["EXPERIMENTS", "Experiment", "Metric", "experiment"]

# name -> "module:attribute", imported on first use: listing or showing results needs no simulator.
EXPERIMENTS: dict[str, str] = {
    "balls": "fastsim.sweep.experiments.balls:BALLS",
    "cluster": "fastsim.sweep.experiments.cluster:CLUSTER",
    "fleet": "fastsim.sweep.experiments.fleet:FLEET",
    "queueing": "fastsim.sweep.experiments.queueing:QUEUEING",
}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Parameters
    ----------
    name : str
        A name of the registry, or ``"module:attribute"`` for one that lives outside the package.

    Raises
    ------
    InputError
        If there is none; it suggests the nearest.
    """
    target = EXPERIMENTS.get(name, name)
    if ":" not in target:
        raise InputError(f"experiment {name!r} is unknown; {nearest(name, EXPERIMENTS)}")
    module, attribute = target.split(":", 1)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(f"experiment {name!r} cannot be imported: {error}") from None
