"""The README works: blocks opened with ```sh run or ```python run are run, in order, from the top folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\S+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STUB_LINES = 20  # a shorter README is not written yet


RUNNERS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-W", "error", "-c"]}


def runnable(text: str) -> list[tuple[str, str]]:
    return [
        (language, code)
        for language, marks, code in BLOCK.findall(text)
        if language in RUNNERS and "run" in marks.split()
    ]


def readme() -> str:
    path = ROOT / "README.md"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(("language", "commands"), runnable(readme()))
def test_commands_of_the_readme_run(language, commands):
    if "../shared/" in commands and not (ROOT.parent / "shared").exists():
        pytest.skip("shared data is absent beside the repository")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [*RUNNERS[language], commands],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"


@pytest.mark.small
def test_the_readme_shows_a_command_that_is_tested():
    text = readme()
    if len(text.splitlines()) > STUB_LINES:
        assert runnable(text), "no block of README.md is marked ```sh run"


@pytest.mark.small
def test_the_readme_counts_the_policies():
    folder = ROOT / "fastsim" / "cluster" / "routers"
    policies = sum(path.read_text().count("\n@router(") for path in folder.glob("*.py"))
    assert f"\n{policies} policies as their systems have them" in readme()


@pytest.mark.small
def test_only_marked_blocks_are_run():
    text = "```sh\nno\n```\n\n```sh run\nyes\nyes\n```\n\n```python run\n1\n```\n```text run slow\nno\n```\n"
    assert runnable(text) == [("sh", "yes\nyes\n"), ("python", "1\n")]
