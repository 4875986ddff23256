"""The catalogues of GPUs and models: one TOML table each, read into typed records.

To add one, add a table to `gpus.toml` or `models.toml`, with its source in a comment; or keep it in a file of
your own and write ``FILE.toml:NAME`` wherever a name is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from fastsim.errors import InputError
from fastsim.hardware.tables import find, read_tables, require

_HERE = Path(__file__).parent
_BYTES_PER_VALUE = 2  # weights and KV cache are bf16 unless a table says otherwise


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GPU.

    Attributes
    ----------
    name : str
        Name in the catalogue.
    title : str
        Maker's name.
    bf16_flop_per_s, fp8_flop_per_s : float
        Peak rate of dense matrix products; `fp8_flop_per_s` is 0 where the hardware has no such unit.
    memory_bytes : int
        Size of its memory.
    bandwidth_bytes_per_s : float
        Peak bandwidth of its memory.
    link_bytes_per_s : float
        Bandwidth to its peers, per direction; 0 without a link of its own.
    compute_efficiency, bandwidth_efficiency : float
        Share of either peak that a step reaches, in (0, 1]. Default 0.7 and 0.8, the lecture's for the A6000.
    overhead_s : float
        Time of a step beyond the roofline. Default 0.5 ms, also the lecture's.
    """

    name: str
    title: str
    bf16_flop_per_s: float
    memory_bytes: int
    bandwidth_bytes_per_s: float
    fp8_flop_per_s: float = 0.0
    link_bytes_per_s: float = 0.0
    compute_efficiency: float = 0.7
    bandwidth_efficiency: float = 0.8
    overhead_s: float = 0.0005

    def __post_init__(self) -> None:
        require(self, ("bf16_flop_per_s", "memory_bytes", "bandwidth_bytes_per_s"), positive=True)
        require(self, ("fp8_flop_per_s", "link_bytes_per_s", "overhead_s"), positive=False)
        for field in ("compute_efficiency", "bandwidth_efficiency"):
            if not 0 < getattr(self, field) <= 1:
                raise InputError(f"{field} is {getattr(self, field)}; it must be in (0, 1]")

    def linear_flop_per_s(self, precision: str) -> float:
        """Peak rate of the layers' products for weights of this precision (bf16 where FP8 has no unit)."""
        return self.fp8_flop_per_s if precision == "fp8" and self.fp8_flop_per_s else self.bf16_flop_per_s


_POSITIVE = (
    "params", "linear_params", "layers", "hidden", "vocab", "heads", "kv_heads", "head_dim",
    "weight_bytes", "kv_bytes_per_tok", "attention_flop_per_pair", "attention_flop_per_context_tok",
)  # fmt: skip


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One language model.

    Attributes
    ----------
    name, title : str
        Name in the catalogue, maker's name.
    params : int
        All parameters.
    linear_params : int
        Parameters multiplied with each token: the layers' matrices (of experts, the router and those used),
        without embedding, output head and norms.
    layers, hidden, vocab, heads, kv_heads, head_dim : int
        The shape, as in its config.json.
    precision : {"bf16", "fp8", "mxfp4"}
        Of the layers' weights.
    weight_bytes : int
        All weights. Default 2 bytes a parameter.
    kv_bytes_per_tok : int
        KV cache of one token, all layers. Default ``4 * layers * kv_heads * head_dim`` (keys and values, 2
        bytes each).
    attention_flop_per_pair : int
        Of one prefilled token and one token it attends to, all layers. Default
        ``4 * layers * heads * head_dim`` (query x key, and weight x value).
    attention_flop_per_context_tok : int
        The same for a decoded token. Default `attention_flop_per_pair`; latent attention differs.
    experts, experts_per_tok : int
        Routed experts of a layer, and how many of them a token uses; 0 in a dense model.
    routed_bytes : int
        The part of `weight_bytes` that is routed experts.
    """

    name: str
    title: str
    params: int
    linear_params: int
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    precision: Literal["bf16", "fp8", "mxfp4"] = "bf16"
    weight_bytes: int = 0
    kv_bytes_per_tok: int = 0
    attention_flop_per_pair: int = 0
    attention_flop_per_context_tok: int = 0
    experts: int = 0
    experts_per_tok: int = 0
    routed_bytes: int = 0

    def __post_init__(self) -> None:
        self._fill("weight_bytes", _BYTES_PER_VALUE * self.params)
        self._fill("kv_bytes_per_tok", 2 * _BYTES_PER_VALUE * self.layers * self.kv_heads * self.head_dim)
        self._fill("attention_flop_per_pair", 4 * self.layers * self.heads * self.head_dim)
        self._fill("attention_flop_per_context_tok", self.attention_flop_per_pair)
        require(self, _POSITIVE, positive=True)
        require(self, ("experts", "experts_per_tok", "routed_bytes"), positive=False)
        for field, limit in (("experts_per_tok", "experts"), ("routed_bytes", "weight_bytes")):
            if getattr(self, field) > getattr(self, limit):
                raise InputError(
                    f"{field} is {getattr(self, field)}; it must be at most {limit} = {getattr(self, limit)}"
                )

    def _fill(self, field: str, default: int) -> None:
        if getattr(self, field) == 0:
            msgspec.structs.force_setattr(self, field, default)

    @property
    def embedding_bytes(self) -> int:
        """Size of the input embedding, of which a step reads only the rows of its tokens."""
        return _BYTES_PER_VALUE * self.vocab * self.hidden


def gpu(name: str | Gpu) -> Gpu:
    """Find a GPU by its name, or by ``FILE.toml:NAME`` in a user's file; a `Gpu` is returned as it is.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    return find(name, Gpu, gpus())


def model(name: str | Model) -> Model:
    """Find a model by its name, or by ``FILE.toml:NAME`` in a user's file; a `Model` is returned as it is.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    return find(name, Model, models())


def gpus(path: str | Path | None = None) -> Mapping[str, Gpu]:
    """Return the GPUs of the catalogue, or of the TOML file at `path`, by name."""
    return _builtin_gpus() if path is None else read_tables(path, Gpu)


def models(path: str | Path | None = None) -> Mapping[str, Model]:
    """Return the models of the catalogue, or of the TOML file at `path`, by name."""
    return _builtin_models() if path is None else read_tables(path, Model)


@functools.cache
def _builtin_gpus() -> Mapping[str, Gpu]:
    return MappingProxyType(read_tables(_HERE / "gpus.toml", Gpu))


@functools.cache
def _builtin_models() -> Mapping[str, Model]:
    return MappingProxyType(read_tables(_HERE / "models.toml", Model))
