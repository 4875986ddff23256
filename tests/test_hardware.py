"""The catalogues of GPUs and models: the contract of every entry, the lecture's numbers, refusals."""

from __future__ import annotations

import msgspec
import pytest

from fastsim.errors import InputError
from fastsim.hardware import Gpu, Model, engine_limits, gpu, gpus, kv_capacity_tok, model, models

pytestmark = pytest.mark.small


@pytest.mark.parametrize("card", gpus().values(), ids=list(gpus()))
def test_every_gpu_keeps_the_contract(card: Gpu) -> None:
    assert gpu(card.name) is card
    assert card.name == card.name.lower()
    # Between 20 and 700 flop for each byte: every GPU of the last ten years; a unit slipped otherwise.
    assert 20 < card.bf16_flop_per_s / card.bandwidth_bytes_per_s < 700
    assert 10e9 < card.memory_bytes < 1e12
    if card.fp8_flop_per_s:
        assert card.fp8_flop_per_s == pytest.approx(2 * card.bf16_flop_per_s, rel=0.03)
    assert 0 < card.overhead_s < 0.01


@pytest.mark.parametrize("net", models().values(), ids=list(models()))
def test_every_model_keeps_the_contract(net: Model) -> None:
    assert model(net.name) is net
    assert net.name == net.name.lower()
    embedding_and_head = 2 * net.vocab * net.hidden
    norms_and_biases = net.params - embedding_and_head - _matrices(net)
    assert 0 < norms_and_biases < 5e-4 * net.params
    assert net.layers * net.hidden <= norms_and_biases  # at least one norm a layer
    if net.kv_heads > 1:  # not latent attention
        assert net.kv_bytes_per_tok == 2 * 2 * net.layers * net.kv_heads * net.head_dim
        assert net.attention_flop_per_pair == 4 * net.layers * net.heads * net.head_dim
        assert net.attention_flop_per_context_tok == net.attention_flop_per_pair
    if net.precision == "bf16":
        assert net.weight_bytes == 2 * net.params
    elif net.precision == "fp8":
        assert net.weight_bytes == _matrices(net) + 2 * (net.params - _matrices(net))
    assert (net.experts > 0) == (net.routed_bytes > 0) == (net.experts_per_tok > 0)


def _matrices(net: Model) -> int:
    """Parameters of all the layers' matrices: those a token uses, plus the experts it does not."""
    bytes_per_routed = {"bf16": 2, "fp8": 1, "mxfp4": 4.25 / 8}[net.precision]
    routed = net.routed_bytes / bytes_per_routed
    used = routed * net.experts_per_tok / net.experts if net.experts else 0
    assert routed == int(routed)
    assert used == int(used)
    return int(net.linear_params + routed - used)


def test_published_sizes() -> None:
    billions = {
        "mistral-7b": 7.24, "llama-3.1-8b": 8.03, "llama-3.1-70b": 70.55, "llama-3.1-405b": 405.85,
        "qwen3-8b": 8.19, "qwen3-32b": 32.76, "qwen3-30b-a3b": 30.53, "qwen3-235b-a22b": 235.09,
        "deepseek-v3": 671.03, "gpt-oss-120b": 116.83,
    }  # fmt: skip
    assert {name: round(model(name).params / 1e9, 2) for name in billions} == billions


def test_the_lectures_replica() -> None:
    card, net = gpu("a6000"), model("mistral-7b")
    assert (net.params, net.linear_params, net.layers, net.hidden) == (7_241_732_096, 6_979_321_856, 32, 4096)
    assert (net.kv_bytes_per_tok, net.weight_bytes) == (131_072, 14_483_464_192)
    assert (card.bf16_flop_per_s, card.bandwidth_bytes_per_s, card.memory_bytes) == (154.8e12, 768e9, 48e9)
    assert (card.compute_efficiency, card.bandwidth_efficiency, card.overhead_s) == (0.7, 0.8, 0.0005)
    assert kv_capacity_tok("a6000", "mistral-7b") == 219_089  # S5


