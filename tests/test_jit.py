"""The contract with numba: kernels are never stale, never fatal, and take structs and policies.

The edges of numba we lean on each have a test here, so that an upgrade that moves one is seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from fastsim import _kernel_cache, _paths
from fastsim._jit import JIT, define, kernel, resolve, struct
from fastsim._sources import Snapshot

PACKAGE = Path(__file__).parents[1] / "fastsim"
needs_jit = pytest.mark.skipif(not JIT, reason="about compiled code")

CONSTANTS = "SCALE = 2\n"
POLICY = """
from fastsim._jit import define, kernel, struct
from fastsim.demo.constants import SCALE

View = struct("DemoView", {"load": "int64[::1]", "params": "float64[::1]"})
define("DemoRoute", "FunctionType(int64(DemoView, int64))")

@kernel
def scaled(x):
    return SCALE * x

@kernel(signature="int64(DemoView, int64)")
def first(view, request):
    return view.load[0] + request
"""
ENGINE = """
import numpy as np
from fastsim._jit import kernel
from fastsim.demo.policy import View, first, scaled

@kernel
def work(x):
    return scaled(x) + 1

@kernel(signature="int64(DemoView, DemoRoute, int64)")
def run(view, route, requests):
    total = 0
    for request in range(requests):
        total += route(view, request)
        view.load[0] += 1
    return total

def simulate():
    return run(View(np.zeros(1, np.int64), np.zeros(1)), first, 4)

def loads():
    kernels = [work, run, first]
    hits, misses = ([getattr(k, name).values() for k in kernels] for name in ("_cache_hits", "_cache_misses"))
    return [sum(map(sum, hits)), sum(map(sum, misses))]
