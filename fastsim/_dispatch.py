"""Numba's dispatcher with the package's additions: lazy explicit signatures, a cache of our own, structs.

The only file, with `_kernel_cache`, that leans on numba's internals; `tests/test_jit.py` holds the contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.experimental import structref

from fastsim import _kernel_cache

_Dispatcher: Any = CPUDispatcher  # half of its methods exist in C only, unseen by type checkers


class Kernel(_Dispatcher):
    """A numba dispatcher that compiles its declared signature, if it has one, at first use."""

    _declared: Callable[[], Any] | None = None

    @classmethod
    def make(
        cls,
        function: Callable[..., Any],
        declared: Callable[[], Any] | None = None,
        *,
        inline: bool = False,
        allocates: bool = False,
    ) -> Kernel:
        """Wrap `function`; `declared` gives its signature when the first caller asks."""
        options = {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy"}
        options["_nrt"] = allocates
        made = cls(function, targetoptions=options | ({"forceinline": True} if inline else {}))
        made._declared = declared
        return made

    def cache_in(self, directory: Path | None) -> None:
        """Keep compiled code in `directory`, if its source is covered by the directory's digest."""
        if directory is not None and _kernel_cache.covers(self.py_func):
            self._cache = _kernel_cache.KernelCache(self.py_func, directory)

    def compile(self, sig: Any) -> Any:
        """Compile for `sig`, or to the declared signature whatever `sig` is."""
        if self._declared is None:
            return super().compile(sig)
        with global_compiler_lock:  # another thread may have been first
            if self._can_compile:
                super().compile(self._declared())
                self.disable_compile()
            (only,) = self.overloads.values()
            return only.entry_point

    def get_compile_result(self, sig: Any) -> Any:
        """The compiled code for `sig`; numba asks for it to make a function pointer."""
        if self._declared is not None:
            self.compile(sig)
        return super().get_compile_result(sig)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        if self._declared is None:
            return super()._compile_for_args(*args, **kws)
        self._compilation_chain_init_hook()
        entry_point = self.compile(None)
        self._check(args)  # the code is entered directly this once, without numba's own check
        return entry_point

    def _explain_matching_error(self, *args: Any, **kws: Any) -> None:
        if self._declared is not None:
            self._check(args)
        super()._explain_matching_error(*args, **kws)

    def _check(self, args: tuple[Any, ...]) -> None:
        """Raise TypeError naming the argument that does not fit the declared signature."""
        (only,) = self.overloads.values()
        for name, value, wanted in zip(
            inspect.signature(self.py_func).parameters, args, only.signature.args, strict=True
        ):
            given = self.typeof_pyval(value)
            if given != wanted and self.typingctx.can_convert(given, wanted) is None:
                raise TypeError(f"{self.__name__}: argument {name} must be {wanted}, not {given}")


class _Struct(structref.StructRefProxy):
    """A struct seen from Python: built by compiled code, fields given back as they came in."""

    _factory: Any
    _names: tuple[str, ...]

    def __new__(cls, *args: Any, **named: Any) -> Any:
        if named:
            args += tuple(named.pop(name) for name in cls._names[len(args) :] if name in named)
        if named or len(args) != len(cls._names):
            raise TypeError(f"{cls.__name__} takes exactly these fields: {', '.join(cls._names)}")
        made = cls._factory(*args)
        made.__dict__.update(zip(cls._names, args, strict=True))
        return made

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no field {name!r} that Python can see")


def make_struct(name: str, fields: dict[str, Any]) -> tuple[Any, Any, Callable[..., Any]]:
    """Build a struct.

    Returns
    -------
    tuple
        The Python class, the numba type, and the function that makes an instance, to be compiled: the
        constructor numba would make by itself is compiled anew in every process.
    """
    # Both classes must be importable by name: pickled by value, the cache would never match them again.
    type_class = _public(type(f"{name}Type", (types.StructRef,), {"__module__": __name__}))
    structref.register(type_class)
    proxy = _public(type(name, (_Struct,), {"__module__": __name__, "_names": tuple(fields)}))
    structref.define_proxy(proxy, type_class, list(fields))
    struct_type = type_class(list(fields.items()))
    arguments = ", ".join(fields)
    scope: dict[str, Any] = {name: proxy}
    text = f"def make_{name}({arguments}):\n    return {name}({arguments})\n"
    exec(compile(text, __file__, "exec"), scope)
    maker = scope[f"make_{name}"]
    maker.__module__ = __name__
    return proxy, struct_type, maker


def _public(made: type) -> type:
    if made.__name__ in globals():
        raise ValueError(f"a struct named {made.__name__!r} exists already, or the name is taken")
    globals()[made.__name__] = made
    return made
