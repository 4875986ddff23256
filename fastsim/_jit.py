"""Numba presets: the `kernel` decorator, the `struct` helper, and the names their signatures use.

Everything numba is asked to do goes through here, so that all kernels are compiled alike and cached safely
(`_kernel_cache`). Under ``NUMBA_DISABLE_JIT=1`` a kernel is the plain function.

Signatures are strings, resolved at first use, over numba's type names, the structs and the names given to
`define`: ``"int64(RouterView, float64, int64)"``. Arrays are written ``int64[::1]`` and must be writable.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from numba import config, types

from fastsim import _kernel_cache
from fastsim._dispatch import Kernel
from fastsim._struct import make_struct, pack, picker

F = TypeVar("F", bound=Callable[..., Any])

JIT: bool = not config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
SOURCE_DIGEST: str = _kernel_cache.SOURCES.digest
CACHE_DIR = _kernel_cache.open_directory() if JIT else None

__all__ = ["CACHE_DIR", "JIT", "SOURCE_DIGEST", "define", "kernel", "pointers", "struct"]

_names: dict[str, Any] = {}
_FIXED_ROW = re.compile(r"(?<= )(\d+)\]$")


@overload
def kernel(fn: F) -> F: ...
@overload
def kernel(
    fn: None = None, *, signature: str | None = None, inline: str | None = None, allocates: bool = False
) -> Callable[[F], F]: ...
def kernel(
    fn: Any = None, *, signature: str | None = None, inline: str | None = None, allocates: bool = False
) -> Any:
    """Compile a function with the package's presets: nopython, nogil, C division, cached on disk.

    Parameters
    ----------
    fn : function
        Arrays and numbers in, arrays and numbers out; it must also run as plain Python.
    signature : str, optional
        ``"result(argument, ...)"``. Compiled at first use, to this signature only, whatever is passed;
        required for kernels that take a function (a policy). Without it one version is compiled per set of
        argument types.
    inline : {None, "always"}
        ``"always"`` makes LLVM inline it into every caller.
    allocates : bool, optional
        Whether it makes arrays of its own. Without that numba's reference counting is left out, which every
        array argument of every small function pays for: a loop of three-line kernels over shared arrays took
        89 ns an iteration with it and 7 ns without. A kernel that allocates all the same does not
        compile.

    Raises
    ------
    ValueError
        If `inline` is neither.
    """
    if inline not in (None, "always"):
        raise ValueError(f"inline must be None or 'always', not {inline!r}")
    if not JIT:
        return fn if fn is not None else lambda function: function

    def wrap(function: Callable[..., Any]) -> Kernel:
        declared = None if signature is None else functools.partial(resolve, signature)
        made = Kernel.make(function, declared, inline=inline == "always", allocates=allocates)
        made.cache_in(CACHE_DIR)
        return made

    return wrap if fn is None else wrap(fn)


def define(name: str, expression: str) -> None:
    """Name a type for later signatures.

    A policy that a kernel takes is ``define("Route", "FunctionType(int64(View, float64, int64))")``.
    """
    _add_name(name, resolve(expression))


def struct(name: str, fields: dict[str, str]) -> Any:
    """Make a record of arrays that kernels take as one pointer.

    Kernels may change the arrays' contents but never rebind a field; a number that changes is an array of
    length one. A struct can be passed to kernels and policies, not returned by them.

    Parameters
    ----------
    name : str
        Name of the struct, also in signatures; unique in the process.
    fields : dict of str to str
        Field names and their array types, e.g. ``{"queue_len": "int64[::1]"}``. A number in place of the last
        ``::1`` fixes the length of a row (``"int64[:, 24]"``), which makes finding a place in it cheaper.

    Returns
    -------
    type
        Call it with the fields, in order or by name; instances keep the very arrays, as attributes.
    """
    rows = {field: int(found[1]) for field, text in fields.items() if (found := _FIXED_ROW.search(text))}
    kinds = {field: resolve(_FIXED_ROW.sub("::1]", text)) for field, text in fields.items()}
    made = make_struct(name, kinds, rows)
    _add_name(name, made._numba_type_)
    return made


def pointers(made: Any) -> tuple[Callable[..., Any], Any]:
    """Let kernels take any number of structs of one kind.

    Parameters
    ----------
    made : type
        From `struct`.

    Returns
    -------
    pack, at
        ``pack(structs)`` gives what to pass to a kernel (``int64[::1]`` in its signature); the structs must
        be kept alive meanwhile. In the kernel ``at(packed, k)`` is struct k.
    """
    if not JIT:
        return list, lambda packed, k: packed[k]
    return pack, picker(made._numba_type_)


def resolve(expression: str) -> Any:
    """Evaluate a signature or type written as text."""
    try:
        return eval(expression, {"__builtins__": {}}, _Scope())  # our own source text, never a user's input
    except NameError as error:
        raise TypeError(f"in the signature {expression!r}: {error}") from None


class _Scope(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        if name in _names:
            return _names[name]
        if hasattr(types, name):
            return getattr(types, name)
        raise KeyError(name)


def _add_name(name: str, value: Any) -> None:
    if _names.setdefault(name, value) != value:
        raise ValueError(f"two different types are both named {name!r}")
