"""The one description of a parameter: its type, range and default where it is declared, nowhere else.

A parameter is an argument of a function, or a field of a dataclass or msgspec struct, annotated with its type
and range: ``replicas: Annotated[int, Meta(ge=1)] = 4``. From that come the check of every call (`checked`),
of every table of a TOML file and every ``--set`` (`check`), the words of an error, and the reference page
(`parameters_of`); what it means is said once, in the docstring.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Meta
from msgspec import inspect as kinds
from numpy.typing import NDArray

from fastsim.errors import InputError, nearest, shown

Spec = TypeVar("Spec", bound=msgspec.Struct)
Entry = TypeVar("Entry")
F = TypeVar("F", bound=Callable[..., Any])

MOST = 2**63 - 1  # of a whole number, as arrays and files hold them
_DEEPEST = 8  # lists in lists in tables
_MOST_LETTERS = 10_000  # of a text

Seed = Annotated[int, Meta(ge=0, le=MOST)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
NotNegative = Annotated[float, Meta(ge=0.0)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
Share = Annotated[float, Meta(gt=0.0, lt=1.0)]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter as declared.

    Attributes
    ----------
    name : str
    kind : msgspec.inspect.Type or None
        What msgspec makes of its annotation; None for what it does not know, such as arrays.
    hint : Any
        The annotation itself.
    default : Any
        `inspect.Parameter.empty` where one must be given.
    """

    name: str
    kind: kinds.Type | None
    hint: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    @property
    def is_list(self) -> bool:
        """Whether its value is a list, so that a list of values is a list of lists."""
        return self.kind is not None and _item(self.kind) is not _alone(self.kind)

    def allowed(self) -> str:
        """What it may be, in words."""
        return "as its meaning says" if self.kind is None else in_words(self.kind)


# --- checks -------------------------------------------------------------------------------------------------


def check(spec: type[Spec], given: Mapping[str, Any], owner: str) -> Spec:
    """Return `given` as an instance of `spec`, defaults filled in.

    Parameters
    ----------
    spec : msgspec.Struct type
        Its annotations hold the types and ranges (``msgspec.Meta``).
    given : mapping
        Parameters by name; NumPy scalars count as Python numbers.
    owner : str
        What they belong to, for the message, e.g. ``"workload long_documents"``.

    Raises
    ------
    InputError
        For a name that does not exist, with the nearest one; for a value of the wrong type or out
        of range, with the range.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{owner} is {shown(given)}; it must be a table of parameters")
    names = spec.__struct_fields__
    for name in given:
        if name not in names:
            raise InputError(f"{owner}: it has no parameter {shown(name)}; {nearest(_word(name), names)}")
    plain = {name: _plain(value, f"{owner}: {name}") for name, value in given.items()}
    try:
        return msgspec.convert(plain, spec)
    except msgspec.ValidationError as error:
        raise _refusal(error, kinds.type_info(spec), plain, f"{owner}: ") from None


def checked(target: F) -> F:
    """Check the arguments of every call of a function, or of every instance of a dataclass, by annotations.

    An argument whose type msgspec does not know (an array, a law of sizes) is passed on as it is, for the
    function to check.

    Raises
    ------
    InputError
        From the call, for an argument that is unknown, missing, of a wrong type or out of range.
    """
    is_class = inspect.isclass(target)
    owner = f"{target.__name__.lower()}: " if is_class else ""
    inner: Any = target.__init__ if is_class else target
    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = _bound(signature, target.__name__, args, kwargs)
        known = _by_name(target)
        for name, value in bound.arguments.items():
            if name in known:
                bound.arguments[name] = _fitted(known[name], value, owner)
        return inner(*bound.args, **bound.kwargs)

    if is_class:
        cast(Any, target).__init__ = call
        return cast(F, target)
    return cast(F, call)


def _bound(signature: inspect.Signature, name: str, args: Any, kwargs: Any) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [each for each in signature.parameters if each != "self"]
        for given in kwargs:
            if given not in known:
                raise InputError(f"{name}: it has no parameter {given!r}; {nearest(given, known)}") from None
        raise InputError(f"{name}: {error}") from None


def _fitted(parameter: Parameter, value: Any, owner: str) -> Any:
    """The value as its annotation has it."""
    kind = parameter.kind
    if kind is None or value is parameter.default or isinstance(_item(kind), kinds.AnyType):
        return value
    if isinstance(kind, kinds.CustomType):
        if not isinstance(value, kind.cls):
            raise InputError(
                f"{owner}{parameter.name} = {shown(value)} is not allowed; it must be {in_words(kind)}"
            )
        return value
    plain = _plain(value, owner + parameter.name, infinite=_may_be_infinite(kind))
    try:
        return msgspec.convert(plain, parameter.hint)
    except msgspec.ValidationError as error:
        raise _refusal(error, kind, plain, owner, parameter.name) from None


def _plain(value: Any, where: str, depth: int = 0, *, infinite: bool = False) -> Any:
    """The same of plain Python types: numbers that are finite and fit 64 bits, short texts, lists, tables.

    Whatever is none of these stays as it is.
    """
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()  # a scalar becomes a number
    if depth > _DEEPEST:
        raise InputError(f"{where} is nested too deeply; at most {_DEEPEST} lists or tables in one another")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float) and not math.isfinite(value) and not (infinite and value == math.inf):
        raise InputError(f"{where} = {value!r} is not allowed; it must be a finite number")
    if isinstance(value, int) and not -MOST <= value <= MOST:
        raise InputError(f"{where} = {shown(value)} is not allowed; it must be a whole number of 64 bits")
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)  # made without a check, perhaps
    if isinstance(value, Mapping):
        return {
            (_text(k, where) if isinstance(k, str) else k): _plain(v, f"{where}.{k}", depth + 1)
            for k, v in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(each, where, depth + 1) for each in value]
    return value


def _text(value: str, where: str) -> str:
    if len(value) > _MOST_LETTERS:
        raise InputError(f"{where} has {len(value):,} letters; it must have at most {_MOST_LETTERS:,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where} = {shown(value)} is not allowed; it is no text of Unicode") from None
    return value


def check_call(target: Any, given: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Some arguments of a function, checked by its annotations without a call of it."""
    known = _by_name(target)
    for name in given:
        if name not in known:
            raise InputError(f"{owner}: it has no parameter {shown(name)}; {nearest(_word(name), known)}")
    return {name: _fitted(known[name], value, f"{owner}: ") for name, value in given.items()}


