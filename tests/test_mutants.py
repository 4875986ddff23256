"""Nothing that a user can write ends in a traceback: `mutants` of all that is read, with fixed seeds.

`python -m tests.study.mutants` tries a hundred thousand of them.
"""

from __future__ import annotations

import itertools

import pytest

from tests.mutants import KINDS

pytestmark = pytest.mark.small

COUNT = {"sweeps": 100, "calls": 1500, "lines": 40}


@pytest.mark.parametrize("kind", COUNT)
def test_what_is_wrong_is_answered_by_a_sentence(kind, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for mutant in itertools.islice(KINDS[kind](7), COUNT[kind]):
        fault = mutant.fault()
        capsys.readouterr()
        assert fault is None, mutant.words
