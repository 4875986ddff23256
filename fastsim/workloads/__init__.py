"""Workloads: what is asked, when, and what prompts have in common."""

from fastsim.workloads.generators import GENERATORS, make, specify
from fastsim.workloads.load import load
from fastsim.workloads.mixture import at_times, combine
from fastsim.workloads.prompts import from_prompts
from fastsim.workloads.readers.registry import FORMATS
from fastsim.workloads.summary import Finding, WorkloadSummary
from fastsim.workloads.workload import Workload

__all__ = [
    "FORMATS",
    "GENERATORS",
    "Finding",
    "Workload",
    "WorkloadSummary",
    "at_times",
    "combine",
    "from_prompts",
    "load",
    "make",
    "specify",
]
