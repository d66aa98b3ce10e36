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
import shutil
import sys
import tarfile
from typing import Any

import torch

from . import config
from .errors import LaminaError

_STAMP = "lamina_cache.json"


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


def entries() -> list[tuple[pathlib.Path, int]]:
    """Return the files of the cache with their sizes."""
    where = folder()
    return sorted((p, p.stat().st_size) for p in where.rglob("*") if p.is_file()) if where.exists() else []


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
    found = entries()
    shutil.rmtree(folder(), ignore_errors=True)
    return len(found)


def save_cache(path: str | os.PathLike[str]) -> int:
    """Pack the cache into one file for another machine; returns the number of files packed."""
    found = entries()
    with tarfile.open(path, "w:gz") as archive:
        data = json.dumps(stamp()).encode()
        info = tarfile.TarInfo(_STAMP)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
        for file, _ in found:
            archive.add(file, str(file.relative_to(folder())))
    return len(found)


def load_cache(path: str | os.PathLike[str]) -> int:
    """Unpack a cache made by `save_cache`; returns the number of files added.

    LaminaError if it was made for another version, system or processor, or is no such file. Compiled code runs with
    your rights: load only what you trust.
    """
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
            return sum(_unpack(archive, member) for member in archive if member.name != _STAMP)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise LaminaError(f"{path} cannot be read as a packed lamina cache: {error}") from error


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    target = (folder() / member.name).resolve()
    if not member.isfile() or not target.is_relative_to(folder().resolve()) or target.exists():
        return False
    source = archive.extractfile(member)
    if source is None:
        return False
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(source.read())
    partial.chmod(member.mode & 0o700)
    partial.replace(target)
    return True
