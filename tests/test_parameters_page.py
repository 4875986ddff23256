"""docs/parameters.md is what the code declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.small

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"


def test_the_reference_page_is_in_step():
    """In a process of its own: other tests register routers."""
    command = [sys.executable, "-m", "fastsim.report.parameters"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert made.stdout == PAGE.read_text(), f"{' '.join(command[1:])} > docs/parameters.md"
