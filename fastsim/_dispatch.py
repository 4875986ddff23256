"""Numba's dispatcher with the package's additions: lazy explicit signatures, errors that name the argument.

With `_kernel_cache` and `_struct` the only one that leans on numba's internals: see `tests/test_jit.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher

from fastsim import _kernel_cache

# What numba says when a kernel without reference counting makes an array.
_ALLOCATES = ("NRT required but not enabled", "Only accept returning of array passed into the function")
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
            return self._compile(sig)
        with global_compiler_lock:  # another thread may have been first
            if self._can_compile:
                self._compile(self._declared())
                self.disable_compile()
            (only,) = self.overloads.values()
            return only.entry_point

    def _compile(self, sig: Any) -> Any:
        try:
            return super().compile(sig)
        except NumbaError as error:
            if any(sign in str(error) for sign in _ALLOCATES):
                message = f"{self.__name__} makes an array, so it needs @kernel(allocates=True)"
                raise TypeError(message) from error
            raise

    def get_compile_result(self, sig: Any) -> Any:
        """The compiled code for `sig`; numba asks for it to make a function pointer."""
        if self._declared is not None and not self.overloads:
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
