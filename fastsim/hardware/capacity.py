"""What a GPU's memory allows: KV-cache capacity, and the limits an engine chooses by it."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from msgspec import Meta

from fastsim.errors import InputError
from fastsim.hardware.catalogue import Gpu, Model, gpu, model
from fastsim.typed import checked

_GIB = 2**30
Tp = Annotated[int, Meta(ge=1, le=1024)]


class EngineLimits(NamedTuple):
    """Tokens and requests an engine schedules at most in one step."""

    max_batch_tok: int
    max_seqs: int


def engine_limits(gpu_name: str | Gpu) -> EngineLimits:
    """Return the limits that vLLM's server (0.33) chooses for a GPU.

    From 160 GiB of memory 16,384 tokens and 1,024 requests, from 70 GiB 8,192 and 1,024 unless it is an A100,
    else 2,048 and 256 (vLLM V1, `max_num_batched_tokens` and `max_num_seqs` of the OpenAI server).
    """
    card = gpu(gpu_name)
    if card.memory_bytes >= 160 * _GIB:
        return EngineLimits(16_384, 1_024)
    if card.memory_bytes >= 70 * _GIB and "a100" not in f"{card.name} {card.title}".lower():
        return EngineLimits(8_192, 1_024)
    return EngineLimits(2_048, 256)


def kv_capacity_tok(
    gpu_name: str | Gpu, model_name: str | Model, tp: int = 1, memory_fraction: float = 0.9
) -> int:
    """Return how many tokens' keys and values fit beside the weights.

    ``floor((memory_fraction * tp * memory - weights) / kv)``, with kv the bytes of one token over all GPUs
    (with more GPUs than KV heads, heads are replicated). Activations and CUDA graphs live in what
    `memory_fraction` leaves free.

    Parameters
    ----------
    gpu_name, model_name : str or Gpu, str or Model
        Names in the catalogues, or records.
    tp : int
        GPUs one replica is spread over (tensor parallel).
    memory_fraction : float
        Share of the memory the engine may use, in (0, 1].

    Returns
    -------
    int
        Tokens, at least 1. Mistral-7B on an A6000: 219,089 (the lecture's S5).

    Raises
    ------
    InputError
        If a name is unknown, `tp` or `memory_fraction` is out of range, or the weights leave no room.
    """
    card, net = gpu(gpu_name), model(model_name)
    require_tp(tp)
    if not 0 < memory_fraction <= 1:
        raise InputError(f"memory_fraction is {memory_fraction}; it must be in (0, 1]")
    room_bytes = memory_fraction * tp * card.memory_bytes - net.weight_bytes
    capacity_tok = math.floor(room_bytes / (net.kv_bytes_per_tok * kv_copies(net, tp)))
    if capacity_tok < 1:
        usable_bytes = memory_fraction * tp * card.memory_bytes
        raise InputError(
            f"model {net.name!r} does not fit {tp} x {card.name!r}: its weights take "
            f"{net.weight_bytes / 1e9:.1f} of {usable_bytes / 1e9:.1f} GB; raise tp or take a larger gpu"
        )
    return capacity_tok


def kv_copies(net: Model, tp: int) -> float:
    """How often each token's KV is held over `tp` GPUs: once, until there are more GPUs than KV heads."""
    return max(1.0, tp / net.kv_heads)


@checked
def require_tp(tp: Tp) -> None:
    """Refuse a tensor-parallel degree that is no whole number in range."""
