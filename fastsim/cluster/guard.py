"""Policies as plain Python over arrays that are checked at every access: what compiled code does unchecked.

A kernel keeps the function it was made of. `plain` puts such functions together again, so that a policy runs
with all that it calls, the package's own helpers included, and errors have lines. Numbers are NumPy's, with
the arithmetic of machine numbers: integers wrap, and a division by zero is no error.
"""

from __future__ import annotations

import math
import sys
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fastsim.cluster.routers import view as rv

# Who may write to a view's arrays. All others are the cluster's, and nobody's to write.
_OWN = frozenset({"memory", "real", "count", "score", "best"})
_BY_HELPERS = frozenset(
    {"match", "found", "rng", "changes", "tree", "holds", "marks", "node", "entry", "where", "list"}
)
_ASKED = frozenset({rv.SOURCE, rv.SEND_BLK, rv.SEND_PS, rv.PRIORITY})  # places of `prompt`
_WRITABLE = "a policy may write to view.memory, view.real, view.count, view.score and view.best"


class Refused(Exception):
    """What a policy did, and what is allowed."""


class Array:
    """A view's array, or a part of it, that checks its indices and who writes.

    Parameters
    ----------
    array : ndarray
    name : str
        As the policy writes it.
    writers : {"all", "helpers", "nobody", "asked"}
        Who may write; "asked" are some places only.
    """

    __slots__ = ("array", "name", "writers")

    def __init__(self, array: np.ndarray, name: str, writers: str) -> None:
        self.array = array
        self.name = name
        self.writers = writers

    @property
    def shape(self) -> tuple[int, ...]:
        """As the array's."""
        return self.array.shape

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self.array)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.array, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(np.array(self.array), name)  # a copy: what it does to it does not count

    def __getitem__(self, at: Any) -> Any:
        try:
            value = self.array[at]
        except IndexError:
            raise Refused(self._outside("reads", at)) from None
        return (
            Array(value, f"{self.name}[{_text(at)}]", self.writers)
            if isinstance(value, np.ndarray)
            else value
        )

    def __setitem__(self, at: Any, value: Any) -> None:
        if not self._may_write(at):
            raise Refused(f"writes to {self.name}[{_text(at)}], which is not its own; {_WRITABLE}")
        given = np.asarray(value.array if isinstance(value, Array) else value)
        try:
            # As compiled code has it: fractions are cut off, and what is too large for the type wraps.
            self.array[at] = given.astype(self.array.dtype, casting="unsafe")
        except IndexError:
            raise Refused(self._outside("writes to", at)) from None
        except (TypeError, ValueError) as error:
            raise Refused(f"writes {value!r} to {self.name}[{_text(at)}]: {error}") from None

    def _may_write(self, at: Any) -> bool:
        if self.writers == "helpers":
            return _by_the_package(sys._getframe(2))
        if self.writers == "asked":
            return isinstance(at, int | np.integer) and int(at) in _ASKED
        return self.writers == "all"

    def _outside(self, does: str, at: Any) -> str:
        shape = self.array.shape
        if len(shape) == 1:
            last = f"0 to {shape[0] - 1}" if shape[0] else "none"
            return f"{does} {self.name}[{_text(at)}], which has {shape[0]:,} entries: {last}"
        return f"{does} {self.name}[{_text(at)}], which has {' x '.join(map(str, shape))} entries"


def _text(at: Any) -> str:
    if isinstance(at, tuple):
        return ", ".join(map(_text, at))
    if isinstance(at, slice):
        return ":".join("" if end is None else _text(end) for end in (at.start, at.stop))
    return str(at)


def _by_the_package(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("fastsim.")


class View:
    """A router's view with all its arrays guarded."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.__dict__[name] = Array(array, f"view.{name}", _writers(name))


def _writers(name: str) -> str:
    if name == "prompt":
        return "asked"
    return "all" if name in _OWN else "helpers" if name in _BY_HELPERS else "nobody"


# --- plain functions ----------------------------------------------------------------------------------------


def plain(kernel: Any, known: dict[int, Any] | None = None) -> Any:
    """The plain Python function of a kernel, which calls the plain functions of the kernels it calls."""
    known = {} if known is None else known
    function = getattr(kernel, "py_func", kernel)
    if id(function) in known:
        return known[id(function)]
    names = {"__builtins__": __builtins__, "__name__": function.__module__}
    made = FunctionType(
        function.__code__,
        names,
        function.__name__,
        function.__defaults__,
        tuple(CellType() for _ in function.__closure__ or ()),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    known[id(function)] = made
    for name in _names(function.__code__) & function.__globals__.keys():
        names[name] = _plain_value(function.__globals__[name], known)
    for mine, its in zip(made.__closure__ or (), function.__closure__ or (), strict=True):
        mine.cell_contents = _plain_value(its.cell_contents, known)
    return made


def _names(code: Any) -> set[str]:
    """Names of globals that a function's code may ask for."""
    inner = (each for each in code.co_consts if hasattr(each, "co_names"))
    return set(code.co_names).union(*map(_names, inner))


def _plain_value(value: Any, known: dict[int, Any]) -> Any:
    if hasattr(value, "py_func"):
        return plain(value, known)
    if value is np.uint64 or value is np.int64:
        return _WRAPPING[value]
    if value is math:
        return _Math()
    if isinstance(value, ModuleType) and (value is np or value.__name__.startswith("fastsim")):
        return _Module(value, known)
    return value


# Conversions as compiled code has them; NumPy's refuse a number that the type does not hold.
_WRAPPING = {
    np.uint64: lambda x: np.uint64(int(x) & (1 << 64) - 1),
    np.int64: lambda x: np.uint64(int(x) & (1 << 64) - 1).astype(np.int64),
}


class _Module:
    """A module whose kernels are plain functions."""

    def __init__(self, module: ModuleType, known: dict[int, Any]) -> None:
        self._module, self._known = module, known

    def __getattr__(self, name: str) -> Any:
        return _plain_value(getattr(self._module, name), self._known)


class _Math:
    """The module `math` as compiled code has it: what is not defined is NaN or infinite, and no error."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(math, name)
        if not callable(value):
            return value

        def function(*args: Any) -> Any:
            try:
                return value(*args)
            except (OverflowError, ValueError):
                return float(getattr(np, name)(*args))

        return function
