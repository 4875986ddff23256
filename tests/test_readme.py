"""README and docs work: blocks opened with ```sh run or ```python run are run, in order, from the top."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastsim.cli import app

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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^fastsim ([a-z_-]+)", re.MULTILINE)
FILES = re.compile(r"\b(?:data|sweeps|docs)/[\w./-]*\w")
BLOCKS = [
    pytest.param(language, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (language, code) in enumerate(runnable(page.read_text()))
]


@pytest.mark.parametrize(("language", "commands"), BLOCKS)
def test_commands_of_the_pages_run(language, commands):
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
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_files_of_the_pages_exist(page):
    """What stands in the middle of a sentence, too, on what comes with the project."""
    text = page.read_text()
    known = set(app.resolved_commands())
    codes = [*re.findall(r"`([^`\n]+)`", text), *(code for _, _, code in BLOCK.findall(text))]
    assert {word for code in codes for word in COMMAND.findall(code)} <= known
    missing = [name for name in FILES.findall(text) if not (ROOT / name).exists()]
    assert not missing
    assert "../shared" not in text


@pytest.mark.small
def test_the_readme_counts_the_policies():
    folder = ROOT / "fastsim" / "cluster" / "routers"
    policies = sum(path.read_text().count("\n@router(") for path in folder.glob("*.py"))
    assert f"\n{policies} policies as their systems have them" in readme()


@pytest.mark.small
def test_only_marked_blocks_are_run():
    text = "```sh\nno\n```\n\n```sh run\nyes\nyes\n```\n\n```python run\n1\n```\n```text run slow\nno\n```\n"
    assert runnable(text) == [("sh", "yes\nyes\n"), ("python", "1\n")]
