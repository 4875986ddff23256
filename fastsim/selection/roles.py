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


@dataclass(frozen=True)
class Answer:
    """What a module says, over all questions.

    Attributes
    ----------
    right : bits
        Where it is right.
    wrong : dict of int to bits
        Where it repeats the wrong answer that the model of this slot gave; disjoint.
    """

    right: Bits
    wrong: dict[int, Bits]


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
    return Answer(success, {slot: ~success})


@role("step", inputs=(0, MANY), names=True, blame=_own_failure)
def step(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Does a part of the work: right where it succeeds and all its inputs are right."""
    right = _all([success, *(given.right for given in inputs)])
    return Answer(right, {slot: ~right})


def _missed_a_mistake(success: Bits, answer: Answer, inputs: Sequence[Answer]) -> Bits:
    return ~inputs[0].right & ~success


@role("critique", inputs=(1, 1), names=True, blame=_missed_a_mistake)
def critique(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Judges a draft: finds a mistake where it succeeds, and never finds fault with what is right."""
    return Answer(success, {slot: ~success})


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
    return Answer(draft.right | mended, {origin: bits & ~mended for origin, bits in draft.wrong.items()})


@role("debate", inputs=(2, MANY))
def debate(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Picks the right answer among its inputs where it succeeds, else stays with the first."""
    own = inputs[0]
    found = _any([given.right for given in inputs]) & success
    return Answer(own.right | found, {origin: bits & ~found for origin, bits in own.wrong.items()})


@role("debate_swayed", inputs=(2, MANY), compares=True)
def debate_swayed(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Picks the right answer where it succeeds or all agree on it, else is swayed to a wrong one.

    That is the first input's if it is wrong, otherwise the one whose model has the lowest index.
    """
    own, *others = inputs
    rights = [given.right for given in inputs]
    right = (_any(rights) & success) | _all(rights)
    wrong = {origin: bits & ~right for origin, bits in own.wrong.items()}
    swayed = own.right & ~right
    offered = [(origin, bits) for given in others for origin, bits in given.wrong.items()]
    for origin, bits in offered:
        earlier = [
            rival_bits & ~models.first(origin, rival) for rival, rival_bits in offered if rival != origin
        ]
        chosen = swayed & bits
        if earlier:
            chosen = chosen & ~_any(earlier)
        wrong[origin] = wrong[origin] | chosen if origin in wrong else chosen
    return Answer(right, wrong)


@role("vote", inputs=(3, 3), model=False, compares=True)
def vote(success: Bits, inputs: Sequence[Answer], slot: int, models: Models) -> Answer:
    """Takes the answer that two of three give, or the first one's where all differ."""
    x, y, z = inputs
    together = _any(
        [a & b & models.same(i, j) for i, a in y.wrong.items() for j, b in z.wrong.items()]
    )  # the other two give the same wrong answer
    majority = (x.right & y.right) | (x.right & z.right) | (y.right & z.right)
    right = majority | (x.right & ~y.right & ~z.right & ~together)
    wrong = {origin: bits & ~right & ~together for origin, bits in x.wrong.items()}
    for origin, bits in y.wrong.items():
        theirs = bits & together
        wrong[origin] = wrong[origin] | theirs if origin in wrong else theirs
    return Answer(right, wrong)
