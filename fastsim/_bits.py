"""Bits of numbers by the processor's own instructions, which numba has no words for.

Under ``NUMBA_DISABLE_JIT=1`` they are plain Python, where a float is its own key.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastsim._jit import JIT, kernel

_NUMBERS = (types.int64, types.float64)


def _zeros_type(typing: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


def _ones_type(typing: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), generate


def _flipped(builder: Any, bits: Any) -> Any:
    """Reverse the order of negative floats' bits, which runs the wrong way; twice is not at all."""
    negative = builder.ashr(bits, ir.Constant(bits.type, 63))
    return builder.xor(bits, builder.lshr(negative, ir.Constant(bits.type, 1)))


def _key_type(typing: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.args[0] == types.int64:
            return args[0]
        return _flipped(builder, builder.bitcast(args[0], ir.IntType(64)))

    return (types.int64(x), generate) if x in _NUMBERS else None


def _value_type(typing: Any, key: Any, like: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.return_type == types.int64:
            return args[0]
        return builder.bitcast(_flipped(builder, args[0]), ir.DoubleType())

    return (like(types.int64, like), generate) if like in _NUMBERS else None


def _prefetch_type(typing: Any, array: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [args[1]]), byte)
        builder.call(prefetch, [address, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.none(array, types.int64), generate


def _instruction(compiled: Any, plain: Any) -> Any:
    """An instruction, or plain Python; the former knows the latter, as a kernel does its function."""
    if not JIT:
        return plain
    made: Any = intrinsic(compiled)
    made.py_func = plain
    return made


_prefetch = _instruction(_prefetch_type, lambda array, place: None)
_zeros = _instruction(_zeros_type, lambda x: (int(x) & -int(x)).bit_length() - 1)
_ones = _instruction(_ones_type, lambda x: int(x).bit_count())
_key = _instruction(_key_type, lambda x: x)
_value = _instruction(_value_type, lambda key, like: key)


@kernel(inline="always")
def prefetch(array, place):
    """Ask for the memory of an array's number ahead of its use; `place` counts all of them, row by row."""
    _prefetch(array, place)


@kernel(inline="always")
def lowest_bit(x):
    """Place of the lowest 1 in a positive integer."""
    return _zeros(x)


@kernel(inline="always")
def bit_count(x):
    """Ones in an integer that is not negative."""
    return _ones(x)


@kernel(inline="always")
def key_of(x):
    """An int64 that has the order of a float64, which must not be NaN; an int64 is its own.

    LLVM takes the least of integers several at a time, of floats one by one (for the sake of NaN).
    """
    return _key(x)


@kernel(inline="always")
def value_of(key, like):
    """The number a key belongs to, of the type of `like`."""
    return _value(key, like)
