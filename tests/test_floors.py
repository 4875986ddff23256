"""The house rules about who may import whom, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.small

PACKAGE = Path(__file__).parents[1] / "fastsim"

# From the ground up. A module imports from its own floor and those below; names in one set share a floor.
FLOORS = [
    {
        "errors",
        "_interrupt",
        "_memory",
        "_paths",
        "_sources",
        "typed",
        "_kernel_cache",
        "_callee",
        "_dispatch",
        "_struct",
        "_jit",
        "_bits",
        "rng",
    },
    {"stats"},
    {"hardware"},
    {"workloads"},
    {"selection"},
    {"cluster"},
    {"queueing"},
    {"fleet"},
    {"sweep"},
    {"lecture"},
    {"report"},
    {"cli", "cli_queueing", "cli_selection", "cli_shared"},
]
FLOOR = {name: level for level, names in enumerate(FLOORS) for name in names}

# What reads, writes or talks to the world; a file of kernels has no business with any of it.
INPUT_OUTPUT = {
    *("csv", "gzip", "io", "joblib", "json", "logging", "matplotlib", "msgspec", "os", "pathlib", "pickle"),
    *("polars", "pyarrow", "shutil", "socket", "subprocess", "sys", "tempfile", "tomllib", "tqdm"),
}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """Dotted names of all modules imported anywhere in a file, relative imports resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> list[str]:
    return list(imports(ast.parse(path.read_text()), name_of(path), is_package=path.name == "__init__.py"))


def floor(module: str) -> int:
    room = module.split(".")[1]
    assert room in FLOOR, f"{module}: give {room!r} a floor in {Path(__file__).name}"
    return FLOOR[room]


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_downward(path):
    mine = floor(name_of(path))
    upward = [name for name in imports_of(path) if name.startswith("fastsim.") and floor(name) > mine]
    assert not upward, f"{name_of(path)} imports from floors above its own: {', '.join(upward)}"


def is_kernel(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    names = [item.func if isinstance(item, ast.Call) else item for item in decorators]
    return any(isinstance(name, ast.Name) and name.id == "kernel" for name in names)


def holds_only_kernels(tree: ast.Module) -> bool:
    code = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return bool(code) and all(is_kernel(node) for node in code)


def test_files_of_kernels_do_no_input_or_output():
    for path in modules():
        if holds_only_kernels(ast.parse(path.read_text())):
            outside = {name.split(".")[0] for name in imports_of(path)} & INPUT_OUTPUT
            assert not outside, f"{name_of(path)} holds only kernels but imports {', '.join(sorted(outside))}"


def test_the_rules_catch_what_they_are_for():
    assert list(
        imports(ast.parse("from ..sweep import run"), "fastsim.cluster.engine", is_package=False)
    ) == ["fastsim.sweep.run"]
    assert list(imports(ast.parse("from . import run"), "fastsim.sweep", is_package=True)) == [
        "fastsim.sweep.run"
    ]
    assert floor("fastsim.sweep.run") > floor("fastsim.cluster.engine")
    assert holds_only_kernels(ast.parse("@kernel\ndef f(): ...\n@kernel(inline='always')\ndef g(): ..."))
    assert not holds_only_kernels(ast.parse("@kernel\ndef f(): ...\ndef g(): ..."))


def test_importing_the_package_imports_nothing_heavy():
    heavy = ["numba", "numpy", "polars", "pyarrow", "scipy", "matplotlib", "joblib", "cyclopts"]
    code = f"import sys, fastsim; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_and_unknown_attributes():
    import fastsim

    assert fastsim.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no attribute 'simulte'"):
        _ = fastsim.simulte
