"""Kernels of lists whose links stand in a table of a policy's memory: nothing is allocated or moved.

A list is two integers, its first and last entry; an entry is a row of the table with two neighbouring columns
for its links. Entries are written as number + 1, so that a memory of zeros is full of empty lists.
"""

from __future__ import annotations

from fastsim._jit import kernel


@kernel(inline="always")
def first_of(memory, ends):
    """First entry of the list whose ends stand at `ends`, -1 if it is empty."""
    return memory[ends] - 1


@kernel(inline="always")
def last_of(memory, ends):
    """Last entry of the list whose ends stand at `ends`, -1 if it is empty."""
    return memory[ends + 1] - 1


@kernel(inline="always")
def after(memory, table, width, column, entry):
    """Entry after this one, -1 if it is the last."""
    return memory[table + entry * width + column + 1] - 1


@kernel
def append(memory, ends, table, width, column, entry):
    """Put an entry, which must not be in it, at the end of a list.

    Parameters
    ----------
    memory : int64[m]
    ends : int
        Where the list's first and last entry stand.
    table, width, column : int
        Where the table starts, how wide its rows are, and which column has the link to the entry before.
    entry : int
        Row number.
    """
    last = memory[ends + 1]
    memory[table + entry * width + column] = last
    if last == 0:
        memory[ends] = entry + 1
    else:
        memory[table + (last - 1) * width + column + 1] = entry + 1
    memory[ends + 1] = entry + 1


@kernel
def remove(memory, ends, table, width, column, entry):
    """Take an entry out of a list, if it is there, and say whether it was; arguments as for `append`."""
    links = table + entry * width + column
    before = memory[links]
    following = memory[links + 1]
    if before == 0 and memory[ends] != entry + 1:
        return False
    if before == 0:
        memory[ends] = following
    else:
        memory[table + (before - 1) * width + column + 1] = following
    if following == 0:
        memory[ends + 1] = before
    else:
        memory[table + (following - 1) * width + column] = before
    memory[links] = 0
    memory[links + 1] = 0
    return True
