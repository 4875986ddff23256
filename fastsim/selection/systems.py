"""Compound systems: static graphs of modules, each of which is done by one model.

A system is a few lines of Python or of TOML::

    name = "two_steps"

    [[module]]
    name = "locate"
    role = "step"

    [[module]]
    name = "solve"
    role = "step"
    inputs = ["locate"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from fastsim.errors import InputError, nearest
from fastsim.selection import roles
from fastsim.typed import named

__all__ = ["SYSTEMS", "Module", "System", "add", "get", "parse", "read"]


@dataclass(frozen=True)
class Module:
    """A node of a system.

    Attributes
    ----------
    name : str
    role : str
        A name of `fastsim.selection.roles.ROLES`.
    inputs : tuple of str
        Modules before it, in the order that its role reads them; the question is given to all.
    skill : str
        Which ability of a model it takes; its name by default.
    """

    name: str
    role: str
    inputs: tuple[str, ...] = ()
    skill: str = ""


@dataclass(frozen=True)
class System:
    """A static graph of modules; the last one gives the final answer.

    Attributes
    ----------
    name : str
    modules : tuple of Module
        Each after its inputs.
    doc : str
        What it is, in a sentence.

    Raises
    ------
    InputError
        For an unknown role, an input that is no earlier module, a wrong number of inputs, a module whose
        answer nobody reads, or a system without models.
    """

    name: str
    modules: tuple[Module, ...]
    doc: str = ""

    def __post_init__(self) -> None:
        before: list[str] = []
        for module in self.modules:
            self._check(module, before)
            before.append(module.name)
        read = {name for module in self.modules for name in module.inputs}
        for name in before[:-1]:
            if name not in read:
                raise InputError(f"system {self.name}: nobody reads what module {name!r} answers")
        if not self.slots:
            raise InputError(f"system {self.name} has no module that a model does")

    def _check(self, module: Module, before: list[str]) -> None:
        where = f"system {self.name}: module {module.name!r}"
        if module.name in before:
            raise InputError(f"{where} is there twice")
        try:
            role = roles.get(module.role)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        for name in module.inputs:
            if name not in before:
                raise InputError(f"{where}: input {name!r} is no module before it; {nearest(name, before)}")
        fewest, most = role.inputs
        if not fewest <= len(module.inputs) <= most:
            allowed = (
                f"{fewest}"
                if fewest == most
                else f"{fewest} or more"
                if most == roles.MANY
                else f"{fewest} to {most}"
            )
            raise InputError(f"{where} has {len(module.inputs)} inputs; role {role.name} takes {allowed}")

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """Places in `modules` of those that a model does: what an allocation assigns models to."""
        return tuple(at for at, module in enumerate(self.modules) if roles.get(module.role).model)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """Names of the modules that a model does."""
        return tuple(self.modules[at].name for at in self.slots)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The modules as the machine reads them."""
        places = {module.name: at for at, module in enumerate(self.modules)}
        slot_of = {at: slot for slot, at in enumerate(self.slots)}
        return tuple(
            Node(roles.get(module.role), tuple(places[name] for name in module.inputs), slot_of.get(at, -1))
            for at, module in enumerate(self.modules)
        )

    @cached_property
    def skills(self) -> tuple[str, ...]:
        """Abilities that the system takes, in order of first use."""
        return tuple(dict.fromkeys(self._skill(at) for at in self.slots))

    @cached_property
    def skill_of(self) -> tuple[int, ...]:
        """For each slot, which of `skills` it takes."""
        return tuple(self.skills.index(self._skill(at)) for at in self.slots)

    def _skill(self, at: int) -> str:
        return self.modules[at].skill or self.modules[at].name

    def slot(self, name: str) -> int:
        """The slot of a module.

        Raises
        ------
        InputError
            If no model does a module of that name.
        """
        if name not in self.slot_names:
            raise InputError(
                f"system {self.name} has no module {name!r} with a model; {nearest(name, self.slot_names)}"
            )
        return self.slot_names.index(name)


@dataclass(frozen=True)
class Node:
    """A module resolved.

    Attributes
    ----------
    role : Role
    inputs : tuple of int
        Places among the nodes.
    slot : int
        Place in an allocation; -1 without a model.
    """

    role: roles.Role
    inputs: tuple[int, ...]
    slot: int


SYSTEMS: dict[str, System] = {}


def add(system: System) -> System:
    """Register a system under its name, in place of any that had it."""
    SYSTEMS[system.name] = system
    return system


def get(name: str) -> System:
    """The registered system of that name, or the one in the TOML file of that path.

    Raises
    ------
    InputError
        If there is neither.
    """
    if isinstance(name, str) and name.endswith(".toml") and name not in SYSTEMS:
        return read(Path(name))
    return named("system", name, SYSTEMS)


def read(path: Path) -> System:
    """Read a system from a TOML file.

    Raises
    ------
    InputError
        If the file is missing, is no TOML, or does not describe a system.
    """
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"system {path}: {error.strerror or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"system {path}: this is not TOML: {error}") from None
    return parse(document, path.stem)


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    role: str
    inputs: tuple[str, ...] = ()
    skill: str = ""


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    module: list[_Entry]
    name: str = ""
    doc: str = ""


def parse(document: dict[str, Any], name: str = "system") -> System:
    """Make a system of what its TOML says.

    Parameters
    ----------
    document : dict
        ``name`` and ``doc`` if wanted, and a ``[[module]]`` for each module.
    name : str
        For a document without one.

    Raises
    ------
    InputError
        For fields that are missing, unknown or of the wrong type, and as `System`.
    """
    try:
        found = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise InputError(f"system {name}: {error}") from None
    modules = tuple(Module(entry.name, entry.role, entry.inputs, entry.skill) for entry in found.module)
    return System(found.name or name, modules, found.doc)


def _debate(name: str, role: str, doc: str) -> System:
    """Three generators, three debaters that each read their own generator first, and a vote."""
    makers = ["generate_1", "generate_2", "generate_3"]
    turns: Iterable[list[str]] = (makers[i:] + makers[:i] for i in range(3))
    debaters = [
        Module(f"debate_{i}", role, (own, *sorted(others)), "debate")
        for i, (own, *others) in enumerate(turns, 1)
    ]
    last = Module("vote", "vote", tuple(module.name for module in debaters))
    return System(
        name, (*(Module(maker, "generate", skill="generate") for maker in makers), *debaters, last), doc
    )


add(
    System(
        "locate_solve",
        (Module("locate", "step"), Module("solve", "step", ("locate",))),
        "One call finds the task in a long table, another solves it.",
    )
)
add(
    System(
        "self_refine",
        (
            Module("generate", "generate"),
            Module("critique", "critique", ("generate",)),
            Module("refine", "refine", ("generate", "critique")),
        ),
        "A draft, a critique, and a second draft where the critique found a mistake.",
    )
)
add(_debate("debate", "debate", "Three answers, three debaters who else stay with their own, majority."))
add(
    _debate(
        "debate_swayed", "debate_swayed", "Debate whose debaters, where they fail, go for a wrong answer."
    )
)
