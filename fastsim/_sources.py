"""Digests of the package's sources: what a kernel was compiled from, and which code made a result."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_NO_NAMES = re.compile(r"#[^\n]*|\bas\s+\w+")  # of what is imported


class Snapshot:
    """The sources of a package as they were when this process first looked.

    A file's own digest covers all that it can see: the modules it mentions, what those mention in turn, and
    the tables (TOML) beside each. Mentions are found in the text, comments too: one too many does no harm.

    Parameters
    ----------
    package : Path
        The package's folder.
    """

    def __init__(self, package: Path) -> None:
        self._package = package
        found = sorted(path for suffix in ("py", "toml") for path in package.rglob(f"*.{suffix}"))
        self._content = {path: path.read_bytes() for path in found}
        self._stamps = {path: _stamp(path) for path in found}
        self._visible: dict[Path, set[Path]] = {}
        self._seen: dict[Path, list[Path]] = {}
        name = re.escape(package.name)
        self._absolute = re.compile(rf"{name}(?:\.([\w.]+))?(?:\s+import\s+(\([^)]*\)|[^\n]*))?")
        self._everything = re.compile(rf"import\s+{name}\b(?!\.)")
        self._relative = re.compile(r"from\s+(\.+)")

    @functools.cached_property
    def digest(self) -> str:
        """The digest of all sources."""
        return self._digest(self._content)

    def digest_from(self, start: Path) -> str:
        """Return the digest of `start` and all that it can see."""
        return self._digest(self.seen_from(start))

    def unchanged_from(self, start: Path) -> bool:
        """Whether `start` and all that it can see are still on disk as they were."""
        try:
            return all(self._stamps[path] == _stamp(path) for path in self.seen_from(start))
        except OSError:
            return False

    def seen_from(self, start: Path) -> list[Path]:
        """Return `start` and all that it can see, sorted."""
        if start not in self._seen:
            seen: set[Path] = set()
            waiting = [start]
            while waiting:
                path = waiting.pop()
                if path not in seen:
                    seen.add(path)
                    if path not in self._visible:
                        self._visible[path] = set(self._look_from(path))
                    waiting.extend(self._visible[path])
            self._seen[start] = sorted(seen)
        return self._seen[start]

    def __contains__(self, path: Path) -> bool:
        return path in self._content

    def _look_from(self, path: Path) -> Iterator[Path]:
        """What one file sees without the help of others."""
        if path.suffix != ".py":
            return
        yield from (
            other for other in self._content if other.suffix == ".toml" and other.parent == path.parent
        )
        text = self._content[path].decode()
        for dotted, imported in self._absolute.findall(text):
            names = re.findall(r"\w+", _NO_NAMES.sub("", imported))
            if dotted and not names:
                yield from self._named(dotted)
            for name in names:
                yield from self._named(f"{dotted}.{name}".lstrip(".")) or [self._package / "__init__.py"]
        for dots in self._relative.findall(text):
            yield from self._under(path.parents[len(dots) - 1])
        if self._everything.search(text):
            yield from self._content

    def _named(self, dotted: str) -> list[Path]:
        """The module a dotted name leads to; the whole folder if it is one, or a name in its `__init__`."""
        place = self._package
        for part in dotted.split("."):
            module = place / f"{part}.py"
            if module in self._content:
                return [module]
            if not (place / part).is_dir():
                break
            place /= part
        return [] if place == self._package else self._under(place)

    def _under(self, folder: Path) -> list[Path]:
        return [path for path in self._content if path.is_relative_to(folder)]

    def _digest(self, paths: Iterable[Path]) -> str:
        total = hashlib.blake2b(digest_size=10)
        for path in paths:
            content = self._content[path]
            total.update(f"{path.relative_to(self._package).as_posix()}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    info = os.stat(path)
    return info.st_mtime_ns, info.st_size
