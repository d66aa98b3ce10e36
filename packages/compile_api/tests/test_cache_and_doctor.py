import sys

import pytest

import lamina
from lamina import __main__ as command
from lamina import cache, doctor, errors


@pytest.fixture
def store(tmp_path):
    with lamina.config.patch(cache_dir=str(tmp_path / "cache")):
        (tmp_path / "cache" / "ab").mkdir(parents=True)
        (tmp_path / "cache" / "ab" / "kernel.so").write_bytes(b"code")
        yield tmp_path


def test_show_save_clear_load(store, capsys):
    packed = str(store / "packed")
    assert command.main(["cache", "show"]) == 0 and "1 files" in capsys.readouterr().out
    assert lamina.save_cache(packed) == 1
    assert cache.clear() == 1 and cache.entries() == []
    assert lamina.load_cache(packed) == 1
    assert (store / "cache" / "ab" / "kernel.so").read_bytes() == b"code"
    assert lamina.load_cache(packed) == 0


def test_a_cache_of_another_machine_is_refused_and_named(store, monkeypatch, capsys):
    packed = str(store / "packed")
    lamina.save_cache(packed)
    here = cache.stamp()
    monkeypatch.setattr(cache, "stamp", lambda: {**here, "cpu": "OTHER"})
    with pytest.raises(errors.LaminaError, match="OTHER here"):
        lamina.load_cache(packed)
    assert command.main(["cache", "load", packed]) == 1 and "OTHER" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b broken"])
def test_a_file_that_is_no_cache_is_refused(store, content):
    (store / "bad").write_bytes(content)
    with pytest.raises(errors.LaminaError, match="bad"):
        lamina.load_cache(store / "bad")


def test_doctor_reports_every_check_and_survives_a_failing_one(monkeypatch, capsys):
    def breaks():
        raise OSError("planted")

    monkeypatch.setattr(doctor, "CHECKS", [doctor._interpreter, doctor._vector, doctor._cache_folder, breaks])
    assert command.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "CPython" in out and "planted" in out and "1 of 4 checks failed" in out


def test_env_prints_versions_and_settings(capsys):
    assert command.main(["env"]) == 0
    out = capsys.readouterr().out
    assert "torch" in out and "LAMINA_STRICT" in out and "lamina-dynamo" not in out.splitlines()[0]


def test_only_what_is_the_caches_own_is_listed_removed_and_packed(store):
    diary, half = store / "cache" / "diary.txt", store / "cache" / "ab" / ".part-x"
    diary.write_text("mine")
    half.write_bytes(b"half")
    packed = store / "packed"
    assert len(cache.entries()) == 1 and lamina.save_cache(packed) == 1 and cache.clear() == 1
    assert diary.read_text() == "mine" and not half.exists() and not (store / "cache" / "ab").exists()


def test_a_cache_that_cannot_be_written_leaves_nothing(store, monkeypatch):
    with pytest.raises(errors.LaminaError, match="cannot be packed"):
        lamina.save_cache(store / "missing" / "packed")
    with pytest.raises(errors.LaminaError, match="is a folder"):
        lamina.save_cache(store)
    (store / "cache" / "cd").mkdir()
    (store / "cache" / "cd" / "other.so").write_bytes(b"more code")
    packed = store / "packed"
    lamina.save_cache(packed)
    before = packed.read_bytes()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.tarfile.TarFile, "add", full)
    with pytest.raises(errors.LaminaError, match="No space left"):
        lamina.save_cache(packed)
    assert packed.read_bytes() == before and not list(store.glob(".packed*"))

    cache.clear()
    put, calls = cache._put, []

    def half(target, mode, data):
        calls.append(target)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        put(target, mode, data)

    monkeypatch.setattr(cache, "_put", half)
    with pytest.raises(errors.LaminaError, match="No space left"):
        lamina.load_cache(packed)
    assert len(calls) == 2 and cache.entries() == []


def test_a_damaged_archive_adds_nothing(store):
    packed = store / "packed"
    (store / "cache" / "ab" / "kernel.so").write_bytes(bytes(range(256)) * 2000)
    lamina.save_cache(packed)
    cache.clear()
    data = packed.read_bytes()
    for broken in (data[: len(data) // 2], data[:300] + b"\0" * 50 + data[350:]):
        packed.write_bytes(broken)
        with pytest.raises(errors.LaminaError, match="packed"):
            lamina.load_cache(packed)
        assert cache.entries() == []


def test_explain_runs_a_script_as_python_does(tmp_path, capsys):
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom beside import VALUE\nprint('value', VALUE, sys.argv[1:])\nsys.exit(3)\n")
    path, argv = list(sys.path), list(sys.argv)
    try:
        assert command.main(["explain", str(script), "--flag", "x"]) == 3
        assert "value 7 ['--flag', 'x']" in capsys.readouterr().out
        script.write_text("def f():\n    raise KeyError('mine')\n\n\nf()\n")
        assert command.main(["explain", str(script)]) == 1
    finally:
        sys.path[:], sys.argv[:] = path, argv
    said = capsys.readouterr()
    assert "KeyError: 'mine'" in said.err and 'script.py", line 2' in said.err and "runpy" not in said.err
    assert "it raised KeyError" in said.out
