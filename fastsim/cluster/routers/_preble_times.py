"""Kernels of the times that Preble's global scheduler reckons with: prefill and decode of one request alone.

Preble profiles its GPU offline and keeps token counts only. Here the times are the simulated cluster's own
step time, or one of the regressions in Preble's released code (WukLab/preble at 8e7906a), for a model and GPU
each. Seconds of GPU time as whole picoseconds, so that sums over a window have no rounding to accumulate.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._step_time import step_fs

# Values of the parameter `times`, in the order of TIMES.
TIMES = ("cluster", "a6000", "a6000_interpolated", "a100", "llama_70b_a100", "llama_70b_h100")
CLUSTER, A6000, A6000_INTERPOLATED, A100, LLAMA_70B_A100, LLAMA_70B_H100 = 0, 1, 2, 3, 4, 5
_FLOOR_MS = 22.0  # of Mistral-7B's linear layers on an A6000: a step of few tokens


@kernel
def _linear_a6000_ms(tokens, interpolated):
    """Linear layers of Mistral-7B on an A6000.

    The parabola measured from 192 to 383 tokens falls from 244 on and below zero from 361 on: it is kept
    from falling below the floor, or replaced by the line between its neighbours.
    """
    if tokens >= 384:
        return 0.10842571 * tokens + 4.209777
    if tokens < 192:
        return _FLOOR_MS
    if interpolated:
        return _FLOOR_MS + (0.10842571 * 384 + 4.209777 - _FLOOR_MS) * (tokens - 192) / (384 - 192)
    return max(_FLOOR_MS, -118.0 + 1.25 * tokens - 0.00256 * tokens * tokens)


@kernel
def _attention_ms(tokens, context_tok):
    """Reading the KV cache, Mistral-7B; of a long one half, where the tokens computed are few."""
    if context_tok <= 1024:
        return 0.32
    ms = 0.000186 * context_tok + 0.159
    return ms / 2 if tokens <= 1024 else ms


@kernel
def _mistral_a6000_s(tokens, context_tok, interpolated, prefill):
    ms = _linear_a6000_ms(tokens, interpolated) + _attention_ms(tokens, context_tok)
    if prefill and tokens * context_tok > 1048576:
        ms += 0.00113 * tokens + 0.00175 * context_tok + 2.19e-6 * tokens * context_tok
    return ms / 0.9 / 1000


@kernel
def _mistral_a100_s(tokens, context_tok, prefill):
    ms = 10.5 if tokens >= 64 else 8.96
    if tokens >= 256:
        ms = 0.05031337 * tokens + 5.505997
    ms += _attention_ms(tokens, context_tok)
    if prefill and tokens * context_tok >= 1048576:
        ms += (
            0.12386358
            - 7.45358651e-4 * tokens
            + 1.72022673e-3 * context_tok
            + 1.36265841e-6 * tokens * context_tok
        )
    return ms / 0.85 / 1000


@kernel
def regression_s(times, tokens, context_tok, prefill):
    """Time of one request alone by a regression of Preble's code.

    Parameters
    ----------
    times : int
        Which, A6000 to LLAMA_70B_H100.
    tokens, context_tok : int
        Tokens to compute, and all tokens that are there then.
    prefill : bool
        Whether the attention among the tokens computed counts: not for a decode step.

    Returns
    -------
    float
        Seconds.
    """
    if times <= A6000_INTERPOLATED:
        return _mistral_a6000_s(tokens, context_tok, times == A6000_INTERPOLATED, prefill)
    if times == A100:
        return _mistral_a100_s(tokens, context_tok, prefill)
    cross = tokens * context_tok
    if times == LLAMA_70B_A100:
        ms = 28.9313893 + 0.182233431 * tokens + 0.00400365142 * context_tok + 2.55050069e-6 * cross
    else:
        ms = 18.6673072 + 0.0798791064 * tokens + 0.00268531603 * context_tok + 7.44344923e-7 * cross
    return ms / 1000


@kernel
def prefill_ps(view, times, tokens, context_tok):
    """Time to compute `tokens` of a prompt whose tokens before them are cached, all in one step.

    Parameters
    ----------
    view : View
        Needs "step_time".
    times : int
        Place in `TIMES`.
    tokens, context_tok : int
        Tokens to compute; those and the cached ones they attend to.
    """
    if tokens <= 0:
        return 0
    if times != CLUSTER:
        return int(regression_s(times, tokens, context_tok, True) * 1e12)
    cached = context_tok - tokens
    pairs = tokens * cached + tokens * (tokens + 1) // 2
    coef = view.step_coef
    return step_fs(coef, view.step_ptr, view.step_knots, 0, coef.shape[0], tokens, pairs, 0, cached) // 1000


@kernel
def decode_ps(view, times, context_tok):
    """Time of one decode step of one request alone, with so many tokens of context; as `prefill_ps`."""
    if times != CLUSTER:
        return int(regression_s(times, 1, context_tok, False) * 1e12)
    coef = view.step_coef
    fs = step_fs(coef, view.step_ptr, view.step_knots, 0, coef.shape[0], 0, context_tok, 1, context_tok)
    return fs // 1000
