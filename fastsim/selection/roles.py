"""What a module does with its inputs, in bits: the same code for one allocation and for packed thousands.

A role never sees a question, only sets of questions: NumPy arrays of bool, or of uint64 with 64 questions a
word, in any shape that broadcasts. It may use ``&``, ``|`` and ``~`` on them and nothing else.

An answer is right or one of the wrong ones. A wrong answer is known by its origin, the slot whose model gave
it first: two of them are the same if their origins hold the same model.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastsim.errors import InputError, nearest

__all__ = ["ROLES", "Answer", "Models", "Role", "get", "role"]

Bits = Any  # bool or uint64 array of any shape


@dataclass(frozen=True, eq=False)
class Answer:
    """What a module says, over all questions.

    Attributes
    ----------
    right : bits
        Where it is right.
    tell : callable
        Gives `wrong`; called only if somebody tells wrong answers apart.
    """

    right: Bits
    tell: Callable[[], dict[int, Bits]]

    @functools.cached_property
    def wrong(self) -> dict[int, Bits]:
        """By slot: where it repeats the wrong answer that the model of that slot gave; disjoint."""
        return self.tell()


class Models(Protocol):
    """Which slots hold the same model, and whose index is lower; all bits 0 or all bits 1."""

    def same(self, a: int, b: int) -> Bits:
        """Ones where slots a and b hold the same model."""
        ...

    def first(self, a: int, b: int) -> Bits:
        """Ones where the model of slot a has the lower index; where they are the same, if a < b."""
        ...


@dataclass(frozen=True)
class Role:
    """A registered role.

    Attributes
    ----------
    name, doc : str
    answer : callable
        ``answer(success, inputs, slot, models) -> Answer``; `success` is where the model can do its part.
    blame : callable
        ``blame(success, answer, inputs)``: where the module is to be blamed for a wrong final answer.
    runs : callable or None
        ``runs(inputs)``: where the module is called at all; None if everywhere.
    inputs : (int, int)
        Fewest and most inputs.
    model : bool
        Whether a model does it; a vote needs none.
    compares : bool
        Whether it tells wrong answers apart.
    names : bool
        Whether its own wrong answers are new ones.
    """

    name: str
    doc: str
    answer: Callable[[Bits, Sequence[Answer], int, Models], Answer]
    blame: Callable[[Bits, Answer, Sequence[Answer]], Bits]
    runs: Callable[[Sequence[Answer]], Bits] | None
    inputs: tuple[int, int]
    model: bool
    compares: bool
    names: bool


ROLES: dict[str, Role] = {}
MANY = 99


def _own_output_wrong(success: Bits, answer: Answer, inputs: Sequence[Answer]) -> Bits:
    return ~answer.right


def _own_failure(success: Bits, answer: Answer, inputs: Sequence[Answer]) -> Bits:
    return ~success


def role(
    name: str,
    *,
    inputs: tuple[int, int],
    blame: Callable[..., Bits] = _own_output_wrong,
    runs: Callable[[Sequence[Answer]], Bits] | None = None,
    model: bool = True,
    compares: bool = False,
    names: bool = False,
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a role; the arguments are the attributes of `Role`, the function its answer."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        doc = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        ROLES[name] = Role(name, doc, function, blame, runs, inputs, model, compares, names)
        return function

    return register


def get(name: str) -> Role:
    """Return the role of that name.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in ROLES:
        raise InputError(f"role {name!r} is not known; {nearest(name, ROLES)}")
    return ROLES[name]


def _all(sets: Sequence[Bits]) -> Bits:
    return functools.reduce(lambda a, b: a & b, sets)


def _any(sets: Sequence[Bits]) -> Bits:
    return functools.reduce(lambda a, b: a | b, sets)


@role("generate", inputs=(0, 0), names=True)
def generate(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Answers the question: right where it succeeds, else its model's own wrong answer."""
    return Answer(success, lambda: {slot: ~success})


@role("step", inputs=(0, MANY), names=True, blame=_own_failure)
def step(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Does a part of the work: right where it succeeds and all its inputs are right."""
    right = _all([success, *(given.right for given in inputs)])
    return Answer(right, lambda: {slot: ~right})


def _missed_a_mistake(success: Bits, answer: Answer, inputs: Sequence[Answer]) -> Bits:
    return ~inputs[0].right & ~success


@role("critique", inputs=(1, 1), names=True, blame=_missed_a_mistake)
def critique(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Judges a draft: finds a mistake where it succeeds, and never finds fault with what is right."""
    return Answer(success, lambda: {slot: ~success})


def _criticised(inputs: Sequence[Answer]) -> Bits:
    draft, criticism = inputs
    return ~draft.right & criticism.right


def _left_a_known_mistake(success: Bits, answer: Answer, inputs: Sequence[Answer]) -> Bits:
    return _criticised(inputs) & ~success


@role("refine", inputs=(2, 2), runs=_criticised, blame=_left_a_known_mistake)
def refine(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Mends a draft after a critique; called only where the critique found a mistake."""
    draft, _ = inputs
    mended = _criticised(inputs) & success
    return Answer(draft.right | mended, lambda: _where(~mended, draft))


@role("debate", inputs=(2, MANY))
def debate(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Picks the right answer among its inputs where it succeeds, else stays with the first."""
    own = inputs[0]
    found = _any([given.right for given in inputs]) & success
    return Answer(own.right | found, lambda: _where(~found, own))


@role("debate_swayed", inputs=(2, MANY), compares=True)
def debate_swayed(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Picks the right answer where it succeeds or all agree on it, else is swayed to a wrong one.

    That is the first input's if it is wrong, otherwise the one whose model has the lowest index.
    """
    own, *others = inputs
    rights = [given.right for given in inputs]
    right = (_any(rights) & success) | _all(rights)

    def wrong() -> dict[int, Bits]:
        offered = [(origin, bits) for given in others for origin, bits in given.wrong.items()]
        swayed = {origin: own.right & ~right & _lowest(origin, offered, models) for origin, _ in offered}
        return _union(_where(~right, own), swayed)

    return Answer(right, wrong)


def _lowest(origin: int, offered: Sequence[tuple[int, Bits]], models: Models) -> Bits:
    """Where an origin's wrong answer is offered, and none of a model with a lower index."""
    mine = _any([bits for other, bits in offered if other == origin])
    lower = [bits & ~models.first(origin, other) for other, bits in offered if other != origin]
    return mine & ~_any(lower) if lower else mine


@role("vote", inputs=(3, 3), model=False, compares=True)
def vote(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Takes the answer that two of three give, or the first one's where all differ."""
    x, y, z = inputs
    # the other two give the same wrong answer
    together = _any([a & b & models.same(i, j) for i, a in y.wrong.items() for j, b in z.wrong.items()])
    right = (x.right & (y.right | z.right | ~together)) | (y.right & z.right)
    return Answer(right, lambda: _union(_where(~right & ~together, x), _where(together, y)))


def _where(here: Bits, given: Answer) -> dict[int, Bits]:
    """The wrong answers of another module, at some questions."""
    return {origin: bits & here for origin, bits in given.wrong.items()}


def _union(a: dict[int, Bits], b: dict[int, Bits]) -> dict[int, Bits]:
    return a | {origin: bits | a[origin] if origin in a else bits for origin, bits in b.items()}
