"""Where a synthetic workload came from, so that more of it can be made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from fastsim.workloads.workload import Workload


@dataclass(frozen=True)
class Origin:
    """A generator and what it was given.

    Parameters
    ----------
    name : str
        A key of `GENERATORS`.
    spec : msgspec.Struct
        Its parameters in full.
    seed, replicate : int
    rate_scale : float
        By what the rate was multiplied since.
    """

    name: str
    spec: Any
    seed: int
    replicate: int
    rate_scale: float = 1.0

    @property
    def rate_rps(self) -> float:
        """Requests per second in the long run, whatever came in a short one."""
        from fastsim.workloads.generators import GENERATORS

        return GENERATORS[self.name].rate_rps(self.spec) * self.rate_scale

    @property
    def stretches(self) -> bool:
        """Whether another rate only stretches the arrival times."""
        from fastsim.workloads.generators import GENERATORS

        return GENERATORS[self.name].stretches

    def faster(self, factor: float) -> Origin | None:
        """The same at another rate, if that is all that another rate changes."""
        return replace(self, rate_scale=self.rate_scale * factor) if self.stretches else None

    def make(self, requests: int, rate_rps: float) -> Workload:
        """Make so many requests of the kind, at a rate of the generator's own."""
        from fastsim.workloads.generators import build

        given: dict[str, Any] = {"requests": requests, "duration_s": None, "rate_rps": rate_rps}
        if self.stretches:  # when they come does not count
            given |= {"arrivals": "deterministic", "arrival_trace": None}
        return build(self.name, msgspec.structs.replace(self.spec, **given), self.seed, self.replicate)
