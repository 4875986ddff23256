"""Slow, obvious twins of the fast code: plain Python, no arrays, no tricks."""
