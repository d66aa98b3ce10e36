"""Builds the C extension of lamina-dynamo: as a hatchling build hook for wheels, and in place next to the sources
when run as a script.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig

SOURCES = ("_eval_frame.c", "_guard_program.c", "_resume.c")
NAME = "_eval_frame"


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


def build(package: str, target_dir: str) -> str:
    """Compile the extension for the running Python from the sources in ``package``; the path of the library made in
    ``target_dir``.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    target = os.path.join(target_dir, NAME + suffix)
    inputs = [os.path.join(package, name) for name in os.listdir(package) if name in SOURCES or name.endswith(".h")]
    if os.path.exists(target) and all(
        os.path.getmtime(i) <= os.path.getmtime(target) for i in [*inputs, os.path.abspath(__file__)]
    ):
        return target
    compiler = c_compiler()
    paths = sysconfig.get_paths()
    includes = sorted({paths["include"], paths["platinclude"]})
    flags = [
        "-O2",
        "-g0",
        "-DNDEBUG",
        "-fPIC",
        "-std=gnu11",
        "-fvisibility=hidden",
        "-fno-strict-aliasing",
        "-Wno-missing-field-initializers",
    ]
    link = ["-shared"]
    if sys.platform == "darwin":
        link = ["-bundle", "-undefined", "dynamic_lookup"]
    scratch = f"{target}.{os.getpid()}.tmp"
    command = [
        *compiler,
        *flags,
        *[f"-I{i}" for i in includes],
        *[os.path.join(package, s) for s in SOURCES],
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
        os.replace(scratch, target)  # an interpreter that has the old one mapped keeps it
    finally:
        if os.path.exists(scratch):
            os.unlink(scratch)
    return target


def _package() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "lamina_dynamo")


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    pass
else:

    class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        """Adds the library to the wheel and tags the wheel with the Python and platform that it is for."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            package = os.path.join(self.root, "src", "lamina_dynamo")
            if version == "editable":
                build(package, package)
                return
            target = build(package, self.directory_for_build())
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"] = {target: f"lamina_dynamo/{os.path.basename(target)}"}

        def directory_for_build(self) -> str:
            folder = os.path.join(self.directory, "native")
            os.makedirs(folder, exist_ok=True)
            return folder


if __name__ == "__main__":
    print(build(_package(), _package()))
