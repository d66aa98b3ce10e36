"""The folder of compiled kernels: show, clear, and move it to another machine.

The folder belongs to inductor (`lamina_inductor`), which decides the layout and checks every entry; here its files are
listed, removed, packed and unpacked. A packed cache holds what it was made with, and is refused where that differs.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import tarfile
import zlib
from typing import Any

import torch

from . import config
from .errors import LaminaError, OptionError

_STAMP = "lamina_cache.json"
_OWN = re.compile("[0-9a-f]{2}|triton")


def folder() -> pathlib.Path:
    """Return the cache folder in force; it may not exist yet."""
    if config.current().cache_dir:
        return pathlib.Path(config.current().cache_dir)
    try:
        from lamina_inductor import build_cache

        for name in ("default_root", "cache_dir", "cache_folder"):
            found = getattr(build_cache, name, None)
            if found is not None:
                return pathlib.Path(found() if callable(found) else found)
    except ImportError:
        pass
    return config.user_cache_folder()


def stamp() -> dict[str, Any]:
    """Return what a packed cache is bound to: versions, system and processor capabilities."""
    from . import __version__

    return {
        "lamina": __version__,
        "torch": torch.__version__.split("+")[0],
        "system": sys.platform,
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_capability() if torch.cuda.is_available() else None,
    }


def own_folders() -> list[pathlib.Path]:
    """Return the folders inside the cache folder that are the cache's: whatever else lies there is none of it."""
    where = folder()
    return sorted(p for p in where.iterdir() if p.is_dir() and _OWN.fullmatch(p.name)) if where.is_dir() else []


def entries() -> list[tuple[pathlib.Path, int]]:
    """Return the files of the cache with their sizes; those that a process is still writing begin with a dot."""
    found = []
    for path in sorted(p for own in own_folders() for p in own.rglob("*")):
        try:
            if path.is_file() and not path.name.startswith("."):
                found.append((path, path.stat().st_size))
        except OSError:  # gone meanwhile
            continue
    return found


def describe() -> str:
    """Return folder, number of files and size as text."""
    found = entries()
    total = sum(size for _, size in found)
    kinds: dict[str, int] = {}
    for path, _ in found:
        kinds[path.suffix or path.name] = kinds.get(path.suffix or path.name, 0) + 1
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return f"{folder()}: {len(found)} files, {total / 1e6:.1f} MB" + (f" ({listed})" if listed else "")


def clear() -> int:
    """Remove every entry; returns the number of files removed. Compiled programs that are loaded go on working."""
    before = len(entries())
    for own in own_folders():
        shutil.rmtree(own, ignore_errors=True)
    return before - len(entries())


def save_cache(path: str | os.PathLike[str]) -> int:
    """Pack the cache into one file for another machine; returns the number of files packed.

    The file appears when it is whole. LaminaError if it cannot be written, OptionError if `path` is no path.
    """
    _check_path("save_cache", path)
    target = pathlib.Path(path)
    if target.is_dir():
        raise LaminaError(f"{path} is a folder, not a file to pack the cache into", hint=f"{target / 'kernels.tgz'}")
    where, count = folder(), 0
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w:gz") as archive:
            data = json.dumps(stamp()).encode()
            info = tarfile.TarInfo(_STAMP)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            for file, _ in entries():
                try:
                    archive.add(file, str(file.relative_to(where)))
                except FileNotFoundError:  # another process cleared or renewed it meanwhile
                    continue
                count += 1
        partial.replace(target)
    except OSError as error:
        raise LaminaError(f"the cache cannot be packed into {path}: {error}",
                          hint="name a file in a folder that exists and has room") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _check_path(name: str, path: Any) -> None:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise OptionError(f"lamina.{name} takes the path of a file, not {path!r}")


def load_cache(path: str | os.PathLike[str]) -> int:
    """Unpack a cache made by `save_cache`; returns the number of files added. What is there already stays.

    LaminaError if it was made for another version, system or processor, or is no such file, or is damaged, or the cache
    folder cannot be written to; then nothing was added. Compiled code runs with your rights: load only what you trust.
    """
    _check_path("load_cache", path)
    if not os.path.exists(path):
        raise LaminaError(f"there is no file {os.fspath(path)}", hint="lamina.save_cache makes one")
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            if first is None or first.name != _STAMP:
                raise LaminaError(f"{path} is not a packed lamina cache")
            made_with = json.load(archive.extractfile(first))  # type: ignore[arg-type]
            here = json.loads(json.dumps(stamp()))
            other = {k: (v, here.get(k)) for k, v in made_with.items() if here.get(k) != v}
            if other:
                listed = "; ".join(f"{k}: {a} there, {b} here" for k, (a, b) in other.items())
                raise LaminaError(f"this cache was made on another kind of machine ({listed}); nothing was loaded",
                                  hint="compile here instead: results are the same")
            files = [(m.name, m.mode & 0o700, archive.extractfile(m).read())  # type: ignore[union-attr]
                     for m in archive if m.isfile() and m.name != _STAMP]
    except (tarfile.TarError, EOFError, OSError, ValueError, AttributeError, zlib.error) as error:
        raise LaminaError(f"{path} cannot be read as a packed lamina cache: {error}",
                          hint="pack it again with lamina.save_cache") from error
    added: list[pathlib.Path] = []
    try:
        for name, mode, data in files:
            target = (folder() / name).resolve()
            if target.is_relative_to(folder().resolve()) and not target.exists():
                _put(target, mode, data)
                added.append(target)
    except OSError as error:
        for target in added:
            target.unlink(missing_ok=True)
        raise LaminaError(f"the cache folder {folder()} cannot be written to: {error}",
                          hint="set LAMINA_CACHE_DIR to a folder of yours") from error
    return len(added)


def _put(target: pathlib.Path, mode: int, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.chmod(mode)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
