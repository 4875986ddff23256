"""A user's own modules: policies, workloads and experiments from outside the package.

What a module says decides results. So its source, and that of the modules beside it which it imports, count
in a sweep's code version: after an edit, points are simulated again. Workers import the module themselves;
where their machine does not have it, they get its sources with their points.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fastsim.errors import InputError
from fastsim.sweep import params as P
from fastsim.sweep.backends import behind_the_library
from fastsim.sweep.params import Params


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A module that a sweep imports.

    Attributes
    ----------
    name : str
        As the user wrote it: ``my.py``, or ``package.module``.
    path : str
        Its file.
    root : str
        The folder from which it and its neighbours are imported.
    digest : str
        Content hash of its source and of those in `root` that it imports, and they in turn.
    """

    name: str
    path: str
    root: str
    digest: str


@dataclass(frozen=True)
class Parcel:
    """Modules for a worker, with their sources in case its machine does not have them."""

    sources: tuple[Source, ...] = ()
    files: tuple[Mapping[str, bytes], ...] = ()


def bring_in(given: Iterable[str], folder: Path) -> tuple[Source, ...]:
    """Find modules and import them, once each unless they were edited since.

    Parameters
    ----------
    given : iterable of str
        Files (``my.py``), or modules by their dotted names.
    folder : Path
        What files and modules are relative to; modules may also be installed.

    Raises
    ------
    InputError
        If there is no such module, or it fails when it is imported.
    """
    found = tuple(_find(name, folder.resolve()) for name in given)
    for source in found:
        _import(source)
    return found


def parcel(sources: Sequence[Source]) -> Parcel:
    """The same modules, ready to be sent to workers."""
    return Parcel(tuple(sources), tuple(_files(Path(each.path), Path(each.root)) for each in sources))


def unpack(given: Parcel) -> None:
    """Import a worker's modules: the files named, if they are there as they were, else the sources sent."""
    for source, files in zip(given.sources, given.files, strict=True):
        if _LOADED.get(source.path) == source.digest:
            continue
        path = Path(source.path)
        if not path.is_file() or _digest(_files(path, Path(source.root))) != source.digest:
            root = Path(_sent_folder()) / source.digest
            for relative, content in files.items():
                (root / relative).parent.mkdir(parents=True, exist_ok=True)
                (root / relative).write_bytes(content)
            at = str(root / path.relative_to(source.root))
            source = msgspec.structs.replace(source, root=str(root), path=at)
        _import(source)


def recall(sources: Iterable[Source]) -> list[str]:
    """Import the modules of stored results that are as they were; say which are not, and why."""
    said: list[str] = []
    for source in sources:
        path = Path(source.path)
        if not path.is_file():
            said.append(f"import {source.name}: {path} is gone; what it gave is shown as it was stored")
            continue
        try:
            if _digest(_files(path, Path(source.root))) != source.digest:
                said.append(
                    f"import {source.name}: it was edited; what is shown was made by the older source"
                )
                continue
            _import(source)
        except InputError as error:
            said.append(f"{error}; what it gave is shown as it was stored")
    return said


def code_version(package: str, sources: Sequence[Source], cells: Sequence[Params]) -> str:
    """Digest of all code that decides results: the package's, and a user's own, imported here or before."""
    own = [source.digest for source in sources]
    own += [_code_of(function) for function in registered_here(cells, sources).values()]
    return P.digest([package, *sorted(own)]) if own else package


def registered_here(cells: Sequence[Params], sources: Sequence[Source]) -> dict[str, Any]:
    """Routers that the cells name and that this process registered without an import: name -> function."""
    routers = sys.modules.get("fastsim.cluster.routers")
    if routers is None:
        return {}
    imported = {
        str(Path(each.root, name)) for each in sources for name in _files(Path(each.path), Path(each.root))
    }
    flat = (item for cell in cells for item in P.flatten(cell).items())
    named = {value for name, value in flat if name.rpartition(".")[2] == "router"}
    functions = {name: routers.ROUTERS[name].policy for name in routers.ROUTERS.own() if name in named}
    plain = {name: getattr(function, "py_func", function) for name, function in functions.items()}
    return {
        name: f for name, f in plain.items() if str(Path(f.__code__.co_filename).resolve()) not in imported
    }


