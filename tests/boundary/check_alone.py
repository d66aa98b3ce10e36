"""Run in a package's own environment: the package imports, and the siblings that it does not declare cannot be.

    python check_alone.py PACKAGE [DECLARED_SIBLING ...]
"""

import importlib
import importlib.util
import sys

IMPORT_NAMES = {
    "dynamo": "lamina_dynamo",
    "aot_autograd": "lamina_aot_autograd",
    "primtorch": "lamina_primtorch",
    "inductor": "lamina_inductor",
    "compile_api": "lamina",
}


def main(package: str, *declared: str) -> None:
    importlib.import_module(IMPORT_NAMES[package])
    for sibling, name in IMPORT_NAMES.items():
        if sibling not in (package, *declared) and importlib.util.find_spec(name) is not None:
            raise SystemExit(f"{name} can be imported beside {package}, which does not declare it")
    print(f"{package}: alone, with {', '.join(declared) or 'no siblings'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
