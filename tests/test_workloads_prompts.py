"""Workloads from prompts in every form a program has them in: the same prompts share the same tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.cluster.prefix import compile_prompts
from fastsim.errors import InputError
from fastsim.workloads import Workload, from_prompts

pytestmark = pytest.mark.small

TEXTS = ["You are kind. Hi!", "You are kind. Bye!", "you are kind. Hi!", "You are kind. Hi!", "Yo"]


def at(prompts: Sequence) -> np.ndarray:
    """An arrival a second."""
    return np.arange(len(prompts), dtype=float)


def one_token_each(prompts: Sequence, **options) -> Workload:
    return from_prompts(prompts, at(prompts), [1] * len(prompts), **options)


def common_tok(workload: Workload) -> list[list[int]]:
    """Leading tokens that each two prompts have in common, answers included."""
    ptr, ids = compile_prompts(workload, 1).block_ids
    rows = [ids[a:b].tolist() for a, b in pairwise(ptr.tolist())]
    return [[_agree(a, b) for b in rows] for a in rows]


def _agree(a: Sequence, b: Sequence) -> int:
    least = min(len(a), len(b))
    return next((k for k in range(least) if a[k] != b[k]), least)


def test_texts_share_the_characters_they_begin_with():
    workload = one_token_each(TEXTS)
    assert workload.prompt_tok.tolist() == [17, 18, 17, 17, 2]
    assert common_tok(workload) == [[_agree(a, b) for b in TEXTS] for a in TEXTS]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.uint16)])
def test_token_ids_are_as_good_as_texts(kind):
    tokens = one_token_each([kind([ord(c) for c in text]) for text in TEXTS])
    assert tokens.digest() == one_token_each(TEXTS).digest()


def test_characters_of_any_language_count_as_one():
    texts = ["Größe: 東京 🗼", "Größe: 東西", "\ud800"]  # the last is no character at all, but may turn up
    assert one_token_each(texts).prompt_tok.tolist() == [11, 9, 1]
    assert common_tok(one_token_each(texts))[0][1] == 8


def test_the_largest_token_id_is_kept_apart():
    assert common_tok(one_token_each([[2**32 - 1, 1], [2**32 - 1, 2**31]]))[0] == [2, 1]


def test_hash_ids_stand_for_blocks():
    workload = one_token_each([[7, 8, 9], [7, 8], [7, 3, 9]], hash_block_tok=16)
    assert workload.prompt_tok.tolist() == [48, 32, 48]
    assert common_tok(workload) == [[48, 32, 16], [32, 32, 16], [16, 16, 48]]


def test_a_hash_id_of_a_partial_block_is_another_block():
    workload = one_token_each([[7, 8], [7, 8], [7, 8]], hash_block_tok=16, prompt_tok=[32, 20, 40])
    assert workload.prompt_tok.tolist() == [32, 20, 40]  # whole, its last block short, 8 tokens of its own
    assert common_tok(workload) == [[32, 16, 32], [16, 20, 16], [32, 16, 40]]


def test_hash_ids_may_be_64_bits_wide():
    ids = [2**64 - 1, 2**63, 5]
    prompts = [np.array(ids, np.uint64), np.array(ids[:2], np.uint64), [5]]
    assert common_tok(one_token_each(prompts, hash_block_tok=4))[0] == [12, 8, 0]


def test_segments_may_be_named_by_anything():
    prompts = [
        [("system", 10), (("document", 3), 500), (7, 4)],
        [("system", np.int64(10)), (("document", 3), 500)],
        [["system", 9], [("document", 3), 500]],  # a segment of another length is another segment
    ]
    workload = one_token_each(prompts, shared_segments=[2, 2, 1], session=[4, 4, 5])
    assert workload.prompt_tok.tolist() == [514, 510, 509]
    assert common_tok(workload)[1] == [510, 510, 0]
    assert workload.shared_symbols.tolist() == [2, 2, 1]
    assert workload.session.tolist() == [4, 4, 5]


def test_a_longer_prompt_has_the_rest_to_itself():
    workload = one_token_each(["abc", "abc"], prompt_tok=[5, 5])
    assert common_tok(workload)[0] == [5, 3]


def conversation(form: str) -> tuple[list, list]:
    """Three turns, and a rival that begins as the second does but got another first answer."""
    prompts = ["sys q1", "sys q1 a1 q2", "sys q1 a1 q2 a2 q3", "sys q1 b1 q2"]
    answers = [" a1", " a2", None, None]
    if form == "text":
        return prompts, answers
    if form == "tokens":
        return [[ord(c) for c in p] for p in prompts], [a and [ord(c) for c in a] for a in answers]
    parts = [[("sys", 3), ("q1", 3)]]
    parts += [[*parts[0], ("a1", 3), ("q2", 3)]]
    parts += [[*parts[1], ("a2", 3), ("q3", 3)], [*parts[0], (" ", 1), ("b1", 2), ("q2", 3)]]
    return parts, [("a1", 3), ("a2", 3), None, None]


@pytest.mark.parametrize("form", ["text", "tokens", "segments"])
def test_later_turns_contain_earlier_answers(form):
    prompts, answers = conversation(form)
    workload = from_prompts(prompts, at(prompts), [3, 3, 1, 1], answers=answers)
    assert workload.prompt_tok.tolist() == [6, 12, 18, 12]
    assert (workload.answer >= 0).tolist() == [True, True, False, False]
    common = common_tok(workload)
    assert common[0] == [
        8,
        8,
        8,
        6,
    ]  # of 6 + 3 - 1 computed; the rival's answer begins alike, but only begins
    assert common[1] == [8, 14, 14, 6]
    assert common[2] == [8, 14, 18, 6]


def test_answers_say_how_long_they_are():
    workload = from_prompts(["a", "abcd"], [0, 1], answers=["bc", "efg"])
    assert workload.output_tok.tolist() == [2, 3]
    assert common_tok(workload)[0][1] == 2


def test_of_two_answers_to_one_prompt_each_is_found_by_those_who_go_on_with_it():
    prompts = ["P", "P", "Pab?", "Pabc?", "Pabcd"]
    workload = from_prompts(prompts, at(prompts), [2, 3, 1, 1, 1], answers=["ab", "abc", None, None, None])
    common = common_tok(workload)
    assert common[0][2] == 2  # P and the first of its two answered tokens; the second was never computed
    assert common[1][3:] == [3, 3]
    assert common[3][4] == 4


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_conversations_share_what_their_texts_share(seed):
    rng = random.Random(seed)
    texts: list[str] = []
    whole: list[str] = []
    for i in range(rng.randint(1, 12)):
        texts.append(rng.choice(["", *texts, *whole]) + "".join(rng.choices("ab", k=rng.randint(1, 4))))
        # A first letter of its own: who shares some of an answer shares all of it.
        whole.append(texts[-1] + chr(ord("A") + i) + "x" * rng.randint(0, 2))
    answers = [all_[len(text) :] for text, all_ in zip(texts, whole, strict=True)]
    common = common_tok(from_prompts(texts, at(texts), answers=answers))
    computed = [text[:-1] for text in whole]
    assert common == [[_agree(mine, theirs) for theirs in computed] for mine in computed]


def test_it_can_be_simulated():
    from fastsim import Cluster, simulate

    prompts, answers = conversation("text")
    workload = from_prompts(prompts, 10 * at(prompts), [3, 3, 1, 1], answers=answers)
    result = simulate(workload, Cluster(1, block_tok=1))
    assert result.requests["hit_tok"].to_list() == [0, 8, 14, 6]


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "prompts is empty; it must hold at least one prompt"),
        ("abc", {}, "prompts is a single string; it must be a sequence of prompts"),
        (["a", ""], {}, r"prompts\[1\] is empty"),
        ([[1], []], {}, r"prompts\[1\] is empty"),
        (
            [3],
            {},
            r"prompts\[0\] is 3; it must be a string, token ids, hash ids or \(segment, tokens\) pairs",
        ),
        ([b"abc"], {}, r"prompts\[0\] is b'abc'; it must be a string"),
        ([np.ones((2, 2))], {}, r"prompts\[0\] is array\(\[\[1\., .*; it must be a string"),
        (["a", [1]], {}, r"prompts\[1\] is token ids and prompts\[0\] is a string; all must be of one form"),
        ([[1, 2.5]], {}, r"prompts\[0\] must be a sequence of whole numbers, not \[1, 2.5\]"),
        ([[True]], {}, r"prompts\[0\] must be a sequence of whole numbers"),
        ([("system", 5)], {}, r"prompts\[0\] must be a sequence of whole numbers, not \('system', 5\)"),
        ([[1, [2, 3]]], {}, r"prompts\[0\] must be a sequence of whole numbers"),
        ([[5, -1]], {}, r"prompts\[0\] holds -1; a token id must be 0 to 4294967295"),
        ([[2**32]], {}, r"prompts\[0\] holds 4294967296; a token id must be 0 to 4294967295"),
        ([[("a", 1), "b"]], {}, r"prompts\[0\]\[1\] is 'b'; it must be a pair \(segment, tokens\)"),
        ([[("a", 0)]], {}, r"prompts\[0\]\[0\] is \('a', 0\); its tokens must be a whole number from 1 to"),
        ([[("a", 1.0)]], {}, r"its tokens must be a whole number"),
        ([[([1], 1)]], {}, r"prompts\[0\]\[0\] is \(\[1\], 1\); its segment must be hashable"),
        (["a"], {"arrival_s": [0, 1]}, "arrival_s has 2 entries for 1 prompts"),
        (["a", "b"], {"arrival_s": [1, 0]}, "arrival_s at 0 is 0.0; it must be ascending"),
        (["a"], {"output_tok": [0]}, "output_tok at 0 is 0; it must be 1 to 1,000,000,000"),
        (["a"], {"output_tok": [1, 2]}, "output_tok has 2 entries for 1 prompts"),
        (["a"], {"output_tok": [1.5]}, "output_tok must be a sequence of whole numbers"),
        (["a"], {"output_tok": 3}, "output_tok must be a sequence of whole numbers, not 3"),
        (["a"], {"output_tok": None}, "output_tok is missing; request 0 has no answer to take it from"),
        (["a"], {"answers": ["bc"]}, r"output_tok\[0\] = 1, but answers\[0\] has 2 tokens"),
        (["a"], {"answers": []}, "answers has 0 entries for 1 prompts"),
        (["a"], {"answers": [[1]]}, r"answers\[0\] is \[1\]; as the prompts, it must be a string"),
        (["a"], {"answers": [""]}, r"answers\[0\] is empty"),
        ([[("a", 1)]], {"answers": ["b"]}, r"answers\[0\] is 'b'; it must be a pair"),
        (["ab"], {"prompt_tok": [1]}, "prompt_tok at 0 is 1; it must be at least its symbols' tokens"),
        (
            ["ab"],
            {"hash_block_tok": 4},
            "hash_block_tok is for prompts of hash ids; each of these is a string",
        ),
        ([[1]], {"hash_block_tok": 0}, "hash_block_tok = 0 is not allowed"),
        ([[1]], {"hash_block_tok": 4, "answers": [[2]]}, "answers cannot be given with hash ids"),
        ([[1, 2]], {"hash_block_tok": 4, "prompt_tok": [4]}, r"prompt_tok\[0\] = 4 does not fit the 2 ids"),
        ([[1, 2]], {"hash_block_tok": 4, "prompt_tok": [12]}, r"prompt_tok\[0\] = 12 does not fit the 2 ids"),
        (["ab"], {"shared_segments": [1]}, "shared_segments is for prompts of .*; each of these is a string"),
        ([[("a", 1)]], {"shared_segments": [2]}, "shared_symbols at 0 is 2"),
        (["a"], {"session": ["x"]}, "session must be a sequence of whole numbers"),
    ],
)
def test_what_is_not_allowed_is_named(prompts, options, message):
    usual = {"arrival_s": at(prompts), "output_tok": [1] * len(prompts)}
    with pytest.raises(InputError, match=message):
        from_prompts(prompts, **{**usual, **options})
