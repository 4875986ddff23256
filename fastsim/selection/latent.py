"""Synthetic worlds: latent difficulties behind every success, pools of random models, broken assumptions.

Model m does the part of slot j on question q if z < Phi^-1(a[m, skill(j)]) with
``z = sqrt(shared) D[q] + sqrt(per_model) M[m, q] + sqrt(1 - shared - per_model) E[m, q, j]``, all standard
normal: a question's difficulty for all models, its difficulty for one model in all its modules, and noise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.selection.systems import System, get
from fastsim.selection.worlds import Allocation, Coupling, World

__all__ = ["DEMO_1_ABILITIES", "DIV", "P1", "Latent", "Pool", "Scene", "demo_1", "names"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Latent:
    """The law of z, and what is broken.

    Attributes
    ----------
    shared, per_model : float
        Shares of the variance; 0 or more, at most 1 together.
    one_generation : bool
        All slots of the first slot's skill share its noise: a model that generates thrice answers the same.
    blind_to_own : float or None
        A critic finds the mistakes of its own model with its ability times this.
    """

    shared: float
    per_model: float
    one_generation: bool = False
    blind_to_own: float | None = None

    def __post_init__(self) -> None:
        if min(self.shared, self.per_model) < 0.0 or self.shared + self.per_model > 1.0 + 1e-12:
            raise InputError(
                f"shared {self.shared} and per_model {self.per_model} are shares of one variance: 0 or more, "
                "at most 1 together"
            )
        if self.blind_to_own is not None and not 0.0 <= self.blind_to_own <= 1.0:
            raise InputError(f"blind_to_own is {self.blind_to_own}; it must lie in [0, 1]")

    def draw(self, rng: np.random.Generator, system: System, ability: ArrayLike, questions: int) -> World:
        """Draw a world; D, then M, then E, whatever their weights.

        Parameters
        ----------
        rng : numpy.random.Generator
        system : System
        ability : array_like, shape (K, S)
            Chance of success of each model at each of the system's skills; in [0, 1].
        questions : int

        Raises
        ------
        InputError
            For abilities of a wrong shape or out of range.
        """
        a = np.asarray(ability, dtype=np.float64)
        if a.ndim != 2 or a.shape[1] != len(system.skills):
            raise InputError(
                f"ability has shape {a.shape}; for the skills of system {system.name} "
                f"({', '.join(system.skills)}) it must be (models, {len(system.skills)})"
            )
        if not ((a >= 0.0) & (a <= 1.0)).all():
            raise InputError(f"ability holds {a[~((a >= 0.0) & (a <= 1.0))][0]}; it must lie in [0, 1]")
        z = self._latents(rng, system, len(a), questions)
        per_slot = a[:, system.skill_of].T  # [L, K]
        success = z < _threshold(per_slot)[:, :, None]
        couplings: tuple[Coupling, ...] = ()
        if self.blind_to_own is not None:
            couplings = tuple(
                Coupling(slot, partner, z[slot] < _threshold(self.blind_to_own * per_slot[slot])[:, None])
                for slot, partner in _critics(system)
            )
        return World(system, names(len(a)), success, couplings)

    def _latents(self, rng: np.random.Generator, system: System, models: int, questions: int) -> Floats:
        slots = len(system.slots)
        common = rng.standard_normal(questions)
        of_model = rng.standard_normal((models, questions))
        noise = rng.standard_normal((models, questions, slots))
        if self.one_generation:
            for slot, skill in enumerate(system.skill_of):
                if skill == system.skill_of[0]:
                    noise[:, :, slot] = noise[:, :, 0]
        rest = max(1.0 - self.shared - self.per_model, 0.0)
        z = np.sqrt(self.shared) * common[None, :, None] + np.sqrt(self.per_model) * of_model[:, :, None]
        return np.ascontiguousarray((z + np.sqrt(rest) * noise).transpose(2, 0, 1))


def _threshold(ability: Floats) -> Floats:
    from scipy.special import ndtri

    return ndtri(ability)


def _critics(system: System) -> list[tuple[int, int]]:
    """Slots of critics, each with the slot of what it reads."""
    pairs = [
        (node.slot, system.nodes[node.inputs[0]].slot)
        for node in system.nodes
        if node.role.name == "critique"
    ]
    if not pairs:
        raise InputError(f"system {system.name} has no critic that could be blind to its own mistakes")
    return pairs


def names(models: int) -> tuple[str, ...]:
    """A, B, ... Z, then M26 and on."""
    return tuple(chr(ord("A") + k) if k < 26 else f"M{k}" for k in range(models))


@dataclass(frozen=True)
class Scene:
    """A pool on a system, ready for a search.

    Attributes
    ----------
    train, test : World
        The same models on different questions.
    start : Allocation
        Drawn uniformly.
    rng : numpy.random.Generator
        Where the draws have got to: the searchers' noise comes next.
    """

    train: World
    test: World
    start: Allocation
    rng: np.random.Generator


@dataclass(frozen=True)
class Pool:
    """The law of random pools of models: general ability and a talent for each skill.

    Attributes
    ----------
    latent : Latent
    mean, general_sd, talent_sd : float
        Ability is clip(g + t, low, high): g ~ N(mean, general_sd) of a model, t ~ N(0, talent_sd) of a skill.
    low, high : float
    models, train, test : int
        How many models and questions.
    """

    latent: Latent
    mean: float = 0.6
    general_sd: float = 0.05
    talent_sd: float = 0.2
    low: float = 0.05
    high: float = 0.97
    models: int = 5
    train: int = 200
    test: int = 1000

    def abilities(self, rng: np.random.Generator, skills: int) -> Floats:
        """Draw float64[K, S]: general abilities first, then talents."""
        general = rng.normal(self.mean, self.general_sd, (self.models, 1))
        talent = rng.normal(0.0, self.talent_sd, (self.models, skills))
        return np.clip(general + talent, self.low, self.high)

    def draw(self, seed: int, system: System) -> Scene:
        """Draw abilities, training questions, test questions and the start, in this order."""
        rng = np.random.default_rng(seed)
        ability = self.abilities(rng, len(system.skills))
        train = self.latent.draw(rng, system, ability, self.train)
        test = self.latent.draw(rng, system, ability, self.test)
        start = tuple(int(k) for k in rng.integers(0, self.models, len(system.slots)))
        return Scene(train, test, start, rng)

    def with_latent(self, **changes: object) -> Pool:
        """The same pool with another law of z."""
        return dataclasses.replace(self, latent=dataclasses.replace(self.latent, **changes))


# Worlds under which an independent reference run came near the lecture's figures.
P1 = Pool(Latent(shared=0.5, per_model=0.4))
DIV = Pool(Latent(shared=0.2, per_model=0.4, one_generation=True), general_sd=0.1)

# Models A to E at locating and solving. Picked, with the seed 384, from many to give the lecture's digits.
DEMO_1_ABILITIES = ((0.993, 0.25), (0.25, 0.993), (0.5, 0.5), (0.17, 0.16), (0.45, 0.21))


def demo_1(seed: int = 384) -> tuple[World, World]:
    """The lecture's first demonstration: 100 training and 200 test questions of locate-solve.

    Every question has one difficulty for each model, which both its modules share.
    """
    rng = np.random.default_rng(seed)
    latent, system = Latent(shared=0.25, per_model=0.75), get("locate_solve")
    train = latent.draw(rng, system, DEMO_1_ABILITIES, 100)
    return train, latent.draw(rng, system, DEMO_1_ABILITIES, 200)