"""
WORK = "from fastsim.demo import engine; print(engine.work(10))"
BOTH = "from fastsim.demo import engine; print(engine.work(10), engine.simulate())"
COUNT = "; print(*engine.loads())"  # how many versions came from the cache, and how many did not


class Copy:
    """A copy of the package with three modules of kernels, to be edited and run in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "site" / "fastsim"
        self.cache = folder / "cache"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, self.package, ignore=ignore)
        self.edit("__init__", "")
        self.edit("constants", CONSTANTS)
        self.edit("policy", POLICY)
        self.edit("engine", ENGINE)

    def edit(self, module: str, text: str) -> None:
        path = self.package / "demo" / f"{module}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def run(self, code: str, **env: str) -> tuple[list[str], str]:
        """Run code on the copy; the lines it printed, and what it said on stderr."""
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "FASTSIM_"))
        }
        places = {"PYTHONPATH": str(self.package.parent), "FASTSIM_CACHE_DIR": str(self.cache)}
        done = subprocess.run(
            [sys.executable, "-B", "-W", "error", "-c", code],
            env=clean | places | env,
            cwd=self.package.parents[1],  # -c puts it first on the path
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    def files(self) -> list[Path]:
        return sorted(self.cache.rglob("*.kernel"))


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


@needs_jit
def test_kernels_structs_and_policies_are_cached_across_processes(copy):
    assert copy.run(BOTH + COUNT) == (["21 12", "0 3"], "")
    assert copy.run(BOTH + COUNT) == (["21 12", "3 0"], "")


@needs_jit
def test_a_callee_has_no_machine_code_of_its_own_until_python_calls_it(copy):
    see = "; from fastsim.demo.policy import scaled; print(len(scaled.overloads)"
    assert copy.run(WORK + see + ")")[0] == ["21", "0"]
    assert copy.run(WORK + see + ", scaled(10), len(scaled.overloads))")[0] == ["21", "0 20 1"]


@needs_jit
def test_callees_are_kept_for_kernels_compiled_later(copy):
    lowered = "import fastsim._callee as c; n = []; f = c.lower; "
    lowered += "c.lower = lambda k, *a: n.append(k.py_func.__name__) or f(k, *a); "
    assert copy.run(lowered + WORK + "; print(n)")[0] == ["21", "['work', 'scaled']"]
    for path in copy.files():
        if path.name.startswith("work"):
            path.unlink()
    assert copy.run(lowered + WORK + "; print(n)")[0] == ["21", "['work']"]


@needs_jit
def test_an_edit_in_another_file_is_never_answered_from_a_stale_cache(copy):
    copy.run(BOTH)
    for module, source, before, after, answer in [
        ("policy", POLICY, "SCALE * x", "SCALE * x + 1000", "1021 12"),  # a callee in another file
        ("policy", POLICY, "view.load[0] + request", "7", "21 28"),  # a policy
        ("constants", CONSTANTS, "SCALE = 2", "SCALE = 3", "31 12"),  # a constant two files away
    ]:
        copy.edit(module, source.replace(before, after))
        assert copy.run(BOTH) == ([answer], "")
        copy.edit(module, source)


@needs_jit
def test_an_edit_after_import_is_neither_read_from_nor_written_to_the_old_cache(copy):
    path = copy.package / "demo" / "constants.py"
    edit_first = f"import fastsim._jit, pathlib; pathlib.Path({str(path)!r}).write_text('SCALE = 50'); "
    copy.run(WORK)
    assert copy.run(edit_first + WORK)[0] == ["501"]
    copy.edit("constants", CONSTANTS)
    assert copy.run(WORK)[0] == ["21"]


@needs_jit
def test_editing_what_a_kernel_cannot_see_costs_nothing(copy):
    copy.run(WORK)
    copy.edit("unrelated", "x = 1\n")
    assert copy.run(WORK + COUNT) == (["21", "1 0"], "")


@needs_jit
def test_the_three_newest_digests_are_kept(copy):
    kept: list[set[str]] = []
    for scale in range(5):
        copy.edit("constants", f"SCALE = {scale}\n")
        copy.run("import fastsim.demo.engine")
        (module,) = copy.cache.glob("kernels/*/fastsim.demo.engine")
        kept.append({digest.name for digest in module.iterdir()})
    assert [len(digests) for digests in kept] == [1, 2, 3, 3, 3]
    newest_of_four = kept[3] - kept[2]
    assert newest_of_four < kept[4]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def one_bit(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@needs_jit
@pytest.mark.parametrize("damage", [half, one_bit])
def test_a_damaged_cache_heals_with_one_line_of_warning(copy, damage):
    copy.run(BOTH)
    for path in copy.files():
        path.write_bytes(damage(path.read_bytes()))
    printed, said = copy.run(BOTH)
    assert printed == ["21 12"]
    assert len(said.splitlines()) == 1
    assert said.startswith("damaged kernel cache (")
    assert copy.run(BOTH + COUNT) == (["21 12", "3 0"], "")


NOWHERE = "/dev/null/nowhere"  # no user, not even root, can make this folder
unix_only = pytest.mark.skipif(sys.platform == "win32", reason="about Unix folders and permissions")


@needs_jit
@unix_only
@pytest.mark.parametrize(
    "env",
    [
        {"HOME": NOWHERE},
        {"HOME": ""},
        {"HOME": NOWHERE, "XDG_CACHE_HOME": "not/absolute"},
        {"HOME": NOWHERE, "NUMBA_CACHE_DIR": NOWHERE},
    ],
)
def test_without_a_home_the_temporary_directory_serves(copy, tmp_path, env):
    place = {"FASTSIM_CACHE_DIR": "", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)} | env
    assert copy.run(WORK, **place) == (["21"], "")
    (private,) = tmp_path.glob("fastsim-*")
    assert list(private.rglob("*.kernel"))
    assert not private.stat().st_mode & 0o077


@needs_jit
@unix_only
def test_without_any_place_kernels_run_uncached_with_one_line_of_warning(copy):
    no_temporary = f"import tempfile; tempfile.tempdir = {NOWHERE!r}; "
    printed, said = copy.run(no_temporary + WORK, FASTSIM_CACHE_DIR="", HOME=NOWHERE, XDG_CACHE_HOME="")
    assert printed == ["21"]
    assert said.splitlines() == [
        "no writable cache folder, so nothing is kept between runs; set FASTSIM_CACHE_DIR to one"
    ]


@needs_jit
@unix_only
def test_a_given_place_that_cannot_be_used_is_named(copy, tmp_path):
    printed, said = copy.run(WORK, FASTSIM_CACHE_DIR=NOWHERE, XDG_CACHE_HOME=str(tmp_path))
    assert printed == ["21"]
    assert len(said.splitlines()) == 1
    assert NOWHERE in said


@needs_jit
def test_a_place_that_vanishes_is_made_again(copy):
    remove_first = f"import shutil, fastsim.demo.engine; shutil.rmtree({str(copy.cache)!r}); "
    assert copy.run(remove_first + WORK) == (["21"], "")
    assert copy.run(WORK + COUNT) == (["21", "1 0"], "")


@needs_jit
def test_processes_that_start_together_on_an_empty_cache_agree(copy):
    results: list[tuple[list[str], str]] = []
    threads = [threading.Thread(target=lambda: results.append(copy.run(WORK))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(["21"], "")] * 2
    assert copy.run(WORK + COUNT) == (["21", "1 0"], "")


def test_uncompiled_the_same_answers(copy):
    assert copy.run(BOTH, NUMBA_DISABLE_JIT="1") == (["21 12"], "")
    assert not copy.files()


@pytest.mark.small
def test_a_file_sees_what_it_mentions_and_no_more(tmp_path):
    sources = {
        "__init__": "from pack.low import a\n",
        "low": "a = 1\n",
        "other": "",
        "room/__init__": "from pack.room.one import b\n",
        "room/one": "import pack.low\n",
        "room/two": "from pack.room.one import (\n    b,\n)\n",
        "user": "from pack import (\n    low,\n    other,\n)\n",
        "taker": "from pack.room import b\n",
        "picker": "from pack.room import one as o  # not two\n",
        "near/relative": "from .beside import c\n",
        "near/beside": "c = 1\n",
        "all": "import pack as p\n",
        "lazy": "from pack import a\n",
    }
    package = tmp_path / "pack"
    for name, text in sources.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (package / "room" / "table.toml").write_text("")
    snapshot = Snapshot(package)
    room = {"room/__init__.py", "room/one.py", "room/two.py", "room/table.toml", "low.py"}
    everything = {path.relative_to(package).as_posix() for path in package.rglob("*.*")}
    for start, seen in {
        "low": {"low.py"},
        "room/two": {"room/two.py", "room/one.py", "room/table.toml", "low.py"},
        "user": {"user.py", "low.py", "other.py"},
        "taker": room | {"taker.py"},
        "picker": {"picker.py", "room/one.py", "room/table.toml", "low.py"},
        "near/relative": {"near/relative.py", "near/beside.py"},
        "lazy": {"lazy.py", "__init__.py", "low.py"},
        "all": everything,
    }.items():
        found = snapshot.seen_from(package / f"{start}.py")
        assert {path.relative_to(package).as_posix() for path in found} == seen, start


@unix_only
def test_a_folder_others_can_write_is_not_trusted(tmp_path):
    fine, shared, link = tmp_path / "fine", tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(tmp_path)
    assert _paths._private(fine)
    assert not _paths._private(shared)
    assert not _paths._private(link)


@unix_only
@pytest.mark.parametrize("variable", ["FASTSIM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_a_cache_that_others_could_have_written_is_no_cache(tmp_path, monkeypatch, caplog, variable):
    """Whichever variable names it, and whichever folder on the way is open."""
    places = {"FASTSIM_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": str(tmp_path / "home")}
    inside = {"FASTSIM_CACHE_DIR": "", "XDG_CACHE_HOME": "fastsim", "HOME": ".cache/fastsim"}[variable]
    for opened in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / inside):
        cache = tmp_path / "a" / "b" / inside
        cache.mkdir(parents=True, exist_ok=True)
        for name, value in {**places, variable: str(tmp_path / "a" / "b")}.items():
            monkeypatch.setenv(name, value)
        assert _paths.cache_root.__wrapped__() == cache
        opened.chmod(0o777)
        caplog.clear()
        assert _paths.cache_root.__wrapped__() is None
        (record,) = caplog.records
        assert f"others can write {opened}" in record.getMessage()
        opened.chmod(0o755)


@unix_only
def test_who_could_have_written(tmp_path, monkeypatch):
    """Another owner, a group: a private one may; a folder with the sticky bit keeps what is in it."""
    place = tmp_path / "place"
    place.mkdir()
    assert _paths.written_by_others(place) == ""
    tmp_path.chmod(0o1777)
    assert _paths.written_by_others(place) == ""
    place.chmod(0o1777)
    assert _paths.written_by_others(place) == f"others can write {place}"
    place.chmod(0o775)
    monkeypatch.setattr(_paths, "_own_group", lambda group_id: True)
    assert _paths.written_by_others(place) == ""
    monkeypatch.setattr(_paths, "_own_group", lambda group_id: False)
    assert _paths.written_by_others(place) == f"others can write {place}"
    place.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() != 0:  # what root owns on the way may be, but the place must be one's own
        assert "belongs to user" in _paths.written_by_others(place)
    else:
        assert _paths.written_by_others(place) == f"{place} belongs to user 0"


@unix_only
def test_folders_of_the_cache_are_private_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        _paths.make_private(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700] * 2


@unix_only
def test_a_kernel_that_others_could_have_written_is_not_unpickled(tmp_path):
    path = tmp_path / "k.kernel"
    _kernel_cache._write(path, [1])
    assert _kernel_cache._read(path) == [1]
    path.chmod(0o666)
    with pytest.raises(PermissionError, match="others can write"):
        _kernel_cache._read(path)


# What follows compiles in this process; kernels outside of the package are not cached.

View = struct("TestView", {"load": "int64[::1]", "params": "float64[:,::1]"})
define("TestRoute", "FunctionType(int64(TestView, int64))")


@kernel(signature="int64(TestView, int64)")
def least(view, request):
    best = 0
    for replica in range(len(view.load)):
        if view.load[replica] < view.load[best]:
            best = replica
    return best


@kernel(signature="int64(TestView, int64)")
def refuses(view, request):
    if request > 1:
        raise ValueError("no replica left")
    return 0


@kernel(signature="float64(TestView, int64)")
def a_float(view, request):
    return 0.5


@kernel(signature="int64(TestView, TestRoute, int64)")
def route_all(view, route, requests):
    last = -1
    for request in range(requests):
        last = route(view, request)
        view.load[last] += 1
    return last


def new_view(replicas: int = 3):
    return View(np.zeros(replicas, dtype=np.int64), np.zeros((2, 2)))


@pytest.mark.small
def test_a_kernel_takes_a_struct_and_a_policy():
    view = new_view()
    assert route_all(view, least, 7) == 0
    assert view.load.tolist() == [3, 2, 2]


@pytest.mark.small
def test_an_exception_in_a_policy_reaches_the_caller():
    with pytest.raises(ValueError, match="no replica left"):
        route_all(new_view(), refuses, 3)


@needs_jit
def test_a_policy_of_the_wrong_type_is_refused():
    with pytest.raises(TypeError, match=r"mismatch of return type: float64 vs int64|route"):
        route_all(new_view(), a_float, 3)


@needs_jit
@pytest.mark.parametrize("first_use", [True, False])
def test_a_wrong_argument_is_named(first_use):
    @kernel(signature="int64(int64[::1], int64)")
    def total(values, start):
        return start + values.sum()

    if not first_use:
        assert total(np.arange(3), 1) == 4
    with pytest.raises(TypeError, match=r"total: argument values must be .*int64.* not .*float64"):
        total(np.zeros(3), 1)
    read_only = np.arange(3)
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match="total: argument values must be"):
        total(read_only, 1)


@needs_jit
def test_an_explicit_signature_compiles_once_at_first_use():
    @kernel(signature="float64(float64)")
    def double(x):
        return 2 * x

    assert double.signatures == []
    assert double(1) == 2.0
    assert double(np.float32(1.5)) == 3.0
    assert len(double.signatures) == 1


@needs_jit
def test_threads_may_meet_at_first_use():
    @kernel(signature="int64(int64)")
    def square(x):
        return x * x

    barrier = threading.Barrier(4)
    results: list[int] = []

    def work() -> None:
        barrier.wait()
        results.append(square(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [9] * 4


@needs_jit
def test_a_struct_is_neither_copied_nor_leaked():
    load, params = np.zeros(2, dtype=np.int64), np.zeros((1, 1))
    before = sys.getrefcount(load)
    view = View(load, params=params)
    assert view.load is load
    assert view.params is params
    for _ in range(10):
        route_all(view, least, 1)
    assert load.tolist() == [5, 5]
    del view
    assert sys.getrefcount(load) == before


@pytest.mark.small
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"load": np.zeros(2, dtype=np.int64)}, "TestView takes exactly these fields: load, params"),
        ({"load": np.zeros(2), "params": np.zeros((1, 1))}, "TestView.load must be .* not float64"),
        ({"load": [0], "params": np.zeros((1, 1))}, "TestView.load must be a NumPy array, not list"),
        ({"load": np.zeros(2, dtype=np.int64), "params": np.zeros(2)}, "TestView.params must be .* 1 dim"),
        (
            {"load": np.zeros(4, dtype=np.int64)[::2], "params": np.zeros((1, 1))},
            "TestView.load must be C-cont",
        ),
    ],
)
def test_a_struct_refuses_what_kernels_could_not_read(arrays, message):
    with pytest.raises(TypeError, match=message):
        View(**arrays)


@pytest.mark.small
def test_names_in_signatures():
    assert struct("TestView", {"load": "int64[::1]", "params": "float64[:,::1]"})._numba_type_ == resolve(
        "TestView"
    )
    with pytest.raises(ValueError, match="two different types are both named 'TestView'"):
        struct("TestView", {"load": "int64[::1]"})
    with pytest.raises(TypeError, match="name 'TestVew' is not defined"):
        resolve("int64(TestVew)")
    with pytest.raises(TypeError, match=r"TestScalar.x must be a C-contiguous array type, not int64"):
        struct("TestScalar", {"x": "int64"})


@pytest.mark.small
def test_inline_takes_one_value():
    with pytest.raises(ValueError, match="inline must be None or 'always', not 'maybe'"):
        kernel(inline="maybe")


@needs_jit
def test_a_kernel_that_allocates_must_say_so():
    def ones(n):
        values = np.empty(n)
        for i in range(n):
            values[i] = 1
        return values

    assert kernel(allocates=True)(ones)(3).tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match=r"ones makes an array, so it needs @kernel\(allocates=True\)"):
        kernel(ones)(3)
