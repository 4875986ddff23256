"""How long one batch step of an engine takes: roofline, linear, polynomial, fixed, measured tables.

All are one form, so that a run of decode steps has a closed form (`_step_time`): a maximum over pieces, each
linear in the step's attention pairs, decoding requests and context tokens, quadratic in its prefill tokens,
plus a piecewise-linear function of all its tokens. The features of a step:

* prefill tokens n: tokens scheduled for requests that prefill (more than one token, or no output yet).
* decode requests b: the others, one token each.
* pairs: sum over all tokens computed of the tokens each attends to, itself included. A chunk of n tokens
  after c cached ones has n c + n (n + 1) / 2, a decoded token the length of its context.
* context tokens: KV entries read. A decoded token reads its context, itself included; a chunk reads the c
  tokens before it.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError, nearest, shown
from fastsim.hardware import Gpu, Model, catalogue
from fastsim.hardware.capacity import Tp, kv_copies, require_tp
from fastsim.hardware.step_tables import step_tables
from fastsim.typed import checked, named

FS_PER_S = 10**15
MAX_STEP_FS = 2**62
MAX_STEP_S = 1e6  # of one coefficient
_COEFFICIENTS = (
    "base_s", "prefill_s", "decode_s", "per_prefill_token_s", "per_prefill_token2_s",
    "per_pair_s", "per_decode_request_s", "per_context_token_s",
)  # fmt: skip
_COLUMNS = len(_COEFFICIENTS) + 1  # one spare
_COVERAGE_KNOTS = 24
Knot = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of the functions whose maximum is the step time.

    Attributes
    ----------
    base_s : float
        Every step.
    prefill_s, decode_s : float
        Once in a step with prefill tokens, with decode requests.
    per_prefill_token_s, per_prefill_token2_s : float
        For each prefill token n of the step, and for n squared.
    per_pair_s, per_decode_request_s, per_context_token_s : float
        For each attention pair, decode request, context token read.
    knots : tuple of (int, float)
        (tokens, seconds), joined by straight lines over n + b; the last line goes on. From 0 or 1 token on.
    """

    base_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    per_prefill_token_s: float = 0.0
    per_prefill_token2_s: float = 0.0
    per_pair_s: float = 0.0
    per_decode_request_s: float = 0.0
    per_context_token_s: float = 0.0
    knots: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for field in _COEFFICIENTS:
            _require_seconds(field, getattr(self, field))
        for _, seconds in self.knots:
            _require_seconds("seconds of a table", seconds)
        tokens = [knot[0] for knot in self.knots]
        if any(isinstance(each, bool) or not isinstance(each, int) for each in tokens):
            raise InputError(f"tokens of a table are {tokens}; they must be integers")
        if any(later <= earlier for earlier, later in itertools.pairwise(tokens)):
            raise InputError(f"tokens of a table are {tokens}; they must increase strictly")
        if tokens and tokens[0] not in (0, 1):
            raise InputError(f"tokens of a table start at {tokens[0]}; they must start at 0 or 1")
        if len(tokens) > 1 and self.knots[-1][1] < self.knots[-2][1]:
            raise InputError(
                f"seconds of a table end with {self.knots[-2][1]}, {self.knots[-1][1]}; "
                "they must not fall there, as the last line goes on"
            )

    def seconds(self, prefill_tok: int, pairs: int, decode_reqs: int, context_tok: int) -> float:
        """Time of a step with these features, in floating point."""
        return (
            self.base_s
            + self.prefill_s * (prefill_tok > 0)
            + self.decode_s * (decode_reqs > 0)
            + self.per_prefill_token_s * prefill_tok
            + self.per_prefill_token2_s * prefill_tok**2
            + self.per_pair_s * pairs
            + self.per_decode_request_s * decode_reqs
            + self.per_context_token_s * context_tok
            + self._table_s(prefill_tok + decode_reqs)
        )

    def _table_s(self, tokens: int) -> float:
        if not self.knots:
            return 0.0
        row = max((i for i, knot in enumerate(self.knots) if knot[0] <= tokens), default=0)
        from_tok, from_s = self.knots[row]
        return from_s + float(self.slope(row)) * (tokens - from_tok)

    def slope(self, row: int) -> Fraction:
        """Slope of the line from a knot on, in s per token; the last knot continues the line before it."""
        if len(self.knots) == 1:
            return Fraction(0)
        row = min(row, len(self.knots) - 2)
        (from_tok, from_s), (to_tok, to_s) = self.knots[row : row + 2]
        return (Fraction(to_s) - Fraction(from_s)) / (to_tok - from_tok)


class StepTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of a batch step: the maximum over its pieces.

    Make one by `roofline`, `linear`, `polynomial`, `fixed`, `table`, `calibrated` or `max_of`, or from a
    sweep's settings by `of`. Equal ones compare equal, and `msgspec` writes and reads them.
    """

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        if not self.pieces:
            raise InputError("pieces of a step time are empty; there must be at least one")

    @classmethod
    def of(cls, spec: StepTime | str | Mapping[str, Any]) -> StepTime:
        """Make one from a setting: itself, the name of a calibrated table, or ``{"kind": "linear", ...}``.

        Raises
        ------
        InputError
            If the kind or one of its parameters is unknown, missing or out of range.
        """
        if isinstance(spec, StepTime):
            return spec
        if isinstance(spec, str):
            return cls.calibrated(spec)
        if not isinstance(spec, Mapping):
            raise InputError(
                f"step_time must be a StepTime, a name or a table with a kind, not {shown(spec)}"
            )
        parameters = dict(spec)
        kind = parameters.pop("kind", None)
        named("kind of step_time", kind, dict.fromkeys(_KINDS))
        make = getattr(cls, kind)
        known = inspect.signature(make).parameters
        for name in parameters:
            if name not in known:
                raise InputError(f"unknown parameter {name!r} of step_time {kind!r}; {nearest(name, known)}")
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in parameters:
                raise InputError(f"parameter {name!r} of step_time {kind!r} is missing")
        return make(**parameters)

    @classmethod
    @checked
    def roofline(
        cls,
        gpu: str | Gpu,
        model: str | Model,
        tp: Tp = 1,
        *,
        compute_efficiency: float | None = None,
        bandwidth_efficiency: float | None = None,
        overhead_s: float | None = None,
        output_head: bool = False,
    ) -> StepTime:
        """Arithmetic or memory traffic, whichever takes longer, plus an overhead.

        ``max(flop / (compute_efficiency * tp * peak), bytes / (bandwidth_efficiency * tp * bandwidth)) +
        overhead`` with flop = 2 x linear parameters x tokens + attention per pair, and bytes = weights + KV
        of the context read. Of routed experts, those are read that at least one of T tokens uses: a share 1 -
        (1 - k/E)^T on average, here by straight lines (to 0.2 % of all experts). Linear products run at the
        FP8 peak for FP8 weights where the GPU has one, everything else at the bf16 peak. Transfers between
        the GPUs are left to the overhead.

        Parameters
        ----------
        gpu, model : str or Gpu, str or Model
            Names in the catalogues, or records.
        tp : int
            GPUs a replica is spread over.
        compute_efficiency, bandwidth_efficiency : float, optional
            Share of either peak that is reached, in (0, 1]. Default: the GPU's.
        overhead_s : float, optional
            Default: the GPU's.
        output_head : bool
            Count the output head's products (2 x hidden x vocabulary flop for each decode request, and once
            for prefill), and do not count the input embedding as read. The form to which efficiencies are
            fitted in `gpus.toml`; False is the lecture's.

        Raises
        ------
        InputError
            If a name is unknown or a number out of range.
        """
        card, net = catalogue.gpu(gpu), catalogue.model(model)
        require_tp(tp)
        compute = _efficiency("compute_efficiency", compute_efficiency, card.compute_efficiency) * tp
        memory = _efficiency("bandwidth_efficiency", bandwidth_efficiency, card.bandwidth_efficiency) * tp
        base_s = card.overhead_s if overhead_s is None else overhead_s
        flop_per_s = compute * card.bf16_flop_per_s
        bytes_per_s = memory * card.bandwidth_bytes_per_s
        linear_s = 2 * net.linear_params / (compute * card.linear_flop_per_s(net.precision))
        head_s = 2 * net.hidden * net.vocab / flop_per_s if output_head else 0.0
        latent_flop = max(0, net.attention_flop_per_context_tok - net.attention_flop_per_pair)
        read_bytes = net.weight_bytes - net.routed_bytes - (net.embedding_bytes if output_head else 0)
        arithmetic = Piece(
            base_s=base_s,
            prefill_s=head_s,
            per_prefill_token_s=linear_s,
            per_decode_request_s=linear_s + head_s,
            per_pair_s=net.attention_flop_per_pair / flop_per_s,
            per_context_token_s=latent_flop / flop_per_s,
        )
        traffic = Piece(
            base_s=base_s + read_bytes / bytes_per_s,
            per_context_token_s=net.kv_bytes_per_tok * kv_copies(net, tp) / bytes_per_s,
            knots=_expert_knots(net, bytes_per_s),
        )
        return cls((arithmetic, traffic))

    @classmethod
    @checked
    def linear(
        cls, base_s: float, per_prefill_token_s: float = 0.0, per_decode_request_s: float = 0.0
    ) -> StepTime:
        """``base_s + per_prefill_token_s * n + per_decode_request_s * b``."""
        return cls.polynomial(
            base_s=base_s, per_prefill_token_s=per_prefill_token_s, per_decode_request_s=per_decode_request_s
        )

    @classmethod
    @checked
    def polynomial(
        cls,
        prefill_s: float = 0.0,
        per_prefill_token_s: float = 0.0,
        per_prefill_token2_s: float = 0.0,
        decode_s: float = 0.0,
        per_decode_request_s: float = 0.0,
        per_context_token_s: float = 0.0,
        per_pair_s: float = 0.0,
        base_s: float = 0.0,
    ) -> StepTime:
        """One piece: a quadratic in the prefill tokens plus linear terms.

        ``base_s`` always; ``prefill_s + per_prefill_token_s * n + per_prefill_token2_s * n**2`` if the step
        prefills; ``decode_s + per_decode_request_s * b`` if it decodes; and linear in pairs and context.
        """
        return cls(
            (
                Piece(
                    base_s=base_s,
                    prefill_s=prefill_s,
                    decode_s=decode_s,
                    per_prefill_token_s=per_prefill_token_s,
                    per_prefill_token2_s=per_prefill_token2_s,
                    per_pair_s=per_pair_s,
                    per_decode_request_s=per_decode_request_s,
                    per_context_token_s=per_context_token_s,
                ),
            )
        )

    @classmethod
    @checked
    def fixed(cls, prefill_s: float, decode_s: float) -> StepTime:
        """`prefill_s` if any request prefills, plus `decode_s` if any decodes, whatever their number."""
        return cls((Piece(prefill_s=prefill_s, decode_s=decode_s),))

    @classmethod
    @checked
    def table(
        cls,
        tokens: Sequence[Knot],
        seconds: Sequence[float],
        *,
        per_pair_s: float = 0.0,
        per_decode_request_s: float = 0.0,
        per_context_token_s: float = 0.0,
        base_s: float = 0.0,
    ) -> StepTime:
        """Linear interpolation over the tokens of the step, plus linear terms.

        Parameters
        ----------
        tokens : sequence of int
            Knots: prefill tokens + decode requests, increasing, from 0 or 1 on.
        seconds : sequence of float
            Time at each; beyond the last the last line goes on, and must not fall.
        per_pair_s, per_decode_request_s, per_context_token_s, base_s : float
            As in `Piece`. Mind that a decoded token's context counts as pairs and as context read.
        """
        if len(tokens) != len(seconds):
            raise InputError(
                f"a table has {len(tokens)} tokens but {len(seconds)} seconds; as many are needed"
            )
        return cls(
            (
                Piece(
                    base_s=base_s,
                    per_pair_s=per_pair_s,
                    per_decode_request_s=per_decode_request_s,
                    per_context_token_s=per_context_token_s,
                    knots=tuple(zip(tokens, seconds, strict=True)),
                ),
            )
        )

    @classmethod
    @checked
    def calibrated(cls, name: str, *, host_overhead_s: float = 0.0) -> StepTime:
        """Table of one (model, GPU, engine), fitted to measured kernels, by its name in `step_times.toml`.

        Where the source charges decoded tokens for context alone and prefill for pairs alone, here a decoded
        token counts as both; the difference of the two rates goes to the context, so pure decode and prefill
        without cached prefix are the source's exactly, and a chunk after c cached tokens is charged c context
        tokens more (adds 0.02 to 0.5 points to the median error; at the 95th percentile up to 8).

        Parameters
        ----------
        name : str
            For example ``l8_h100_vllm``: Llama-3.1-8B on H100, vLLM.
        host_overhead_s : float
            CPU time of each step, not in the tables. About 0.2 to 0.8 ms for vLLM on H100 and H200 (measured
            servers less the table).
        """
        tables = step_tables()
        source = named("calibrated step time", name, tables)
        return cls.table(
            source.tokens,
            [ms / 1e3 for ms in source.ms],
            per_pair_s=source.ms_per_pair / 1e3,
            per_context_token_s=(source.ms_per_context_tok - source.ms_per_pair) / 1e3,
            per_decode_request_s=source.ms_per_decode_request / 1e3,
            base_s=host_overhead_s,
        )

    @classmethod
    def max_of(cls, *models: StepTime) -> StepTime:
        """Return the largest of several step times, as one."""
        return cls(tuple(piece for each in models for piece in each.pieces))

    def seconds(self, prefill_tok: int, pairs: int, decode_reqs: int, context_tok: int) -> float:
        """Time of a step with these features, in floating point: the reference for `compiled`."""
        return max(piece.seconds(prefill_tok, pairs, decode_reqs, context_tok) for piece in self.pieces)

    def slowed(self, factor: float) -> StepTime:
        """The same step time, `factor` times as long: of a replica at 1 / `factor` of the speed."""
        if factor == 1.0:
            return self
        pieces = (
            msgspec.structs.replace(
                piece,
                **{field: factor * getattr(piece, field) for field in _COEFFICIENTS},
                knots=tuple((tokens, factor * seconds) for tokens, seconds in piece.knots),
            )
            for piece in self.pieces
        )
        return StepTime(tuple(pieces))

    def compiled(
        self, *, step_tok: int = 32_768, step_seqs: int = 1_024, context_tok: int = 2**21
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the arrays the kernels of `_step_time` take, in integer femtoseconds.

        Each coefficient is rounded once, so whoever adds steps in whatever order adds the same integers. A
        step of features (n, pairs, b, context) is off by at most half a femtosecond times ``1 + [n > 0] + [b
        > 0] + n + n**2 + pairs + b + context``, plus ``1 + n + b`` with a table and less what the piece does
        not use: 0.1 microseconds for a prompt of 20,000 tokens by a roofline.

        Parameters
        ----------
        step_tok, step_seqs, context_tok : int
            The largest step that can come: tokens and requests in it, and context of one request. It must
            take less than 2**62 fs (4,611 s). Defaults: twice vLLM's largest budget, its largest batch,
            2,097,152 tokens.

        Returns
        -------
        coef : int64[P, 9]
            One row a piece, the columns in the order of `Piece`'s fields, the last spare (0).
        knot_ptr : int64[P + 1]
            Piece p has the rows ``knot_ptr[p]:knot_ptr[p + 1]`` of `knots`; none means no table.
        knots : int64[K, 3]
            Tokens, value in fs, slope in fs per token of the line that starts there.

        Raises
        ------
        InputError
            If the largest step takes 2**62 fs or more.
        """
        coef = np.zeros((len(self.pieces), _COLUMNS), dtype=np.int64)
        rows: list[tuple[int, int, int]] = []
        knot_ptr = [0]
        for p, piece in enumerate(self.pieces):
            terms = [_femtoseconds(getattr(piece, field)) for field in _COEFFICIENTS]
            table = [
                (tokens, _femtoseconds(seconds), _femtoseconds(piece.slope(row)))
                for row, (tokens, seconds) in enumerate(piece.knots)
            ]
            _require_range(terms, table, step_tok, step_seqs, context_tok)
            coef[p, : len(terms)] = terms
            rows += table
            knot_ptr.append(len(rows))
        return coef, np.array(knot_ptr, dtype=np.int64), np.array(rows, dtype=np.int64).reshape(-1, 3)