def named(what: str, name: Any, known: Mapping[str, Entry]) -> Entry:
    """The entry of that name; InputError with the nearest names if there is none."""
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{what} {shown(name)} is not known; {nearest(_word(name), known)}")
    return known[name]


def _word(value: Any) -> str:
    """A text as it is, anything else as an error shows it."""
    return value if isinstance(value, str) else shown(value)


def reals(name: str, values: Any, *, finite: bool = True) -> NDArray[np.float64]:
    """An array of float64; InputError unless it holds numbers, and finite ones if they must be."""
    found = _array(name, values, "iuf", "numbers").astype(np.float64)
    if finite and not np.isfinite(found).all():
        raise InputError(f"{name} = {shown(values)} is not allowed; it must hold finite numbers")
    return found


def wholes(name: str, values: Any, *, wrap: bool = False) -> NDArray[np.int64]:
    """An array of int64 in one row; InputError unless it holds whole numbers of 64 bits.

    Names such as hashes may be unsigned; they become others, each its own (`wrap`).
    """
    found = _array(name, values, "iuf", "whole numbers")
    whole = found.dtype.kind != "f" or not found.size
    too_large = not wrap and found.dtype == np.uint64 and (found > MOST).any()
    if found.ndim != 1 or not whole or too_large:
        raise InputError(f"{name} must be a sequence of whole numbers, not {shown(values)}")
    return found.astype(np.int64)


def _array(name: str, values: Any, allowed: str, what: str) -> NDArray[Any]:
    try:
        found = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RecursionError):  # rows of different lengths, say
        found = np.empty(0, object)
    if found.dtype.kind not in allowed:
        raise InputError(f"{name} must be a sequence of {what}, not {shown(values)}")
    return found


# --- words --------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]")


def _refusal(
    error: msgspec.ValidationError, kind: kinds.Type, value: Any, owner: str, name: str = ""
) -> InputError:
    """Turn msgspec's "Expected `float` > 0.0 - at `$.rate_rps`" into a sentence with the value."""
    said, _, place = str(error).partition(" - at `")
    path = name
    for field, index in _PLACE.findall(place.rstrip("`")):
        inside = _inside(kind, value, field or index)
        if inside is None:
            break
        kind, value = inside
        path += (f".{field}" if path else field) if field else f"[{index}]"
    if said.startswith("Object missing required field"):
        return InputError(
            f"{owner}{path}{':' * bool(path)} {said.split('`')[1]} is missing".replace("  ", " ")
        )
    if said.startswith("Object contains unknown field"):
        field = said.split("`")[1]
        known = [each.encode_name for each in getattr(_struct_in(kind), "fields", ())]
        return InputError(f"{owner}{path} has no {field!r}; {nearest(field, known)}")
    refused = f"{owner}{path} = {shown(value)} is not allowed; "
    words = _choices(kind)
    if words:
        return InputError(refused + nearest(_word(value), words))
    return InputError(f"{refused}it must be {in_words(kind)}")


