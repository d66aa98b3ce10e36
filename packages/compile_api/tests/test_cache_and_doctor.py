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
