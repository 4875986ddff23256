"""A policy of one's own, for `own-policy.toml`: cache hits count by the tokens they save, not their share."""

import msgspec

from fastsim import router
from fastsim.cluster.routers.view import least, match_tok, nearest


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy can be told."""

    at_least_tok: float = 2_000.0


@router("long_match", needs=["match"], params=Tokens)
def long_match(view, request):
    """The longest match if it saves so many tokens, else the least loaded replica."""
    return nearest(view) if match_tok(view) >= view.params[0] else least(view.load)
