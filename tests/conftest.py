from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("FASTSIM_SHARED", Path(__file__).parents[1].parent / "shared"))


def shared_path(relative: str) -> Path:
    """A file of the data shared beside the repository; skips the test, or the module, where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(
            f"shared data {relative} is absent (FASTSIM_SHARED names its folder)", allow_module_level=True
        )
    return path


@pytest.fixture(name="shared_path", scope="session")
def _shared_path_fixture():
    return shared_path
