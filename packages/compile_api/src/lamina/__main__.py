"""Command line: `python -m lamina doctor | env | explain SCRIPT [ARGS] | cache show|clear|save|load`."""

from __future__ import annotations

import argparse
import os
import platform
import runpy
import sys
import traceback
from collections.abc import Sequence


def doctor(_arguments: argparse.Namespace) -> int:
    """Check interpreter, packages, compiler, GPU, cache; exit status 1 if something needed is missing."""
    from .doctor import examine, report

    findings = examine()
    print(report(findings))
    return int(any(f.level == "bad" for f in findings))


def env(_arguments: argparse.Namespace) -> int:
    """Print versions and settings for a bug report; nothing that names the user."""
    import importlib.metadata

    import torch

    from . import config
    from .pipeline import PACKAGES

    print(f"python {platform.python_version()} {platform.system()} {platform.machine()}")
    print(f"torch {torch.__version__} cuda {torch.version.cuda} cpu {torch.backends.cpu.get_cpu_capability()}")
    for name in ("lamina", *PACKAGES.values(), "triton", "numpy"):
        try:
            print(name, importlib.metadata.version(name.replace("_", "-")))
        except importlib.metadata.PackageNotFoundError:
            print(name, "not installed")
    print(config.describe().replace(os.path.expanduser("~"), "~"))
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """Run a script with all that it compiles under observation; print the explanation, or write a page."""
    if not os.path.isfile(arguments.script):
        print(f"there is no script {arguments.script}", file=sys.stderr)
        return 2
    if arguments.html is None and "--html" in arguments.rest:
        print("note: --html stands after the script's name and is given to the script", file=sys.stderr)
    from . import events
    from .explanation import explanation_of
    from .recording import Graph, Recording, copy_of

    recording = Recording()

    def listen(event: object) -> None:
        recording.events.append(event)
        if isinstance(event, events.Event) and event.name == "aot_compile started":
            recording.graphs.append(Graph(copy_of(event.payload), example_inputs(event.payload)))

    def example_inputs(gm: object) -> list[object]:
        from .logs import example_inputs_of

        return example_inputs_of(gm)  # type: ignore[arg-type]

    # as `python script.py` has them: its arguments, and its own folder first on the path
    sys.argv = [arguments.script, *arguments.rest]
    sys.path[0] = os.path.dirname(os.path.abspath(arguments.script))
    status = 0
    with events.listening(listen):
        try:
            runpy.run_path(arguments.script, run_name="__main__")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except (Exception, KeyboardInterrupt) as error:
            recording.error = error
            traceback.print_exception(own_frames(error, arguments.script))
    sys.stdout.flush()
    explanation = explanation_of(recording, arguments.script)
    if arguments.html:
        try:
            print(explanation.save(arguments.html))
        except OSError as error:
            print(f"the page cannot be written: {error}", file=sys.stderr)
            return 1
    else:
        print(explanation)
    return int(recording.error is not None) or status


def own_frames(error: BaseException, script: str) -> BaseException:
    """Return an exception of a script without the frames that ran the script."""
    trace, own = error.__traceback__, os.path.abspath(script)
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename) != own:
        trace = trace.tb_next
    return error if trace is None else error.with_traceback(trace)


def cache(arguments: argparse.Namespace) -> int:
    """Show, clear, save or load the folder of compiled kernels."""
    from . import cache as store
    from .errors import LaminaError

    try:
        if arguments.action == "show":
            print(store.describe())
        elif arguments.action == "clear":
            print(f"{store.clear()} files removed")
        elif not arguments.path:
            print(f"cache {arguments.action} needs a path", file=sys.stderr)
            return 2
        elif arguments.action == "save":
            print(f"{store.save_cache(arguments.path)} files saved to {arguments.path}")
        else:
            print(f"{store.load_cache(arguments.path)} files loaded")
    except (LaminaError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lamina", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help=doctor.__doc__).set_defaults(run=doctor)
    commands.add_parser("env", help=env.__doc__).set_defaults(run=env)
    p = commands.add_parser("explain", help=explain.__doc__)
    p.add_argument("--html", metavar="PATH", help="write one self-contained page instead of text")
    p.add_argument("script", help="a Python file; lamina's own options come before it, the script's arguments after it")
    p.add_argument("rest", nargs=argparse.REMAINDER, metavar="arguments", help="what the script gets")
    p.set_defaults(run=explain)
    p = commands.add_parser("cache", help=cache.__doc__)
    p.add_argument("action", choices=["show", "clear", "save", "load"])
    p.add_argument("path", nargs="?")
    p.set_defaults(run=cache)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
