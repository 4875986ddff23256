"""Kernels as other kernels call them: LLVM code to be linked, neither optimised nor made into machine code.

Numba gives every callee machine code, module passes and entries from Python and C of its own, and throws them
away: only the kernel at the top is ever run. Here a callee is lowered and no more; all passes run once, over
the kernel that Python calls. That halves the time to compile.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core import compiler, types
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import lookup_environment
from numba.core.targetconfig import ConfigStack

_ENVIRONMENT = "_ZN08NumbaEnv"  # how numba's names of the global variables of environments begin

_Library: Any = JITCodeLibrary  # llvmlite has no types
_Flags: Any = compiler.Flags
_DEFAULTS = {name: option.default for name, option in _Flags.options.items()}


class Flags(_Flags):
    """Numba's flags, compared at a tenth of the cost: it looks them up 300,000 times for 250 kernels."""

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        """All flags by name, as numba has them."""
        return _DEFAULTS | self._values

    def __hash__(self) -> int:
        return _HASH

    def __eq__(self, other: object) -> bool:
        return isinstance(other, compiler.Flags) and self.values() == other.values()


_HASH = hash(_Flags())  # numba's depends on the names alone


class CalleeLibrary(_Library):
    """The code of a callee and of all that it calls, to be linked into others."""

    def finalize(self) -> None:
        """Link what it calls; the kernel at the top is verified with all that it was linked from."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        passes = llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(self._final_module, self._codegen._pass_builder())
        self._finalize_dynamic_globals()
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_dead_code_elimination_pass()
        for function in ll_module.functions:
            passes.run(function, builder)


def lower(dispatcher: Any, args: tuple[Any, ...], return_type: Any) -> Any:
    """Lower a dispatcher's function for argument types; a numba `CompileResult` without an entry point."""
    function = dispatcher.py_func
    target = dispatcher.targetctx
    flags = _flags(dispatcher)
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    library = CalleeLibrary(target.codegen(), function.__qualname__)
    made = compiler.compile_extra(
        dispatcher.typingctx, target, function, args, return_type, flags, {}, library=library
    )
    if made.typing_error is not None:
        raise made.typing_error
    return made


def _flags(dispatcher: Any) -> Flags:
    flags = Flags()
    dispatcher.targetdescr.options.parse_as_flags(flags, dispatcher.targetoptions)
    return flags


def enter(dispatcher: Any, callee: Any) -> Any:
    """Make a callee a function that Python and function pointers can call: all passes, and machine code."""
    target = dispatcher.targetctx
    descriptor, environment = callee.fndesc, callee.environment
    library = target.codegen().create_library(callee.library.name)
    library.enable_object_caching()
    flags = _flags(dispatcher)
    inside = target.subtarget(environment=environment, fndesc=descriptor, enable_nrt=flags.nrt)
    with ConfigStack().enter(flags), inside.push_code_library(library):
        inside.create_cpython_wrapper(library, descriptor, environment, None, release_gil=True)
        if not any(isinstance(kind, types.Omitted) for kind in descriptor.argtypes):
            inside.create_cfunc_wrapper(library, descriptor, environment, None)  # for function pointers
    library.add_linking_library(callee.library)
    entry = target.get_executable(library, descriptor, environment)
    for found in _environments(library):  # of callees: this is the first machine code that holds them
        library.codegen.set_env(found.env_name, found)
    return compiler.compile_result(
        typing_context=callee.typing_context,
        target_context=target,
        entry_point=entry,
        typing_error=None,
        type_annotation=callee.type_annotation,
        library=library,
        call_helper=None,
        signature=callee.signature,
        objectmode=False,
        lifted=(),
        fndesc=descriptor,
        environment=environment,
        metadata=callee.metadata,
        reload_init=list(library._reload_init),
    )


def _environments(library: Any) -> list[Any]:
    names = (variable.name for variable in library._final_module.global_variables)
    found = (lookup_environment(name) for name in names if name.startswith(_ENVIRONMENT))
    return [environment for environment in found if environment is not None]


def reduce(callee: Any) -> tuple[Any, ...]:
    """A callee as something that can be pickled."""
    descriptor = callee.fndesc
    descriptor.typemap = descriptor.calltypes = None
    library = callee.library
    code = library._get_module_for_linking().as_bitcode()
    return library.name, code, descriptor, callee.environment, callee.signature, _environments(library)


def rebuild(target: Any, name: str, code: bytes, *rest: Any) -> Any:
    """The callee that `reduce` took apart."""
    descriptor, environment, signature, environments = rest
    library = CalleeLibrary(target.codegen(), name)
    library._final_module = llvm.parse_bitcode(code)
    library._finalized = True
    made = compiler.compile_result(
        typing_context=target.typing_context,
        target_context=target,
        entry_point=None,
        typing_error=None,
        type_annotation="",
        library=library,
        call_helper=None,
        signature=signature,
        objectmode=False,
        lifted=(),
        fndesc=descriptor,
        environment=environment,
        metadata=None,
        reload_init=[],
        referenced_envs=environments,  # kept: the code names them
    )
    return made
