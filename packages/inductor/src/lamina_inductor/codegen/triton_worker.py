"""The program of the worker processes: each reads requests (a JSON object a line), compiles, answers with a JSON object
a line, and ends when its socket is closed.

Run as ``python triton_worker.py FOLDER ARCH FD...`` with FOLDER the package's ``codegen`` folder and a socket for each
worker. Triton is imported and has compiled once before the process splits into its workers: imports and the start of
the compiler take longer than most kernels. The package itself is not imported: that would import torch.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import socket
import sys
import types


def main() -> None:
    folder, arch, *numbers = sys.argv[1:]
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != folder]  # its triton.py would hide Triton
    for name, path in (("lamina_inductor", os.path.dirname(folder)), ("lamina_inductor.codegen", folder)):
        package = types.ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    os.dup2(2, 1)  # whatever a compiler prints is not an answer
    from lamina_inductor.codegen.triton_ahead import warm

    with contextlib.suppress(Exception):  # a request will say what is wrong
        warm(int(arch) if arch.isdecimal() else arch)
    sockets = [int(n) for n in numbers]
    for own in sockets[1:]:
        if os.fork() == 0:
            serve(own, sockets)
    serve(sockets[0], sockets)


def serve(own: int, sockets: list[int]) -> None:
    """Answer what comes through socket `own`; the others belong to other workers."""
    for other in sockets:
        if other != own:
            os.close(other)
    from lamina_inductor.codegen.triton_ahead import compile_ahead, describe

    channel = socket.socket(fileno=own)
    requests, answers = channel.makefile("r"), channel.makefile("w")
    modules: dict[str, types.ModuleType] = {}
    for line in requests:
        request = json.loads(line)
        try:
            path = request["path"]
            module = modules.get(path)
            if module is None:
                spec = importlib.util.spec_from_file_location(f"generated_{len(modules)}", path)
                module = modules[path] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            done = compile_ahead(module, request)
            answer = {**describe(done), "image": base64.b64encode(done.asm["cubin"]).decode()}
        except Exception as e:
            answer = {"failed": f"{type(e).__name__}: {e}"}
        answer["id"] = request["id"]
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except OSError:  # nobody waits any more
            break
    os._exit(0)


if __name__ == "__main__":
    main()
