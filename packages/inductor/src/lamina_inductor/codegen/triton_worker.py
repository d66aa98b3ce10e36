"""The program of a worker process: reads requests (a JSON object a line), compiles, answers with a JSON object a line.

Run as ``python triton_worker.py FOLDER`` with FOLDER the package's ``codegen`` folder. The package itself is not
imported: that would import torch.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import sys
import types


def main() -> None:
    folder = sys.argv[1]
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != folder]  # its triton.py would hide Triton
    for name, path in (("lamina_inductor", os.path.dirname(folder)), ("lamina_inductor.codegen", folder)):
        package = types.ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a compiler prints must not get between the answers
    from lamina_inductor.codegen.triton_ahead import compile_ahead, describe, warm

    warm()

    modules: dict[str, types.ModuleType] = {}
    for line in sys.stdin:
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
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
