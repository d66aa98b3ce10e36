"""The cache of compiled units: hits, damage, bad folders, archives, many processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile

import pytest

from lamina_inductor import build_cache, observe, toolchain
from lamina_inductor.build_cache import BuildCache, Unit
from lamina_inductor.errors import TargetError, TargetUnavailable

SOURCE = 'extern "C" int answer() { return %d; }\n'


def test_second_cache_object_needs_no_compiler(tmp_path):
    unit = Unit(SOURCE % 41)
    first = BuildCache(tmp_path / "c")
    seen = []
    stop = observe.on_event(seen.append)
    path = first.build(unit)
    assert (first.builds, first.hits) == (1, 0)
    assert build_cache.load(path).answer() == 41
    second = BuildCache(tmp_path / "c")
    assert second.build(unit, configured="/no/such/compiler") == path
    assert (second.builds, second.hits) == (0, 1)
    stop()
    assert [e.name for e in seen] == ["cache miss", "cache hit"] and seen[0].seconds > 0
    assert all(unit.key[:12] in e.payload for e in seen)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["truncate", "flip", "no note", "bad note", "other note"])
def test_damaged_entry_is_built_again(tmp_path, damage):
    unit = Unit(SOURCE % 1)
    path = BuildCache(tmp_path).build(unit)
    note = path.with_suffix(".json")
    data = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(data[:100])
    elif damage == "flip":
        path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif damage == "no note":
        note.unlink()
    else:
        note.write_text("{" if damage == "bad note" else "[1]")
    cache = BuildCache(tmp_path)
    assert cache.find(unit.key) is None
    assert cache.build(unit).read_bytes()
    assert cache.builds == 1 and cache.find(unit.key) == path


def test_unusable_folder_warns_once_and_still_works(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = BuildCache(blocker / "sub")
    with pytest.warns(UserWarning, match="LAMINA_CACHE_DIR"):
        path = cache.build(Unit(SOURCE % 5))
    assert build_cache.load(path).answer() == 5
    assert cache.build(Unit(SOURCE % 5)) == path


def test_compiler_error_and_missing_compiler_say_what_happened(tmp_path):
    cache = BuildCache(tmp_path)
    with pytest.raises(TargetError, match="no_such_thing"):
        cache.build(Unit("int f() { return no_such_thing; }"))
    with pytest.raises(TargetUnavailable, match="LAMINA_CXX"):
        cache.build(Unit("int f();"), configured="no-such-compiler-here")
    assert not list(tmp_path.glob("??/*.so"))


def test_units_compile_side_by_side_with_progress(tmp_path):
    seen: list[tuple[int, int]] = []
    cache = BuildCache(tmp_path)
    paths = cache.build_all([Unit(SOURCE % k) for k in (10, 11, 12)], jobs=2, progress=lambda a, b: seen.append((a, b)))
    assert [build_cache.load(p).answer() for p in paths] == [10, 11, 12]
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_concurrent_processes_share_one_folder(tmp_path):
    code = (
        "import sys; from lamina_inductor.build_cache import *; "
        f"c = BuildCache({str(tmp_path)!r}); p = c.build(Unit({SOURCE % 77!r})); print(load(p).answer())"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, text=True) for _ in range(2)
    ]
    assert [p.communicate()[0].strip() for p in running] == ["77", "77"]
    assert not list(tmp_path.glob("??/.part-*"))


def test_archive_moves_to_another_folder_and_refuses_politely(tmp_path):
    source = BuildCache(tmp_path / "a")
    unit = Unit(SOURCE % 9)
    source.build(unit)
    archive = tmp_path / "cache.zip"
    assert source.save(archive) == 1
    other = BuildCache(tmp_path / "b")
    assert other.load(archive) == 1
    assert other.find(unit.key) is not None
    with zipfile.ZipFile(archive) as z:
        manifest = json.loads(z.read("manifest.json"))
    for field, value in (("level", "avx9000"), ("version", "0.0.0"), ("platform", "mars-pdp11")):
        bad = tmp_path / f"{field}.zip"
        with zipfile.ZipFile(bad, "w") as z:
            z.writestr("manifest.json", json.dumps({**manifest, field: value}))
        with pytest.raises(TargetError, match=value):
            other.load(bad)
    (tmp_path / "x.zip").write_text("not a zip")
    with pytest.raises(TargetError, match="not a cache archive"):
        other.load(tmp_path / "x.zip")


def test_levels_are_ordered():
    assert toolchain.can_run_level(toolchain.cpu_level())
    assert not toolchain.can_run_level("avx9000")
