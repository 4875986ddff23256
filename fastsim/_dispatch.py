"""Numba's dispatcher with the package's additions: lazy explicit signatures, errors that name the argument.

Only this module, `_callee`, `_kernel_cache` and `_struct` lean on numba's internals: see `tests/test_jit.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.typing.templates import make_concrete_template

from fastsim import _callee, _kernel_cache

# What numba says when a kernel without reference counting makes an array.
_ALLOCATES = ("NRT required but not enabled", "Only accept returning of array passed into the function")
_Dispatcher: Any = CPUDispatcher  # half of its methods exist in C only, unseen by type checkers


class Kernel(_Dispatcher):
    """A numba dispatcher that compiles its declared signature, if it has one, at first use."""

    _declared: Callable[[], Any] | None = None
    _callees: dict[tuple[Any, ...], Any]  # argument types -> what other kernels link

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
        made._callees = {}
        made._cache = _kernel_cache.NoCache()
        return made

    def cache_in(self, directory: Path | None) -> None:
        """Keep compiled code in `directory`, if its source is covered by the directory's digest."""
        if directory is not None and _kernel_cache.covers(self.py_func):
            self._cache = _kernel_cache.KernelCache(self.py_func, directory)

    def compile(self, sig: Any) -> Any:
        """Compile for `sig`, or to the declared signature whatever `sig` is; returns what Python calls."""
        with global_compiler_lock:  # another thread may have been first
            return self._entered(self._types(sig)).entry_point

    def get_compile_result(self, sig: Any) -> Any:
        """The compiled code for `sig`; numba asks for it to make a function pointer."""
        self.compile(sig)
        return super().get_compile_result(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """How a kernel that is being compiled calls this one."""
        signature, folded = self._compiler.fold_argument_types(args, kws)
        callee = self._callee(self._types(tuple(folded)))
        name = self.py_func.__name__
        template = make_concrete_template(f"CallTemplate({name})", key=name, signatures=[callee.signature])
        return template, signature, folded, {}

    def get_overload(self, sig: Any) -> Any:
        """What numba finds the callee by, for a call that `get_call_template` allowed."""
        return self._callee(self._types(sig)).library

    def _types(self, sig: Any) -> tuple[tuple[Any, ...], Any]:
        """Argument types and, where it is declared, the type of the result."""
        return normalize_signature(sig if self._declared is None else self._declared())

    def _callee(self, wanted: tuple[tuple[Any, ...], Any]) -> Any:
        """The code for other kernels to link, made once."""
        args, _ = wanted
        if args not in self._callees:
            with self._compiling_counter:
                made = self._cache.load_callee(wanted, self.targetctx)
                if made is None:
                    made = self._lowered(wanted)
                    self._cache.save_callee(wanted, made)
            self.targetctx.insert_user_function(made.library, made.fndesc, [made.library])
            self._callees[args] = made
        return self._callees[args]

    def _lowered(self, wanted: tuple[tuple[Any, ...], Any]) -> Any:
        try:
            return _callee.lower(self, *wanted)
        except NumbaError as error:
            if any(sign in str(error) for sign in _ALLOCATES):
                message = f"{self.__name__} makes an array, so it needs @kernel(allocates=True)"
                raise TypeError(message) from error
            raise

    def _entered(self, wanted: tuple[tuple[Any, ...], Any]) -> Any:
        """The code that Python and function pointers call, made once."""
        args, _ = wanted
        if args not in self.overloads:
            made = self._cache.load_overload(wanted, self.targetctx)
            (self._cache_misses if made is None else self._cache_hits)[args] += 1
            if made is None:
                made = _callee.enter(self, self._callee(wanted))
                self._cache.save_overload(wanted, made)
            self.add_overload(made)
            if self._declared is not None:
                self.disable_compile()
        return self.overloads[args]

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