def test_kv_capacity_by_hand() -> None:
    net = msgspec.structs.replace(model("llama-3.1-8b"), weight_bytes=1_000_000, kv_bytes_per_tok=1_000)
    card = msgspec.structs.replace(gpu("a6000"), memory_bytes=2_000_000)
    assert kv_capacity_tok(card, net, memory_fraction=0.75) == 500
    assert kv_capacity_tok(card, net, tp=8, memory_fraction=0.5) == 7_000
    assert kv_capacity_tok(card, net, tp=16, memory_fraction=0.5) == 7_500  # 8 KV heads: each is held twice
    assert kv_capacity_tok(card, net, memory_fraction=0.501) == 2
    with pytest.raises(InputError, match=r"'llama-3\.1-8b' does not fit 1 x 'a6000'"):
        kv_capacity_tok(card, net, memory_fraction=0.5)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("b200", (16_384, 1_024)),
        ("mi300x", (16_384, 1_024)),
        ("h100", (8_192, 1_024)),
        ("h200", (8_192, 1_024)),
        ("a100", (2_048, 256)),
        ("a6000", (2_048, 256)),
        ("l4", (2_048, 256)),
    ],
)
def test_engine_limits_are_those_of_vllm(name: str, limits: tuple[int, int]) -> None:
    assert engine_limits(name) == limits


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gpu("a600"), r"unknown gpu 'a600'; did you mean 'a6000'\?"),
        (lambda: model("llama-3.1-8"), r"unknown model 'llama-3.1-8'; did you mean 'llama-3.1-8b'\?"),
        (lambda: gpu(3), "gpu must be a name or a Gpu, not 3"),  # pyright: ignore[reportArgumentType]
        (lambda: gpu("absent.toml:x"), "cannot read absent.toml"),
        (
            lambda: kv_capacity_tok("a6000", "mistral-7b", 0),
            "tp = 0 is not allowed; it must be a whole number from 1 to 1,024",
        ),
        (
            lambda: kv_capacity_tok("a6000", "mistral-7b", True),
            "tp = True is not allowed; it must be a whole number from 1 to 1,024",
        ),
        (lambda: kv_capacity_tok("a6000", "mistral-7b", 1, 1.5), r"memory_fraction is 1\.5; .*\(0, 1\]"),
        (lambda: kv_capacity_tok("a6000", "llama-3.1-70b"), "weights take 141.1 of 43.2 GB"),
    ],
)
def test_refusals_name_the_field(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


GOOD_TABLE = """
[mine]
title = "Mine"
bf16_flop_per_s = 1e14
memory_bytes = 24_000_000_000
bandwidth_bytes_per_s = 1e12
"""


def test_users_tables(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_TABLE)
    card = gpu(f"{path}:mine")
    assert card == gpus(path)["mine"]
    assert (card.name, card.memory_bytes, card.overhead_s) == ("mine", 24_000_000_000, 0.0005)
    assert gpu(card) is card
    with pytest.raises(InputError, match="did you mean 'mine'"):
        gpu(f"{path}:mime")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1e12", "0.0", "bandwidth_bytes_per_s is 0.0; it must be above 0 and finite"),
        ("1e14", "nan", "bf16_flop_per_s is nan"),
        ("1e12", '"fast"', "bandwidth_bytes_per_s"),
        ("bandwidth_bytes", "bandwith_bytes", "'bandwith_bytes_per_s'; did you mean 'bandwidth_"),
        ('title = "Mine"', "overhead_s = -1.0\ntitle = ''", "overhead_s is -1.0; it must be at least 0"),
        ('title = "Mine"', "compute_efficiency = 1.1\ntitle = ''", r"compute_efficiency is 1.1; .*\(0, 1\]"),
        ('title = "Mine"', "", "missing required field `title`"),
        ("[mine]", "mine =", "cannot read"),
    ],
)
def test_bad_tables_are_named(tmp_path, old: str, new: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_TABLE.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        gpus(path)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_cannot_route_more_than_it_has(tmp_path) -> None:
    with pytest.raises(InputError, match="experts_per_tok is 9; it must be at most experts = 8"):
        msgspec.structs.replace(model("mistral-7b"), experts=8, experts_per_tok=9)