_KINDS = ("roofline", "linear", "polynomial", "fixed", "table", "calibrated")


def _require_seconds(field: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_STEP_S:
        raise InputError(
            f"{field} of a step time is {shown(value)}; it must be a number from 0 to {MAX_STEP_S:g}"
        )


def _efficiency(field: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(f"{field} is {shown(value)}; it must be in (0, 1]")
    return value


def _expert_knots(net: Model, bytes_per_s: float) -> tuple[tuple[int, float], ...]:
    """Time to read the routed experts that T tokens use, 1 - (1 - k/E)^T of them on average.

    The knots are closer where the curve bends more, so that all chords miss it by about as much.
    """
    if not net.routed_bytes or net.experts_per_tok == net.experts:
        return ((1, net.routed_bytes / bytes_per_s),) if net.routed_bytes else ()
    unused = 1 - net.experts_per_tok / net.experts
    scale_tok = -2 / math.log(unused)
    tokens = {round(1 - scale_tok * math.log(1 - i / _COVERAGE_KNOTS)) for i in range(_COVERAGE_KNOTS)}
    end = 2 * max(tokens)  # there all but a millionth are in use: level from here on
    knots = [(t, net.routed_bytes * (1 - unused**t) / bytes_per_s) for t in sorted(tokens)]
    full_s = net.routed_bytes / bytes_per_s
    return (*knots, (end, full_s), (2 * end, full_s))


def _femtoseconds(seconds: float | Fraction) -> int:
    return round(Fraction(seconds) * FS_PER_S)


def _require_range(
    terms: list[int], table: list[tuple[int, int, int]], step_tok: int, step_seqs: int, context_tok: int
) -> None:
    """Refuse a piece whose largest step leaves the integer clock; all but the table grow with the step."""
    features = (1, 1, 1, step_tok, step_tok**2, step_tok * context_tok, step_seqs, step_seqs * context_tok)
    worst_fs = sum(a * b for a, b in zip(terms, features, strict=True))
    if table:
        tokens, value_fs, slope_fs = table[-1]
        worst_fs += max(value_fs + slope_fs * max(0, step_tok - tokens), *(value for _, value, _ in table))
    if worst_fs >= MAX_STEP_FS:
        raise InputError(
            f"a step of {step_tok} tokens for {step_seqs} requests of {context_tok} context tokens takes "
            f"{worst_fs / FS_PER_S:.0f} s by this step time; it must be below {MAX_STEP_FS / FS_PER_S:.0f} s"
        )