def _inside(kind: Any, value: Any, step: str) -> tuple[Any, Any] | None:
    """The part of a value that an error speaks of, and its kind."""
    for each in kind.types if isinstance(kind, kinds.UnionType) else (kind,):
        if isinstance(each, kinds.Metadata):
            each = each.type
        if isinstance(each, kinds.StructType | kinds.DataclassType) and isinstance(value, dict):
            for field in each.fields:
                if field.encode_name == step and step in value:
                    return field.type, value[step]
        if isinstance(each, kinds.DictType) and isinstance(value, dict) and step in value:
            return each.value_type, value[step]
        item = getattr(each, "item_type", None)
        if item is not None and isinstance(value, list) and step.isdigit() and int(step) < len(value):
            return item, value[int(step)]
    return None


def _struct_in(kind: Any) -> Any:
    members = kind.types if isinstance(kind, kinds.UnionType) else (kind,)
    return next((each for each in members if isinstance(each, kinds.StructType)), None)


def _choices(kind: Any) -> list[str]:
    """The words a parameter may be, if it is a choice among words."""
    kind = kind.type if isinstance(kind, kinds.Metadata) else kind
    kind = _alone(kind)
    return [str(value) for value in kind.values] if isinstance(kind, kinds.LiteralType) else []


def _may_be_infinite(kind: Any) -> bool:
    extra = kind.extra if isinstance(kind, kinds.Metadata) else None
    return bool(extra and extra.get("infinite"))


_PLAIN_WORDS: dict[type, str] = {
    kinds.BoolType: "true or false",
    kinds.NoneType: "nothing",
    kinds.AnyType: "anything",
    kinds.DictType: "a table",
}


def in_words(kind: Any) -> str:
    """What a kind of value is, in words: ``a whole number from 1 to 64``."""
    if isinstance(kind, kinds.Metadata):
        return in_words(kind.type)
    if isinstance(kind, kinds.IntType):
        return "a whole number" + _range(kind)
    if isinstance(kind, kinds.FloatType):
        return "a number" + _range(kind)
    if isinstance(kind, kinds.StrType):
        return "a text" if not kind.min_length else "a text that is not empty"
    if isinstance(kind, kinds.LiteralType):
        return " or ".join(repr(value) for value in kind.values)
    if isinstance(kind, kinds.UnionType):
        return " or ".join(in_words(each) for each in kind.types if not isinstance(each, kinds.NoneType))
    if isinstance(kind, kinds.StructType | kinds.DataclassType):
        return "a table of " + ", ".join(field.encode_name for field in kind.fields)
    if hasattr(kind, "item_type"):
        return f"a list, each {in_words(kind.item_type)}"
    if isinstance(kind, kinds.CustomType):
        return f"a {kind.cls.__name__}"
    return _PLAIN_WORDS.get(type(kind), "something else")


def _range(kind: kinds.IntType | kinds.FloatType) -> str:
    low, high = kind.ge, kind.le
    if isinstance(kind, kinds.IntType):
        high = None if high == MOST else high
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    limits = [
        f"{words} {_number(limit)}"
        for limit, words in ((kind.ge, "at least"), (kind.gt, "above"), (kind.lt, "below"), (high, "at most"))
        if limit is not None
    ]
    return ", " + " and ".join(limits) if limits else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


# --- what is declared ---------------------------------------------------------------------------------------


def parameters_of(target: Any) -> list[Parameter]:
    """The parameters of a function, dataclass or msgspec struct, in order."""
    return list(_by_name(target).values())


@functools.cache
def _by_name(target: Any) -> dict[str, Parameter]:
    target = inspect.unwrap(target)
    hints = typing.get_type_hints(target, include_extras=True)
    found = {}
    for name, given in inspect.signature(target).parameters.items():
        if given.kind in (given.VAR_KEYWORD, given.VAR_POSITIONAL) or name not in hints:
            continue
        found[name] = Parameter(name, _kind(hints[name]), hints[name], given.default)
    return found


def _kind(hint: Any) -> kinds.Type | None:
    """What msgspec makes of an annotation; None where it cannot tell what fits."""
    if dataclasses.is_dataclass(hint):
        return kinds.CustomType(cast(type, hint))  # to be made by its constructor, not here of a table
    try:
        return kinds.type_info(hint)
    except TypeError:
        return None


def _alone(kind: Any) -> Any:
    """The kind without the choice to leave it out."""
    if isinstance(kind, kinds.UnionType):
        rest = [each for each in kind.types if not isinstance(each, kinds.NoneType)]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _item(kind: Any) -> Any:
    """What a list holds, or the kind itself."""
    kind = _alone(kind)
    return getattr(kind, "item_type", kind)