def _code_of(function: Any) -> str:
    """Content hash of the file a function is in, or of its bytecode where there is none (a notebook)."""
    path, code = Path(function.__code__.co_filename), function.__code__
    return P.file_digest(path) if path.is_file() else P.digest([code.co_code.hex(), repr(code.co_consts)])


# --- finding ------------------------------------------------------------------------------------------------


def _find(name: str, folder: Path) -> Source:
    if name.endswith(".py") or "/" in name:
        path = (folder / Path(name).expanduser()).resolve()
        root = path.parent
        if not path.is_file():
            raise InputError(f"import {name}: there is no file {path}")
    else:
        path, root = _module(name, folder)
    return Source(name=name, path=str(path), root=str(root), digest=_digest(_files(path, root)))


def _module(name: str, folder: Path) -> tuple[Path, Path]:
    """File of a module, and the folder its top package is in."""
    _add_to_path(folder)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise InputError(f"import {name}: {error}") from None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise InputError(
            f"import {name}: there is no such module; a file is written with its ending, {name}.py"
        )
    path = Path(spec.origin).resolve()
    up = name.count(".") + (path.name == "__init__.py")
    return path, path.parents[up]


def _files(path: Path, root: Path) -> dict[str, bytes]:
    """The source of a module and those of all that it imports from the same root, by their relative paths."""
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        here = waiting.pop()
        if here in found:
            continue
        found[here] = here.read_bytes()
        try:
            tree = ast.parse(found[here])
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise InputError(
                f"import {here.name} fails: {error}" + (f" (line {line})" if line else "")
            ) from None
        waiting += [*_packages(here, root), *_imported(tree, here, root)]
    return {each.relative_to(root).as_posix(): found[each] for each in sorted(found)}


def _packages(path: Path, root: Path) -> Iterator[Path]:
    """What is run before the module: the files of the packages it is in."""
    for folder in path.parents:
        if folder == root:
            return
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"


def _imported(tree: ast.AST, path: Path, root: Path) -> Iterator[Path]:
    """Files below the root that a source may import, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _along(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else root
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _along(base, [*parts, alias.name])


def _along(base: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The module at the end of a dotted name, and the packages on the way."""
    for depth in range(1, len(parts) + 1):
        here = base.joinpath(*parts[:depth])
        yield from (path for path in (here.with_suffix(".py"), here / "__init__.py") if path.is_file())


def _digest(files: Mapping[str, bytes]) -> str:
    return P.digest({name: hashlib.blake2b(content).hexdigest() for name, content in files.items()})


# --- importing ----------------------------------------------------------------------------------------------

_LOADED: dict[str, str] = {}  # path -> digest, of what this process has imported
_LOCK = threading.Lock()


def _import(source: Source) -> None:
    with _LOCK:
        if _LOADED.get(source.path) == source.digest:
            return
        root, path = Path(source.root), Path(source.path)
        _add_to_path(root)
        if source.path in _LOADED:  # it was edited: what it imports may have been, too
            _forget(root / name for name in _files(path, root))
        importlib.invalidate_caches()
        try:
            if source.name.endswith(".py") or "/" in source.name:
                _run(path, f"_fastsim_import_{path.stem}_{source.digest}")
            else:
                importlib.import_module(source.name)
        except Exception as error:
            raise InputError(f"import {source.name} fails: {_sentence(error, root)}") from error
        _LOADED[source.path] = source.digest


def _run(path: Path, name: str) -> None:
    """Make a module of a file; not through Python's cache, which takes an edit within a second for none."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # type hints are looked up there
    try:
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise


def _forget(paths: Iterable[Path]) -> None:
    files = {str(path) for path in paths}
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) in files:
            del sys.modules[name]


def _add_to_path(folder: Path) -> None:
    """Let modules of the folder be found: after Python's own, whose names they must not take."""
    if str(folder) not in sys.path:
        sys.path[:] = behind_the_library(sys.path, [str(folder)])


def _sentence(error: Exception, root: Path) -> str:
    """The error, and the last line of the user's own that led to it."""
    lines = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(root)
    ]
    where = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
    return f"{type(error).__name__}: {error}{where}"


@functools.cache
def _sent_folder() -> str:
    """Where this process keeps sources that were sent to it, until it ends."""
    _KEPT.append(tempfile.TemporaryDirectory(prefix="fastsim-import-"))
    return _KEPT[-1].name


_KEPT: list[Any] = []
