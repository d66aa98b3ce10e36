"""Settings: one frozen dataclass a package, few fields, each of them documented where it is declared."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

PACKAGES = ["lamina_dynamo", "lamina_aot_autograd", "lamina_inductor", "lamina"]


@pytest.mark.parametrize("package", PACKAGES)
def test_settings_keep_to_the_contract(package):
    module = importlib.import_module(f"{package}.config")
    settings = dataclasses.fields(module.Config)
    assert len(settings) <= 15
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(module.Config(), settings[0].name, None)
    for f in settings:
        assert f.metadata["doc"] and "env" in f.metadata
        assert {"key", "in_cache_key", "cache_key"} & set(f.metadata), f"{f.name}: is it in the cache key?"
    names = [f.metadata["env"] for f in settings if f.metadata["env"]]
    assert all(name.startswith("LAMINA_") for name in names) and len(set(names)) == len(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_patched_setting_holds_inside_only(package):
    module = importlib.import_module(f"{package}.config")
    f = next(f for f in dataclasses.fields(module.Config) if f.default is True or f.default is False)
    read = getattr(module, "get", None) or module.current
    before = getattr(read(), f.name)
    with module.patch(**{f.name: not before}):
        assert getattr(read(), f.name) is (not before)
    assert getattr(read(), f.name) is before
