"""Step times as a user makes them: the lecture's figures, rounding, the forms, what is refused."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.cluster import _step_time as kernels
from fastsim.cluster.step_time import Piece, StepTime
from fastsim.errors import InputError
from fastsim.hardware import gpu, gpus, kv_capacity_tok, model, models
from fastsim.hardware.step_tables import step_tables
from tests.twins import step_time as twin

pytestmark = pytest.mark.small

LECTURE = StepTime.roofline("a6000", "mistral-7b")


@pytest.mark.parametrize(
    ("prompt_tok", "printed", "lecture"),
    [(2_100, "0.28169", "0.2817"), (2_000, "0.26781", "0.27"), (21_000, "3.7725", "3.77")],
    ids=["S1", "S2", "S3"],
)
def test_prefill_as_the_lecture_says(prompt_tok: int, printed: str, lecture: str) -> None:
    """The targets count n^2 / 2 pairs; the engine has each token attend to itself too, n / 2 more."""
    seconds = LECTURE.seconds(prompt_tok, prompt_tok**2 // 2, 0, 0)
    engines = LECTURE.seconds(prompt_tok, prompt_tok * (prompt_tok + 1) // 2, 0, 0)
    assert _digits(seconds, printed) == printed
    assert _digits(seconds, lecture) == _digits(engines, lecture) == lecture
    assert engines - seconds == pytest.approx(prompt_tok / 2 * 4 * 32 * 4096 / (0.7 * 154.8e12), rel=1e-9)


def test_decode_and_capacity_as_the_lecture_says() -> None:
    one_token_ms = LECTURE.seconds(0, 1, 1, 1) * 1e3
    assert (_digits(one_token_ms, "24.07"), _digits(one_token_ms, "24")) == ("24.07", "24")  # S4
    assert kv_capacity_tok("a6000", "mistral-7b") == 219_089  # S5


def _digits(value: float, like: str) -> str:
    """`value` with as many decimals as `like`."""
    return f"{value:.{len(like.partition('.')[2])}f}"


NAMED = {
    "lecture": LECTURE,
    "tensor parallel": StepTime.roofline("h100", "llama-3.1-70b", 8, output_head=True),
    "experts": StepTime.roofline("h200", "deepseek-v3", 8),
    "linear": StepTime.linear(4e-3, 0.12e-3, 0.4e-3),
    "polynomial": StepTime.polynomial(
        16.50142e-3, 1.518344e-5, 4.209989e-10, 8e-3, 2e-5, 1e-8, 1e-9, base_s=1e-4
    ),
    "fixed": StepTime.fixed(0.1, 0.01),
    "table": StepTime.calibrated("gptoss_h200_tp1_vllm", host_overhead_s=0.3e-3),
    "falling table": StepTime.table([0, 3, 7, 1_000], [0.02, 0.01, 0.011, 0.5], per_pair_s=1e-9),
    "maximum": StepTime.max_of(LECTURE, StepTime.linear(0.02, 1e-4), StepTime.calibrated("l8_h100_vllm")),
}
features = st.tuples(
    st.one_of(st.just(0), st.integers(1, 32_768)),
    st.integers(0, 10**10),
    st.one_of(st.just(0), st.integers(1, 1_024)),
    st.integers(0, 10**8),
)


@pytest.mark.parametrize("step_time", NAMED.values(), ids=NAMED)
@given(step=features)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_integers_are_within_half_a_unit_per_use(
    step_time: StepTime, step: tuple[int, int, int, int]
) -> None:
    exact_fs = twin.exact_s(step_time, *step) * twin.FS_PER_S
    integer_fs = int(kernels.step_fs(*step_time.compiled(), 0, len(step_time.pieces), *step))
    assert abs(integer_fs - exact_fs) <= twin.rounding_bound_fs(step_time, *step)


@pytest.mark.parametrize("step_time", NAMED.values(), ids=NAMED)
@given(step=features)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_float_seconds_are_within_their_roundings(
    step_time: StepTime, step: tuple[int, int, int, int]
) -> None:
    """Each term is rounded at most 4 times by itself and 8 times as it is added up, by 2^-53 of it each."""
    magnitude = max(sum(abs(term) for term in twin.terms_s(piece, *step)) for piece in step_time.pieces)
    error = abs(Fraction(step_time.seconds(*step)) - twin.exact_s(step_time, *step))
    assert error <= Fraction(13, 2**53) * magnitude


def test_forms_by_hand() -> None:
    assert StepTime.linear(4.0, 0.12, 0.4).seconds(10, 55, 3, 30) == pytest.approx(4 + 1.2 + 1.2, rel=1e-15)
    assert StepTime.linear(4.0, 0.12, 0.4).seconds(0, 30, 3, 30) == pytest.approx(5.2, rel=1e-15)
    fixed = StepTime.fixed(100.0, 10.0)
    assert [fixed.seconds(5, 15, 0, 0), fixed.seconds(0, 9, 2, 9), fixed.seconds(5, 24, 2, 9)] == [
        100,
        10,
        110,
    ]
    polynomial = StepTime.polynomial(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, base_s=8.0)
    assert polynomial.seconds(2, 10, 0, 100) == 8 + 1 + 4 + 12 + 600 + 70
    assert polynomial.seconds(0, 10, 3, 100) == 8 + 4 + 15 + 600 + 70
    table = StepTime.table([1, 5, 10], [1.0, 9.0, 4.0 + 5.0])
    assert [table.seconds(n, 0, 0, 0) for n in (1, 2, 5, 7, 50)] == [1, 3, 9, 9, 9]
    assert table.seconds(1, 0, 1, 0) == 3
    assert StepTime.table([1], [2.0]).seconds(100, 0, 0, 0) == 2
    assert StepTime.max_of(fixed, StepTime.linear(50.0)).seconds(0, 1, 1, 1) == 50


def test_compiled_layout() -> None:
    step_time = StepTime.max_of(
        StepTime.polynomial(2e-15, 4e-15, 5e-15, 3e-15, 7e-15, 8e-15, 6e-15, base_s=1e-15),
        StepTime.table([1, 3, 5], [10e-15, 20e-15, 21e-15]),
    )
    coef, knot_ptr, knots = step_time.compiled()
    assert coef.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 0], [0] * 9]
    assert knot_ptr.tolist() == [0, 0, 3]
    assert knots.tolist() == [[1, 10, 5], [3, 20, 0], [5, 21, 0]]  # half a unit rounds to even
    for array in (coef, knot_ptr, knots):
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_roofline_options() -> None:
    plain = StepTime.roofline("h100", "llama-3.1-8b")
    assert plain == StepTime.roofline(
        gpu("h100"), model("llama-3.1-8b"), 1, compute_efficiency=0.6854, bandwidth_efficiency=0.9129
    )
    two = StepTime.roofline("h100", "llama-3.1-8b", 2, overhead_s=0.0)
    half = plain.seconds(8_192, 8_192 * 8_193 // 2, 0, 0) - 0.002025
    assert two.seconds(8_192, 8_192 * 8_193 // 2, 0, 0) == pytest.approx(half / 2, rel=1e-12)
    # 16 GPUs hold each of 8 KV heads twice: weights are read 16 times as fast, the KV cache only 8 times.
    wide = StepTime.roofline("h100", "llama-3.1-8b", 16, overhead_s=0.0).pieces[1]
    narrow = StepTime.roofline("h100", "llama-3.1-8b", 1, overhead_s=0.0).pieces[1]
    assert wide.base_s == pytest.approx(narrow.base_s / 16, rel=1e-12)
    assert wide.per_context_token_s == pytest.approx(narrow.per_context_token_s / 8, rel=1e-12)
    # FP8 weights halve the linear products where the hardware can, and nothing else.
    fp8, bf16 = (
        StepTime.roofline(card, net, 8, overhead_s=0.0).pieces[0]
        for card, net in (("h100", "llama-3.1-70b-fp8"), ("h100", "llama-3.1-70b"))
    )
    assert fp8.per_prefill_token_s == pytest.approx(bf16.per_prefill_token_s * 989 / 1979, rel=1e-12)
    assert fp8.per_pair_s == bf16.per_pair_s
    a100 = StepTime.roofline("a100", "llama-3.1-70b-fp8", 8).pieces[0].per_prefill_token_s
    assert a100 == StepTime.roofline("a100", "llama-3.1-70b", 8).pieces[0].per_prefill_token_s


def test_latent_attention_costs_more_when_decoding() -> None:
    net, card = model("deepseek-v3"), gpu("h200")
    arithmetic = StepTime.roofline(card, net, 8, overhead_s=0.0).pieces[0]
    per_flop_s = 1 / (card.compute_efficiency * card.bf16_flop_per_s * 8)
    assert arithmetic.seconds(0, 1_000, 1, 1_000) - arithmetic.seconds(0, 0, 1, 0) == pytest.approx(
        1_000 * net.attention_flop_per_context_tok * per_flop_s, rel=1e-6
    )


@pytest.mark.parametrize("name", [name for name, net in models().items() if net.experts])
def test_expert_reads_follow_their_coverage(name: str) -> None:
    net = model(name)
    reading_s = net.routed_bytes / (gpu("h200").bandwidth_bytes_per_s * gpu("h200").bandwidth_efficiency)
    traffic = StepTime.roofline("h200", net, overhead_s=0.0).pieces[1]
    for tokens in range(1, 5_000):
        coverage = 1 - (1 - net.experts_per_tok / net.experts) ** tokens
        read = (traffic.seconds(tokens, 0, 0, 0) - traffic.base_s) / reading_s
        assert read == pytest.approx(coverage, abs=2e-3)


@pytest.mark.parametrize("name", step_tables())
def test_every_calibrated_table_keeps_the_contract(name: str) -> None:
    source = step_tables()[name]
    assert source.engine.split()[0] == name.rsplit("_", 1)[1]
    assert source.tp == int(next((part[2:] for part in name.split("_") if part.startswith("tp")), 1))
    assert kv_capacity_tok(source.gpu, source.model, source.tp) > 0
    step_time = StepTime.calibrated(name)
    assert step_time == StepTime.of(name) == StepTime.of({"kind": "calibrated", "name": name})
    # A decoded token: its share of the knots, its context at the fitted rate.
    gain_s = step_time.seconds(0, 5_000, 8, 5_000) - step_time.seconds(0, 0, 8, 0)
    assert gain_s == pytest.approx(5 * source.ms_per_context_tok, rel=1e-9)
    # A fresh prompt: pairs at the fitted rate.
    gain_s = step_time.seconds(100, 5_050, 0, 0) - step_time.seconds(100, 0, 0, 0)
    assert gain_s == pytest.approx(5.05 * source.ms_per_pair, rel=1e-6)
    slower = StepTime.calibrated(name, host_overhead_s=0.5e-3)
    assert slower.seconds(8, 36, 8, 36) - step_time.seconds(8, 36, 8, 36) == pytest.approx(0.5e-3, rel=1e-9)
    assert 0.3 < step_time.seconds(0, 8, 8, 8) / _weights_s(source.gpu, source.model, source.tp) < 10


def _weights_s(card: str, net: str, tp: int) -> float:
    return model(net).weight_bytes / (tp * gpu(card).bandwidth_bytes_per_s)


def test_every_pair_of_gpu_and_model_compiles() -> None:
    for card in gpus():
        for net in models():
            StepTime.roofline(card, net, 8).compiled()


def test_a_step_beyond_the_clock_is_refused() -> None:
    second = StepTime.linear(0.0, per_prefill_token_s=1.0)
    assert second.compiled(step_tok=4_611)[0][0, 3] == 10**15
    with pytest.raises(InputError, match=r"a step of 4612 tokens .* takes 4612 s .* below 4612 s"):
        second.compiled(step_tok=4_612)
    with pytest.raises(InputError, match="takes"):
        StepTime.polynomial(per_pair_s=1e-6).compiled()
    StepTime.polynomial(per_pair_s=1e-6).compiled(step_tok=2_048, context_tok=100_000)
    growing = StepTime.table([1, 2], [0.0, 1.0])
    growing.compiled(step_tok=4_612)
    with pytest.raises(InputError, match="takes"):
        growing.compiled(step_tok=4_613)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"kind": "linaer", "base_s": 1},
            r"kind of step_time 'linaer' is not known; did you mean 'linear'\?",
        ),
        ({"base_s": 1}, "kind of step_time None is not known; choose one of: roofline, linear,"),
        (
            {"kind": "linear", "bas_s": 1},
            "unknown parameter 'bas_s' of step_time 'linear'; did you mean 'base_s'",
        ),
        ({"kind": "linear"}, "parameter 'base_s' of step_time 'linear' is missing"),
        (
            {"kind": "linear", "base_s": -1},
            r"base_s of a step time is -1\.0; it must be a number from 0 to 1e\+06",
        ),
        (
            {"kind": "linear", "base_s": float("nan")},
            "base_s = nan is not allowed; it must be a finite number",
        ),
        ({"kind": "linear", "base_s": "4"}, "base_s = '4' is not allowed; it must be a number"),
        (
            {"kind": "roofline", "gpu": "a600", "model": "mistral-7b"},
            "unknown gpu 'a600'; did you mean 'a6000'",
        ),
        ({"kind": "roofline", "gpu": "a6000", "model": "mistral"}, "unknown model 'mistral'; did you mean"),
        (
            {"kind": "roofline", "gpu": "a6000", "model": "mistral-7b", "tp": 0},
            "tp = 0 is not allowed; it must be a whole number from 1 to 1,024",
        ),
        (
            {"kind": "roofline", "gpu": "a6000", "model": "mistral-7b", "compute_efficiency": 1.5},
            "compute_efficiency is 1.5; it must be in",
        ),
        (
            {"kind": "roofline", "gpu": "a6000", "model": "mistral-7b", "overhead_s": -1.0},
            "base_s of a step time is -1.0",
        ),
        ({"kind": "table", "tokens": [1, 2], "seconds": [1.0]}, "2 tokens but 1 seconds"),
        ({"kind": "table", "tokens": [1, 1], "seconds": [1.0, 2.0]}, "must increase strictly"),
        ({"kind": "table", "tokens": [2, 4], "seconds": [1.0, 2.0]}, "start at 2; they must start at 0 or 1"),
        (
            {"kind": "table", "tokens": [1, 2.5], "seconds": [1.0, 2.0]},
            r"tokens\[1\] = 2\.5 is not allowed; it must be a whole number from 0 to",
        ),
        (
            {"kind": "table", "tokens": [1, 2], "seconds": [1.0, -2.0]},
            "seconds of a table of a step time is -2.0",
        ),
        ({"kind": "table", "tokens": [1, 2], "seconds": [2.0, 1.0]}, "end with 2.0, 1.0; they must not fall"),
        ("l8_h100_vlm", "calibrated step time 'l8_h100_vlm' is not known; did you mean"),
        (7, "step_time must be a StepTime, a name or a table with a kind, not 7"),
    ],
)
def test_refusals_name_the_field(spec, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        StepTime.of(spec)
    assert "\n" not in str(caught.value)


def test_settings_make_the_same_as_calls() -> None:
    assert StepTime.of(LECTURE) is LECTURE
    assert StepTime.of({"kind": "roofline", "gpu": "a6000", "model": "mistral-7b"}) == LECTURE
    assert StepTime.of({"kind": "fixed", "prefill_s": 0.1, "decode_s": 0.01}) == NAMED["fixed"]
    table = {
        "kind": "table",
        "tokens": [0, 3, 7, 1_000],
        "seconds": [0.02, 0.01, 0.011, 0.5],
        "per_pair_s": 1e-9,
    }
    assert StepTime.of(table) == NAMED["falling table"]
    for step_time in NAMED.values():
        assert msgspec.json.decode(msgspec.json.encode(step_time), type=StepTime) == step_time
        assert hash(step_time) == hash(StepTime(tuple(step_time.pieces)))


def test_no_pieces_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        StepTime(())
    with pytest.raises(InputError, match="at least one"):
        StepTime.max_of()
    assert Piece().seconds(1, 1, 1, 1) == 0
