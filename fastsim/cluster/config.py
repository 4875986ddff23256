"""What a cluster is: replicas of a model on GPUs, and the engine that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from fastsim.cluster.orders import get
from fastsim.cluster.outages import Instant, Restart, Speed, joins_of, restarts_of, speeds_of
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.hardware import engine_limits, kv_capacity_tok
from fastsim.hardware.capacity import Tp
from fastsim.typed import checked

Replicas = Annotated[int, Meta(ge=1, le=100_000)]
BlockTok = Annotated[int, Meta(ge=1, le=2**16)]
KvTok = Annotated[int, Meta(ge=1, le=10**12)]
BatchTok = Annotated[int, Meta(ge=1, le=10**9)]
Watermark = Annotated[float, Meta(ge=0.0, lt=1.0)]
LECTURE_BATCH_TOK, LECTURE_SEQS = 2048, 256  # lecture/parameters: chunk budget and requests running


@checked
@dataclass(frozen=True)
class Cluster:
    """A cluster of equal replicas.

    Parameters
    ----------
    replicas : int
        How many, at least 1.
    model, gpu : str
        Names in the catalogues (`fastsim models`, `fastsim hardware`).
    tp : int
        GPUs a replica is spread over.
    engine : {"vllm", "lecture"}
        vLLM V1's scheduler, or the lecture's simplification: block size 1, whole segments cached, private
        segments freed at the end, output reserved at admission.
    step_time : StepTime or mapping or str, optional
        How long a step takes; by default the roofline of `gpu` and `model`. See `StepTime.of`.
    block_tok : int, optional
        Tokens a KV block, default 16 (1 with the lecture's engine).
    kv_tok : int, optional
        KV capacity in tokens; by default what `gpu` leaves beside the weights.
    max_batch_tok, max_seqs : int, optional
        Tokens and requests a step; by default vLLM's for the GPU (2,048 and 256 with the lecture's engine).
    watermark : float
        Share of the blocks kept free at admission while anything runs, in [0, 1).
    speeds : sequence of float, optional
        Speed of each replica, 1 being that of the step time.
    restarts : sequence of `Restart` or mapping, optional
        Replicas that lose their cache: replica, at_s, down_s, told_after_s.
    joins_s : sequence of float, optional
        Instants at which the last replicas join; routers do not know them before.
    order : str
        In which waiting requests are admitted, see `fastsim.cluster.orders`: "fcfs", "longest_prefix",
        "priority_groups", "priority_groups_cycling", "shortest_prompt" or "priority".
    order_params : mapping, optional
        The order's parameters.
    preempt_ties : {"running_list", "file"}
        Whom order "priority" preempts of several requests of the highest priority value that arrived at the
        same instant: the first of the running list, as vLLM does, or the last in the file, as if it had
        arrived a little later. In real traffic no two arrive at one instant.
    fast_forward : bool
        Take decode runs in one jump. Off gives the same results, step by step.

    Raises
    ------
    InputError
        If a name is unknown or a value out of range.
    """

    replicas: Replicas = 4
    model: str = "mistral-7b"
    gpu: str = "a6000"
    tp: Tp = 1
    engine: Literal["vllm", "lecture"] = "vllm"
    step_time: StepTime | Mapping[str, Any] | str | None = None
    block_tok: BlockTok | None = None
    kv_tok: KvTok | None = None
    max_batch_tok: BatchTok | None = None
    max_seqs: BatchTok | None = None
    watermark: Watermark = 0.0
    speeds: Sequence[Speed] | None = None
    restarts: Sequence[Restart] | None = None
    joins_s: Sequence[Instant] | None = None
    order: str = "fcfs"
    order_params: Mapping[str, Any] | None = field(default=None, hash=False)
    preempt_ties: Literal["running_list", "file"] = "running_list"
    fast_forward: bool = True

    def __post_init__(self) -> None:
        lecture = self.engine == "lecture"
        limits = (LECTURE_BATCH_TOK, LECTURE_SEQS) if lecture else engine_limits(self.gpu)
        self._default("step_time", lambda: StepTime.roofline(self.gpu, self.model, self.tp))
        self._set("step_time", StepTime.of(self.step_time))  # pyright: ignore[reportArgumentType]
        self._default("block_tok", lambda: 1 if lecture else 16)
        self._default("kv_tok", lambda: kv_capacity_tok(self.gpu, self.model, self.tp))
        self._default("max_batch_tok", lambda: limits[0])
        self._default("max_seqs", lambda: min(limits[1], self.batch_tok))
        if lecture and self.block_tok != 1:
            raise InputError(
                f"cluster: block_tok = {self.block_tok} is not allowed; the lecture's engine has block size 1"
            )
        if self.kv_blocks < 1:
            raise InputError(
                f"cluster: kv_tok = {self.kv_tok} is not allowed; "
                f"it must hold a block of {self.block_tok} tokens"
            )
        if self.batch_tok < self.seqs:
            raise InputError(
                f"cluster: max_batch_tok = {self.batch_tok} is not allowed; "
                f"it must be at least max_seqs ({self.seqs}), so that every running request can get a token"
            )
        self._set("speeds", speeds_of(self.speeds, self.replicas))
        self._set("restarts", restarts_of(self.restarts, self.replicas))
        self._set("joins_s", joins_of(self.joins_s, self.replicas))
        get(self.order).values(self.order_params)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _default(self, name: str, make: Any) -> None:
        if getattr(self, name) is None:
            self._set(name, make())

    @property
    def steps(self) -> StepTime:
        """The step time."""
        assert isinstance(self.step_time, StepTime)
        return self.step_time

    @property
    def block(self) -> int:
        """Tokens a KV block."""
        assert self.block_tok is not None
        return self.block_tok

    @property
    def kv_blocks(self) -> int:
        """KV blocks of a replica."""
        assert self.kv_tok is not None
        return self.kv_tok // self.block

    @property
    def batch_tok(self) -> int:
        """Tokens a step may compute."""
        assert self.max_batch_tok is not None
        return self.max_batch_tok

    @property
    def seqs(self) -> int:
        """Requests a replica may run at once."""
        assert self.max_seqs is not None
        return self.max_seqs

    @property
    def order_values(self) -> list[int]:
        """The order's parameters, in the order of its spec."""
        return get(self.order).values(self.order_params)

    @property
    def watermark_blocks(self) -> int:
        """Blocks kept free at admission: a share of all blocks, vLLM's reserved null block included."""
        return int(self.watermark * (self.kv_blocks + 1))
