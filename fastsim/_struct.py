"""Records of arrays that a kernel takes as one pointer.

In place of numba's structref: there is nothing to compile, nothing to count, and LLVM is told that fields
never change. The Python object owns the arrays and, in `_words`, their descriptors as compiled code has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)
from numba.np.numpy_support import as_dtype


class Struct:
    """A struct as Python sees it; `make_struct` makes one subclass for each.

    Parameters
    ----------
    *arrays, **named
        The fields, in order or by name. They are kept, not copied, and given back as attributes.

    Raises
    ------
    TypeError
        If a field is missing, unknown, or not an array of the declared type, C-contiguous and writable.
    """

    __slots__ = ("__dict__", "_address", "_words")
    _numba_type_: StructType

    def __init__(self, *arrays: Any, **named: Any) -> None:
        wanted = self._numba_type_.fields
        given = dict(zip(wanted, arrays, strict=False)) | named
        if given.keys() != wanted.keys() or len(arrays) + len(named) != len(wanted):
            raise TypeError(f"{type(self).__name__} takes exactly these fields: {', '.join(wanted)}")
        words: list[int] = []
        kind = self._numba_type_
        for field in wanted:
            array = given[field]
            _check(type(self).__name__, kind, field, array)
            # No owner and no memory header: the array is ours to keep alive, not the kernel's.
            words += [0, 0, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides]
        self.__dict__.update((field, given[field]) for field in wanted)
        self._words = np.array(words, dtype=np.int64)
        self._address = self._words.ctypes.data


def make_struct(name: str, fields: dict[str, Any], rows: dict[str, int]) -> type[Struct]:
    """Make a class of structs, given its numba array types and the row lengths that are fixed, by field."""
    for field, array_type in fields.items():
        if not isinstance(array_type, types.Array) or array_type.layout != "C":
            raise TypeError(f"{name}.{field} must be a C-contiguous array type, not {array_type}")
    return type(name, (Struct,), {"__slots__": (), "_numba_type_": StructType(name, fields, rows)})


class StructType(types.Type):
    """The numba type of a struct: equal where name, fields and their fixed row lengths are."""

    def __init__(self, name: str, fields: dict[str, Any], rows: dict[str, int]) -> None:
        self.fields = fields
        self.rows = rows
        self.dtypes = {field: as_dtype(kind.dtype) for field, kind in fields.items()}  # numba takes its time
        listed = (f"{field}: {kind} {rows.get(field, '')}" for field, kind in fields.items())
        super().__init__(f"{name}({', '.join(listed)})")


def _check(name: str, kind: StructType, field: str, array: Any) -> None:
    what, wanted, row = f"{name}.{field}", kind.fields[field], kind.rows.get(field)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} must be a NumPy array, not {type(array).__name__}")
    if array.dtype != kind.dtypes[field] or array.ndim != wanted.ndim:
        raise TypeError(f"{what} must be {wanted}, not {array.dtype} with {array.ndim} dimensions")
    if row is not None and array.shape[-1] != row:
        raise TypeError(f"{what} must have rows of {row}, not of {array.shape[-1]}")
    if not array.flags.carray:
        raise TypeError(f"{what} must be C-contiguous, aligned and writable")


register_model(StructType)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = StructType

    def generic_resolve(self, typ: StructType, attr: str) -> Any:
        return typ.fields.get(attr)


@lower_getattr_generic(StructType)
def _read(context: Any, builder: Any, typ: StructType, value: Any, attr: str) -> Any:
    layout = ir.LiteralStructType([context.get_value_type(kind) for kind in typ.fields.values()])
    place = list(typ.fields).index(attr)
    record = builder.bitcast(value, layout.as_pointer())
    word = ir.IntType(32)
    field = builder.load(builder.gep(record, [word(0), word(place)], inbounds=True))
    field.set_metadata(
        "invariant.load", builder.module.add_metadata([])
    )  # lets LLVM read it once, ahead of loops
    if attr in typ.rows:
        field = _fix_row(context, builder, typ.fields[attr], field, typ.rows[attr])
    return impl_ret_borrowed(context, builder, typ.fields[attr], field)


def _fix_row(context: Any, builder: Any, array_type: Any, array: Any, row: int) -> Any:
    """Make a row's length a constant: a place in it is then a shift away, not a load and a product."""
    wrapped = context.make_array(array_type)(context, builder, array)
    last = array_type.ndim - 1
    length = ir.Constant(ir.IntType(64), row)
    wrapped.shape = builder.insert_value(wrapped.shape, length, last)
    return wrapped._getvalue()


@unbox(StructType)
def _unbox(_typ: StructType, struct: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(struct, "_address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(pointer, is_error=c.pyapi.c_api_error())


def pack(structs: Any) -> np.ndarray:
    """Addresses of structs, for `picker`."""
    return np.array([struct._address for struct in structs], dtype=np.int64)


def picker(kind: StructType) -> Any:
    """A function for kernels: struct k of an array of addresses."""

    @intrinsic
    def at(_typingctx: Any, addresses: Any, k: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            address = builder.load(builder.gep(array.data, [args[1]]))
            return builder.inttoptr(address, context.get_value_type(kind))

        return kind(addresses, types.int64), generate

    return at
