"""The example inputs are what their script makes, and show what they are there to show."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fastsim.cluster.prefix import ideal_hit_rate
from fastsim.selection.read_tables import read
from fastsim.workloads import load

DATA = Path(__file__).parents[1] / "data"
MOST_BYTES = 300_000


def script():
    spec = importlib.util.spec_from_file_location("make_examples", DATA / "make_examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = dict(script().examples())


@pytest.mark.small
@pytest.mark.parametrize("name", MADE)
def test_the_script_makes_what_is_stored(name):
    stored = (DATA / name).read_bytes()
    assert len(stored) < MOST_BYTES
    # Compressed bytes depend on the zlib at hand, what they stand for does not.
    assert (gzip.decompress(stored) if name.endswith(".gz") else stored) == MADE[name]


@pytest.mark.small
def test_nothing_else_is_stored():
    assert {path.name for path in DATA.iterdir() if path.is_file()} == {*MADE, "make_examples.py"}


def test_conversations_share_prefixes_within_sessions_and_beyond():
    workload = load(DATA / "conversations.jsonl.gz")
    said = workload.summary.to_dict()
    assert (said["dropped"], said["repaired"], said["notes"]) == ((), (), ())
    assert 500 < len(np.unique(workload.session)) < len(workload) / 2
    assert 0.8 < ideal_hit_rate(workload, 16) < 0.9


def test_arrivals_of_the_table_swell_in_the_middle():
    arrival_s = load(DATA / "azure.csv.gz").arrival_s
    first, middle, last = np.histogram(arrival_s, 3, (0.0, 300.0))[0]
    assert middle > 1.5 * first
    assert middle > 1.5 * last


def test_the_outcomes_have_prices_and_models_that_complement_each_other():
    table = read(DATA / "outcomes.csv.gz", prices=DATA / "prices.json", answer_tok=150.0)
    scores = table.scores
    assert table.models == ("small", "coder", "medium", "large")
    assert (scores.max(axis=1).mean()) > scores.mean(axis=0).max() + 0.03
