"""What a sweep writes stays inside its results folder: names that are no paths, folders that are no links."""

from __future__ import annotations

import re
from pathlib import Path

from fastsim.errors import InputError

MOST_CHARACTERS, MOST_BYTES = 100, 200  # file systems take 255 bytes, an ending and a suffix of ours included
_NAME = re.compile(r"[^\W_](?:[\w .,+=()\[\]@~%-]*[\w)\]+%=-])?")
FOLDERS = ("parts", "tmp", "bad", "figures")


def check_name(name: str, where: str) -> str:
    """The name, if it can be that of a file and of nothing else; else InputError."""
    if len(name) > MOST_CHARACTERS or len(name.encode("utf-8", "replace")) > MOST_BYTES:
        raise InputError(
            f"{where} has {len(name)} characters; it names files, so at most {MOST_CHARACTERS} will do"
        )
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{where} is {name!r}; it names files, so it must begin with a letter or digit and hold only "
            "these, spaces and . , + = ( ) [ ] @ ~ % - _"
        )
    return name


def check_folder(folder: Path) -> None:
    """Refuse a results folder whose own folders are links, through which files would land elsewhere."""
    for path in (folder / name for name in FOLDERS):
        if path.is_symlink():
            raise InputError(f"{path} is a link; results are only written inside their folder")
