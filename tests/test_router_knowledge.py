"""Everything routers may know is as the twin knows it, shown by policies that take it all into account."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from fastsim.errors import InputError
from tests.cluster_runs import serve
from tests.odd_router import VARIANTS, odd_params, odd_routers
from tests.router_cases import routed_case, tiny_pools, unlike_its_twin

small = pytest.mark.small


def odd_cases(seeds: range) -> list[dict]:
    """Cases of policies that refuse, hold and send along as they like."""
    made = []
    for seed in seeds:
        for name in VARIANTS:
            rng = random.Random(seed)
            often = {
                "rejects": rng.choice([0, 0, 100]),
                "holds": rng.choice([0, 0, 300, 600]),
                "sends": rng.choice([0, 0, 300]),
            }
            made.append(routed_case(name, seed, router_params=odd_params(name, **often)))
    return made


@small
def test_everything_is_as_the_twin_knows_it():
    with odd_routers():
        assert [each for case in odd_cases(range(6)) for each in unlike_its_twin(case)] == []


def test_everything_is_as_the_twin_knows_it_in_many_cases():
    with odd_routers():
        assert [each for case in odd_cases(range(6, 60)) for each in unlike_its_twin(case)] == []


def test_the_cases_are_of_every_kind_and_let_everything_grow():
    """Or the tests above would be silent about what they leave out."""
    with odd_routers():
        cases = odd_cases(range(6, 60))
        kinds = {(case["view"].split("(")[0], case["caches"], case["engine"]["kind"]) for case in cases}
        assert len(kinds) > 25
        with tiny_pools() as grown:
            for case in cases[:40]:
                with suppress(InputError):  # requests may be held back for ever
                    serve(case)
    assert {"news", "ext", "table", "trees"} <= set(grown)
