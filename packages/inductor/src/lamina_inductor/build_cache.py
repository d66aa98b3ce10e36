"""Compiled units, kept by content: the key is a hash of everything that decides the machine code.

A unit is one shared object. Its key covers the source text, the header, the flags, the instruction-set level and this
package's version,
but not the compiler: a second process finds its units without having one.

An entry is two files, ``<key>.so`` and ``<key>.json`` (size and SHA-256 of the first), each moved into place in one
step, the second one
last. Whatever does not match is treated as absent and built again. A folder that cannot be used (not ours, read only,
full) is replaced by a
temporary one for this process, with one warning.

>>> cache = BuildCache(tmp_path)
>>> [path] = cache.build_all([Unit(source)])
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import stat
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import observe, toolchain
from .__about__ import __version__
from .errors import TargetError

FORMAT = 1


@dataclass(frozen=True)
class Unit:
    """One translation unit. `extra` are additional flags; `salt` joins the key (for units that include more than
    lamina's headers)."""

    source: str
    language: str = "c++"
    extra: tuple[str, ...] = ()
    salt: str = ""

    @functools.cached_property
    def key(self) -> str:
        """Content hash, 40 hex digits."""
        h = hashlib.sha256()
        for part in (
            str(FORMAT),
            __version__,
            self.language,
            toolchain.cpu_level(),
            *toolchain.unit_flags(),
            *self.extra,
            self.salt,
        ):
            h.update(part.encode() + b"\0")
        h.update(_header_digest())
        h.update(self.source.encode())
        return h.hexdigest()[:40]


@functools.cache
def _header_digest() -> bytes:
    h = hashlib.sha256()
    for path in sorted(toolchain.INCLUDE.glob("*.h")):
        h.update(path.read_bytes())
    return h.digest()


def default_root() -> Path:
    """The per-user folder used when none is configured."""
    return Path.home() / ".cache" / "lamina"


class BuildCache:
    """Units in the folder `root` (None: the user's default)."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root else default_root()
        self.hits = 0
        self.builds = 0
        self._lock = threading.Lock()
        self._fallback: Path | None = None
        self._ready = False

    # folder ---------------------------------------------------------------------------------------------------

    def folder(self) -> Path:
        """The folder in use, made on first need, private to the user."""
        if self._fallback is not None:
            return self._fallback
        if self._ready:
            return self.root
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.root.stat()
            if hasattr(os, "getuid"):
                if info.st_uid != os.getuid():
                    raise OSError(f"it belongs to user {info.st_uid}")
                if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    self.root.chmod(0o700)
            self._ready = True
            return self.root
        except OSError as e:
            return self._retreat(e)

    def _retreat(self, why: OSError) -> Path:
        with self._lock:
            if self._fallback is None:
                warnings.warn(
                    f"lamina: the cache folder {self.root} cannot be used ({why}); compiled code is kept for this process only. "  # noqa: E501
                    "Set LAMINA_CACHE_DIR to a folder of yours.",
                    stacklevel=2,
                )
                self._temporary = tempfile.TemporaryDirectory(prefix="lamina-", ignore_cleanup_errors=True)
                self._fallback = Path(self._temporary.name)
        return self._fallback

    def _entry(self, folder: Path, key: str) -> tuple[Path, Path]:
        return folder / key[:2] / f"{key}.so", folder / key[:2] / f"{key}.json"

    # one unit -------------------------------------------------------------------------------------------------

    def find(self, key: str) -> Path | None:
        """The shared object of `key` if a whole entry is there."""
        for folder in dict.fromkeys((self.folder(), self.root)):
            so, note = self._entry(folder, key)
            try:
                want = json.loads(note.read_text())
                data = so.read_bytes()
            except (OSError, ValueError):
                continue
            if (
                isinstance(want, dict)
                and want.get("size") == len(data)
                and want.get("sha256") == hashlib.sha256(data).hexdigest()
            ):
                return so
        return None

    def store(self, key: str, data: bytes) -> Path:
        """Puts `data` in place for `key`, atomically."""
        try:
            return self._store(self.folder(), key, data)
        except OSError as e:
            return self._store(self._retreat(e), key, data)

    def _store(self, folder: Path, key: str, data: bytes) -> Path:
        so, note = self._entry(folder, key)
        so.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(so, data)
        text = json.dumps(
            {
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "level": toolchain.cpu_level(),
                "format": FORMAT,
            }
        )
        write_whole(note, text.encode())
        return so

    def build(self, unit: Unit, configured: str = "") -> Path:
        """The shared object of `unit`, from the cache or compiled now."""
        found = self.find(unit.key)
        if found is not None:
            self.hits += 1
            observe.report("cache hit", f"unit {unit.key[:12]}")
            return found
        start = time.perf_counter()
        handle, name = tempfile.mkstemp(suffix=".so", prefix="lamina-")
        os.close(handle)
        try:
            toolchain.compile_unit(
                unit.source, Path(name), configured=configured, extra=unit.extra, language=unit.language
            )
            data = Path(name).read_bytes()
        finally:
            Path(name).unlink(missing_ok=True)
        self.builds += 1
        seconds = time.perf_counter() - start
        observe.report("cache miss", f"unit {unit.key[:12]}, compiled in {seconds:.2f} s", seconds)
        return self.store(unit.key, data)

    def build_all(
        self,
        units: Sequence[Unit],
        *,
        configured: str = "",
        jobs: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Path]:
        """All `units`, missing ones compiled side by side on `jobs` cores (0: all). `progress(done, total)`
        after each."""
        if len(units) <= 1 or (jobs or _cores()) == 1:
            out = []
            for k, u in enumerate(units):
                out.append(self.build(u, configured))
                if progress is not None:
                    progress(k + 1, len(units))
            return out
        done = 0
        with ThreadPoolExecutor(min(jobs or _cores(), len(units))) as pool:
            futures = [pool.submit(self.build, u, configured) for u in units]
            out = []
            for f in futures:
                out.append(f.result())
                done += 1
                if progress is not None:
                    progress(done, len(units))
        return out

    # moving a cache ---------------------------------------------------------------------------------------------

    def save(self, path: Path | str) -> int:
        """Writes all whole entries into one archive (a zip file); returns how many."""
        count = 0
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", json.dumps(made_here()))
            for folder in dict.fromkeys((self.folder(), self.root)):
                for note in sorted(folder.glob("??/*.json")):
                    key = note.stem
                    so = self.find(key)
                    if so is not None:
                        archive.write(so, f"{key}.so")
                        count += 1
        return count

    def load(self, path: Path | str) -> int:
        """Takes the entries of an archive made by `save`; returns how many. Raises TargetError when it does not
        fit this machine."""
        try:
            with zipfile.ZipFile(path) as archive:
                manifest = json.loads(archive.read("manifest.json"))
                check_made_here(path, manifest)
                count = 0
                for name in archive.namelist():
                    key, _, suffix = name.partition(".")
                    if suffix == "so" and len(key) == 40 and all(c in "0123456789abcdef" for c in key):
                        self.store(key, archive.read(name))
                        count += 1
                return count
        except (OSError, zipfile.BadZipFile, KeyError, ValueError) as e:
            raise TargetError(f"{path} is not a cache archive: {e}", hint="make one with save_cache") from e


def made_here() -> dict[str, Any]:
    """What compiled code of this process fits: goes into a file of it."""
    return {"format": FORMAT, "version": __version__, "level": toolchain.cpu_level(), "platform": _platform()}


def check_made_here(path: Path | str, note: dict[str, Any]) -> None:
    """Raises TargetError unless a file that says `note` of itself, made by `made_here`, fits this machine."""
    for name, mine in made_here().items():
        if note.get(name) != mine:
            what = "CPUs of level" if name == "level" else name
            raise TargetError(
                f"{path} was made for {what} {note.get(name)}, this is {mine}", hint="compile on this machine instead"
            )


def write_whole(path: Path, data: bytes, mode: int = 0o700) -> None:
    """Puts a file in place in one step: others see the old one or the whole new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _platform() -> str:
    import platform

    return f"{sys.platform}-{platform.machine().lower()}"


_loaded: dict[str, ctypes.CDLL] = {}
_loaded_lock = threading.Lock()


def load(path: Path) -> ctypes.CDLL:
    """dlopen, once a process and key."""
    with _loaded_lock:
        found = _loaded.get(path.name)
        if found is None:
            try:
                found = _loaded[path.name] = ctypes.CDLL(str(path))
            except OSError as e:
                raise TargetError(
                    f"the compiled unit {path} cannot be loaded: {e}", hint="remove it from the cache folder"
                ) from e
        return found


@functools.cache
def shared_cache(root: str) -> BuildCache:
    """The process's cache of the folder `root` ("": the default)."""
    return BuildCache(root or None)
