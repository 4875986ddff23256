"""Which model each question calls when, with how many tokens and at what price: the traffic of a fleet.

A cascade, a model router and a compound system all become the same thing: stages, each of which waits for
earlier ones, and for every question the model called at each stage or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.selection.cascades import Cascade
from fastsim.selection.costs import Costs
from fastsim.selection.routed import NO_CALL, Routed, evaluate
from fastsim.selection.tables import Floats, Ints, Outcomes
from fastsim.selection.worlds import Allocation, World
from fastsim.typed import checked

__all__ = ["Plan", "of_calls", "of_cascade", "of_system"]

NOT_PREDICTED = (
    "a prompt is prefilled anew by every model; calls of one model share the question's tokens, not answers"
)
MODULE_PROMPTS = (
    "a module reads the question and the answers of its inputs, and answers at the length of its model's "
    "answer to the question"
)


@dataclass(frozen=True, eq=False)
class Plan:
    """Calls of n questions over S stages of K models.

    Attributes
    ----------
    models : tuple of str
        K names.
    calls : int64[n, S]
        Model called at each stage, `NO_CALL` where none is.
    inputs : tuple of tuple of int
        For each stage the earlier ones whose answers it waits for; none: it starts with the question.
    prompt_tok, output_tok : int64[n, S]
        Tokens of each call, at least 1.
    shared_tok : int64[n, S]
        Leading tokens of each prompt that are the question's own: the same in all calls of one model.
    context_tok : int
        Of these, the first so many (or all, if fewer) are the same for all questions of one context.
    question, context : int64[n]
        Rows with the same number ask the same question, or in the same context.
    price : float64[n, S]
        Of each call.
    score : float64[n, S]
        Of the answer, if the stage's is the last call.
    after_s : float64[S]
        Seconds from a stage's answer until it is known what follows (a scorer's time).
    keeps : bool
        Where a call is refused, the question keeps the answer that it has. Otherwise it stays unanswered.
    margin : float64[n, S]
        How far the trust in the stage's input lies below its threshold; 0 where nothing was compared.
    assumptions : tuple of str
        To be shown with every result.

    Raises
    ------
    InputError
        For shapes that do not fit, models that do not exist, or questions that call none.
    """

    models: tuple[str, ...]
    calls: Ints
    inputs: tuple[tuple[int, ...], ...]
    prompt_tok: Ints
    output_tok: Ints
    shared_tok: Ints
    question: Ints
    context: Ints
    price: Floats
    score: Floats
    after_s: Floats
    context_tok: int = 0
    keeps: bool = True
    margin: Floats = field(default_factory=lambda: np.empty(0))
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.margin.size:
            object.__setattr__(self, "margin", np.zeros(self.calls.shape))
        if self.calls.ndim != 2 or not self.calls.size:
            raise InputError(f"plan: calls has the shape {self.calls.shape}; it must be (questions, stages)")
        for name in ("prompt_tok", "output_tok", "shared_tok", "price", "score", "margin"):
            shape = getattr(self, name).shape
            if shape != self.calls.shape:
                raise InputError(f"plan: {name} has the shape {shape}; it must be {self.calls.shape}")
        if len(self.inputs) != self.stages or len(self.after_s) != self.stages:
            raise InputError(f"plan: inputs and after_s must have an entry for each of {self.stages} stages")
        for stage, before in enumerate(self.inputs):
            if any(not 0 <= i < stage for i in before):
                raise InputError(f"plan: stage {stage} waits for {before}; it must wait for earlier stages")
        if self.calls.min() < NO_CALL or self.calls.max() >= len(self.models):
            raise InputError(f"plan: calls must hold models from 0 to {len(self.models) - 1}, or {NO_CALL}")
        if not (self.calls != NO_CALL).any(axis=1).all():
            raise InputError("plan: every question must call a model")
        for name, value in (("after_s", self.after_s), ("context_tok", np.array([self.context_tok]))):
            if not ((value >= 0) & np.isfinite(value)).all():
                raise InputError(f"plan: {name} = {value.tolist()} is not allowed; it must be 0 or more")

    @property
    def size(self) -> int:
        """Questions, n."""
        return len(self.calls)

    @property
    def stages(self) -> int:
        """Most calls of a question, S."""
        return self.calls.shape[1]

    @cached_property
    def last(self) -> tuple[int, ...]:
        """Stages that no other waits for: the answer is there when all of them are done."""
        return tuple(set(range(self.stages)) - {i for before in self.inputs for i in before})

    @property
    def loads(self) -> Floats:
        """float64[K]: calls of each model per question, if none is refused."""
        made = self.calls[self.calls != NO_CALL]
        return np.bincount(made, minlength=len(self.models)) / self.size

    def take(self, rows: ArrayLike) -> Plan:
        """The plan of a stream of questions: rows of this one, in order, repeats allowed."""
        index = np.asarray(rows, dtype=np.int64)
        names = ("calls", "prompt_tok", "output_tok", "shared_tok", "question", "context", "price", "score")
        return replace(self, **{name: getattr(self, name)[index] for name in (*names, "margin")})


@checked
def of_calls(
    table: Outcomes, calls: Routed | Ints, *, after_s: ArrayLike = 0.0, context_tok: int = 0
) -> Plan:
    """The plan of a model router, or of any calls one after the other.

    Parameters
    ----------
    table : Outcomes
        The questions; it must hold the tokens of prompts and answers.
    calls : Routed or int64[n, S]
        What was routed: models in the order in which each question calls them.
    after_s : float or float64[S]
        Seconds after each stage's answer until the next call; not after the last stage.
    context_tok : int
        Leading tokens of every prompt that all questions of a domain share (of all, where the table has no
        domains), such as examples or documents. They count among the prompt's tokens.

    Raises
    ------
    InputError
        If the table does not hold the tokens of prompts and answers, or does not fit the calls.
    """
    routed = evaluate(table, calls.calls if isinstance(calls, Routed) else calls)
    made = routed.calls != NO_CALL
    model = np.where(made, routed.calls, 0)
    stages = routed.calls.shape[1]
    waits = np.broadcast_to(np.asarray(after_s, np.float64), stages).copy()
    waits[-1] = 0.0
    prompt_tok = _of_models(_tokens(table, "input_tok"), model)
    return Plan(
        models=table.models,
        calls=routed.calls,
        inputs=tuple((stage - 1,) if stage else () for stage in range(stages)),
        prompt_tok=prompt_tok,
        output_tok=_of_models(_tokens(table, "output_tok"), model),
        shared_tok=prompt_tok,
        price=_of_models(table.costs, model) * made,
        score=_of_models(table.scores, model),
        after_s=waits,
        assumptions=(*table.assumptions, NOT_PREDICTED),
        **_asked(table, context_tok),
    )


@checked
def of_cascade(
    table: Outcomes, cascade: Cascade, trust: Floats, *, scorer_s: float = 0.0, context_tok: int = 0
) -> Plan:
    """The plan of a cascade; `trust` is float64[n, K], `scorer_s` the seconds it takes to score an answer.

    Other parameters and errors as in `of_calls`.
    """
    if trust.shape != table.scores.shape:
        raise InputError(f"trust has the shape {trust.shape}; the table's scores have {table.scores.shape}")
    plan = of_calls(table, cascade.route(table, trust), after_s=scorer_s, context_tok=context_tok)
    columns = [table.models.index(model) for model in cascade.models[:-1]]
    below = np.array(cascade.thresholds) - trust[:, columns]
    return replace(plan, margin=np.column_stack([np.zeros(table.size), below]))


@checked
def of_system(
    world: World,
    allocation: Allocation,
    table: Outcomes,
    *,
    costs: Costs | None = None,
    context_tok: int = 0,
) -> Plan:
    """The plan of a compound system under an allocation of models to modules.

    Parameters
    ----------
    world : World
        On the questions of the table, such as ``World.from_table(system, table)``.
    allocation : tuple of int
        A model for each module that a model does.
    table : Outcomes
        Tokens, and the prices where `costs` are not given: a call then costs what the model's answer to the
        question costs in the table.
    costs : Costs, optional
    context_tok : int
        As in `of_calls`.

    Notes
    -----
    A module reads the question and the answers of its inputs, and answers at the length of its model's answer
    to the question. One that is not called hands on its first input's answer.
    """
    allocation = world.allocation(allocation)
    if world.questions != table.size or world.models != table.models:
        raise InputError(f"{table.name}: the world must be on the table's {table.size} questions and models")
    if costs is not None and costs.world is not world:
        raise InputError("costs must be those of the world")
    inputs = _stage_inputs(world)
    own_tok, answer_tok = _tokens(table, "input_tok"), _tokens(table, "output_tok")
    columns = {name: [] for name in ("calls", "prompt_tok", "output_tok", "shared_tok", "price", "said_tok")}
    for slot, model in enumerate(allocation):
        ran = world.ran(allocation, slot)
        made = np.ones(table.size, bool) if ran is None else ran
        read_tok = sum((columns["said_tok"][i] for i in inputs[slot]), np.zeros(table.size, np.int64))
        handed_on = columns["said_tok"][inputs[slot][0]] if inputs[slot] else answer_tok[:, model]
        price = table.costs[:, model] if costs is None else costs.call[slot, model]
        columns["calls"].append(np.where(made, model, NO_CALL))
        columns["prompt_tok"].append(own_tok[:, model] + read_tok)
        columns["output_tok"].append(answer_tok[:, model])
        columns["shared_tok"].append(own_tok[:, model])
        columns["said_tok"].append(np.where(made, answer_tok[:, model], handed_on))
        columns["price"].append(price * made)
    columns.pop("said_tok")
    right = world.correct(allocation).astype(np.float64)
    return Plan(
        models=table.models,
        inputs=inputs,
        score=np.repeat(right[:, None], len(allocation), axis=1),
        after_s=np.zeros(len(allocation)),
        keeps=False,
        assumptions=(*table.assumptions, NOT_PREDICTED, MODULE_PROMPTS),
        **{name: np.column_stack(values) for name, values in columns.items()},
        **_asked(table, context_tok),
    )


def _stage_inputs(world: World) -> tuple[tuple[int, ...], ...]:
    """For each slot, the slots it waits for; modules without a model take no time and are looked through."""
    nodes = world.system.nodes

    def behind(at: int) -> set[int]:
        node = nodes[at]
        return {node.slot} if node.slot >= 0 else set().union(*(behind(i) for i in node.inputs))

    return tuple(
        tuple(sorted(set().union(*(behind(i) for i in nodes[at].inputs)))) for at in world.system.slots
    )


def _of_models(values: NDArray, model: Ints) -> NDArray:
    return np.take_along_axis(values, model, axis=1)


def _tokens(table: Outcomes, name: str) -> Ints:
    """Whole tokens, at least 1."""
    values = getattr(table, name)
    if values is None:
        what, remedy = (
            ("prompts", "texts=") if name == "input_tok" else ("answers", "answer_tok=, tokens of an answer")
        )
        raise InputError(f"{table.name} does not hold the lengths of {what}; read it with {remedy}")
    return np.maximum(np.rint(values), 1).astype(np.int64)


def _asked(table: Outcomes, context_tok: int) -> dict:
    if isinstance(context_tok, bool) or not isinstance(context_tok, int | np.integer) or context_tok < 0:
        raise InputError(
            f"context_tok = {context_tok!r} is not allowed; it must be a whole number, 0 or more"
        )
    context = np.zeros(table.size, np.int64)
    if table.domain is not None:
        context = np.unique(np.asarray(table.domain), return_inverse=True)[1].astype(np.int64)
    return {"question": table.question, "context": context, "context_tok": int(context_tok)}
