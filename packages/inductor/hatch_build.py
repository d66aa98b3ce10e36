"""Builds the C extension of lamina-inductor while a wheel is made. Without a C compiler the wheel is made without it:
the extension is then
compiled into the build cache on first use (`lamina_inductor.runtime.native`)."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig


def c_compiler() -> list[str]:
    """The command of a C compiler: ``CC``, the one this Python was built with, a usual one, or the PyPI package
    ``ziglang``. Raises `RuntimeError` with what to install if there is none.
    """
    for words in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        command = shlex.split(words or "")
        if command and shutil.which(command[0]):
            return command
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no C compiler was found: install gcc or clang, or `pip install ziglang` where wheels are built")


def build(package: str) -> str | None:
    """Compiles ``_native.c`` in ``package`` for the running Python; the library's path, or None when that is not
    possible."""
    target = os.path.join(package, "_native" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    paths = sysconfig.get_paths()
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    scratch = f"{target}.{os.getpid()}.tmp"
    includes = [f"-I{p}" for p in sorted({paths["include"], paths["platinclude"], os.path.join(package, "include")})]
    try:
        compiler = c_compiler()
    except RuntimeError as error:
        print(f"lamina-inductor: built without its extension ({error})", file=sys.stderr)
        return None
    command = [
        *compiler,
        "-std=gnu11",
        "-O2",
        "-g0",
        "-fPIC",
        *includes,
        os.path.join(package, "_native.c"),
        *link,
        "-o",
        scratch,
    ]
    if sys.platform.startswith("linux"):
        command.append("-ldl")
    if "ziglang" in compiler:  # by default it traps on undefined behaviour and wants every symbol found
        command += ["-fno-sanitize=all", "-Wl,-z,undefs"]
    try:
        subprocess.run(command, check=True)
        os.replace(scratch, target)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"lamina-inductor: built without its extension ({error})", file=sys.stderr)
        return None
    finally:
        if os.path.exists(scratch):
            os.unlink(scratch)
    return target


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # imported for `build` alone
    pass
else:

    class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        """Adds the library to the wheel and tags the wheel with the Python and platform that it is for."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            if version == "editable":
                return  # built on first use
            library = build(os.path.join(self.root, "src", "lamina_inductor"))
            if library is not None:
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                build_data["artifacts"].append(f"src/lamina_inductor/{os.path.basename(library)}")  # type: ignore[attr-defined]  # noqa: E501
