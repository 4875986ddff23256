"""Kernels of a hash table from non-negative keys to non-negative values: open addressing, linear probing.

Rows are (key + 1, value), 0 marks an empty slot, the number of slots is a power of two. Deletion shifts later
entries back instead of leaving marks, so that a table that lives long stays as fast as a new one.
"""

from __future__ import annotations

from fastsim._jit import kernel


@kernel(inline="always")
def home_of(table, key):
    """Slot where `key` belongs: multiplicative hashing of both halves, which no integer type overflows.

    Each half has an odd factor of its own: folded into one, halves that grow together would share slots.
    """
    mixed = (key & 0x7FFFFFFF) * 1327217885 + ((key >> 31) & 0x7FFFFFFF) * 1779033703
    return (mixed >> 15) & (table.shape[0] - 1)


@kernel(inline="always")
def find_slot(table, key):
    """Slot of `key`, or of the gap where it would go."""
    last = table.shape[0] - 1
    slot = home_of(table, key)
    while table[slot, 0] != 0 and table[slot, 0] != key + 1:
        slot = (slot + 1) & last
    return slot


@kernel(inline="always")
def get(table, key, default):
    """Value of `key`, or `default`."""
    slot = find_slot(table, key)
    return table[slot, 1] if table[slot, 0] != 0 else default


@kernel
def put(table, key, value):
    """Set `key`; returns how many entries that adds (0 or 1). The table must not be full."""
    slot = find_slot(table, key)
    added = 1 if table[slot, 0] == 0 else 0
    table[slot, 0] = key + 1
    table[slot, 1] = value
    return added


@kernel
def drop_slot(table, gap):
    """Remove the entry at slot `gap`."""
    last = table.shape[0] - 1
    slot = (gap + 1) & last
    while table[slot, 0] != 0:
        # An entry may move back into the gap unless its home lies after the gap, cyclically.
        if ((slot - home_of(table, table[slot, 0] - 1)) & last) >= ((slot - gap) & last):
            table[gap, 0] = table[slot, 0]
            table[gap, 1] = table[slot, 1]
            gap = slot
        slot = (slot + 1) & last
    table[gap, 0] = 0


@kernel
def copy_into(table, larger):
    """Put all entries of a table into a larger, empty one."""
    for slot in range(table.shape[0]):
        if table[slot, 0] != 0:
            put(larger, table[slot, 0] - 1, table[slot, 1])
