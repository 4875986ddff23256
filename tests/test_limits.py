"""What is too long, too many or too large is refused by one sentence before anything runs."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import fastsim
from fastsim import queueing, workloads
from fastsim.errors import InputError

pytestmark = pytest.mark.small


@pytest.mark.parametrize("tokens", [2**63 - 1, 2**62, 10**9 + 1])
def test_prompts_and_answers_have_a_most(tokens):
    with pytest.raises(InputError, match="tokens must be a whole number from 1 to 1,000,000,000"):
        workloads.from_prompts([[("a", tokens)]], [0.0], [1])
    with pytest.raises(InputError, match=r"output_tok at 0 is \d+; it must be 1 to 1,000,000,000"):
        workloads.from_prompts(["ab"], [0.0], [tokens])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tp": 10**9}, "tp = 1000000000 is not allowed; it must be a whole number from 1 to 1,024"),
        ({"replicas": 10**9}, "replicas = 1000000000 is not allowed"),
        ({"kv_tok": 2**62}, "kv_tok = 4611686018427387904 is not allowed"),
        ({"watermark": "x"}, "watermark = 'x' is not allowed"),
        ({"max_batch_tok": "x"}, "max_batch_tok = 'x' is not allowed"),
        ({"order": [["fcfs"]]}, "order = .*'fcfs'.* is not allowed"),
        ({"fast_forward": "maybe"}, "fast_forward = 'maybe' is not allowed; it must be true or false"),
        ({"restarts": 5}, "restarts = 5 is not allowed; it must be a list"),
        ({"order_params": 3}, "order_params = 3 is not allowed; it must be a table"),
    ],
)
def test_clusters_have_a_most(given, message):
    with pytest.raises(InputError, match=message):
        fastsim.Cluster(**given)


@pytest.mark.parametrize(
    "given", [{"seed": None}, {"warmup_s": "x"}, {"router_params": [1]}, {"most_load": "x"}, {"no_such": 1}]
)
def test_wrong_types_of_a_simulation_are_refused(given):
    with pytest.raises(InputError, match=next(iter(given))):
        fastsim.simulate(workloads.make("unique", requests=2), fastsim.Cluster(2), **given)


def test_a_file_that_expands_to_more_than_the_limit_is_refused(tmp_path):
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    text = b"".join([*(packed.compress(bytes([48]) * 10**6) for _ in range(30)), packed.flush()])
    path = tmp_path / "bomb.gz"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"more than 0\.02 GB when expanded; raise max_text_gb"):
        workloads.load(path, max_text_gb=0.02)
    assert len(text) < 100_000


def test_a_run_of_more_memory_than_there_is_is_refused():
    with pytest.raises(InputError, match=r"keep_samples: .* would take .* GB of memory"):
        queueing.simulate(utilisation=0.5, requests=10**12, keep_samples=True)
    with pytest.raises(InputError, match=r"trials with .* would take .* GB of memory"):
        queueing.balls(10, trials=10**12)


def test_times_of_a_workload_have_a_most():
    with pytest.raises(InputError, match=r"arrival_s at 1 is .*; it must be finite, 0 to 1e\+09"):
        workloads.from_prompts(["a", "b"], np.array([0.0, 1e300]), [1, 1])


def test_settings_take_lists_and_tables_and_a_wrong_name_gets_the_nearest_three():
    from fastsim.sweep.spec import parse

    document = {"sweep": {"name": "s"}, "base": {"workload": {"name": "unique"}}}
    one = parse(document, ["cluster.restarts=[{replica=0, at_s=5.0, down_s=3.0}]", "router=random"])
    (cell,) = one.cells()
    assert cell["cluster"]["restarts"][0]["down_s"] == 3.0
    two = parse(document, ["cluster.speeds=[[1.0, 2.0], [2.0, 2.0]]", "cluster={replicas=2}"])
    assert [cell["cluster"]["speeds"] for cell in two.cells()] == [(1.0, 2.0), (2.0, 2.0)]
    with pytest.raises(InputError) as error:
        parse(document, ["cluster.zzzz=1"])
    assert len(str(error.value)) < 200
