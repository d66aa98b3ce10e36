"""Builds the C extension of lamina-inductor while a wheel is made. Without a C compiler the wheel is made without it:
the extension is then
compiled into the build cache on first use (`lamina_inductor.runtime.native`)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig


def build(package: str) -> str | None:
    """Compiles ``_native.c`` in ``package`` for the running Python; the library's path, or None when that is not
    possible."""
    target = os.path.join(package, "_native" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    paths = sysconfig.get_paths()
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    scratch = f"{target}.{os.getpid()}.tmp"
    includes = [f"-I{p}" for p in sorted({paths["include"], paths["platinclude"], os.path.join(package, "include")})]
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
