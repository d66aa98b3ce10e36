"""Every task of the repository. `python -m pip install nox`, then `nox -s demo` or `nox -s tests`; `nox -l` lists all.

torch is large, so it is installed once, into a base environment under `.nox/`; each session has a light environment
of its own layered over it. The packages are installed into that as wheels, the way users get them.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import sys

import nox

ROOT = pathlib.Path(__file__).parent.resolve()
STATE = ROOT / ".nox"
# The one place that pins torch for these sessions; the packages themselves accept 2.11 to 2.14.
TORCH = os.environ.get("LAMINA_NOX_TORCH", "torch==2.13.0")
BASE = [TORCH, "numpy", "hatchling>=1.20", "setuptools", "pytest>=8", "pytest-xdist", "pytest-timeout", "hypothesis",
        "expecttest"]  # torch.testing._internal imports it
if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    BASE.append("ziglang")  # a C compiler as a PyPI package, for the wheels with extensions and for generated code
PACKAGES = ["dynamo", "aot_autograd", "primtorch", "inductor", "compile_api"]
EXTRAS = {
    "demo": ["scikit-learn", "matplotlib"],
    "tests": ["scikit-learn", "matplotlib", "import-linter", "triton==3.8.*; sys_platform == 'linux'"],
    "boundary": ["import-linter"],
    "types": ["mypy"],
    "lint": ["ruff"],
    "bench": ["matplotlib"],
    "build": ["build"],
}
BENCH_MODELS = ["transformers", "timm", "torchvision"]  # what the measured models are made with

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False


def _python(folder: pathlib.Path) -> str:
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def base_environment(session: nox.Session) -> pathlib.Path:
    """Return the environment with torch and the test tools, made on first use."""
    folder = STATE / f"base-{sys.version_info.major}.{sys.version_info.minor}-{_digest(BASE)}"
    if not (folder / "complete").exists():
        session.run(sys.executable, "-m", "venv", "--clear", str(folder), external=True)
        session.run(_python(folder), "-m", "pip", "install", "--quiet", *BASE, external=True)
        (folder / "complete").touch()
    return folder


def site_packages(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder of installed packages of an environment."""
    windows = folder / "Lib" / "site-packages"
    return windows if windows.exists() else next((folder / "lib").glob("python*/site-packages"))


def layered(session: nox.Session, name: str, requirements: list[str], wheels: list[pathlib.Path]) -> str:
    """Return the python of a fresh environment over the base one, with these requirements and wheels installed."""
    base = base_environment(session)
    folder = STATE / name
    stamp = folder / f"complete-{_digest(str(base), requirements)}"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        session.run(_python(base), "-m", "venv", "--without-pip", str(folder), external=True)
        (site_packages(folder) / "base.pth").write_text(f"{site_packages(base)}\n")
        if requirements:
            pip(session, folder, "install", "--quiet", *requirements)
        stamp.touch()
    if wheels:
        pip(session, folder, "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", *map(str, wheels))
    return _python(folder)


def pip(session: nox.Session, folder: pathlib.Path, *arguments: str) -> None:
    """Run the base environment's pip for another environment."""
    base = base_environment(session)
    session.run(_python(base), "-m", "pip", "--python", _python(folder), *arguments, external=True)


def build_wheels(session: nox.Session, packages: list[str] = PACKAGES) -> list[pathlib.Path]:
    """Build the wheels of some packages from the working tree, with the build tools of the base environment."""
    base = base_environment(session)
    made = []
    for package in packages:
        out = STATE / "wheels" / package
        shutil.rmtree(out, ignore_errors=True)
        session.run(_python(base), "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
                    "-w", str(out), str(ROOT / "packages" / package), external=True)
        made += sorted(out.glob("*.whl"))
    return made


def everything(session: nox.Session, name: str, extra: list[str] | None = None) -> str:
    """Return the python of an environment with all five packages."""
    return layered(session, name, [*EXTRAS.get(name, []), *(extra or [])], build_wheels(session))


def siblings_of(package: str) -> list[str]:
    """Return the folders of the sibling packages that a package declares as dependencies, theirs included."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text()
    names = re.findall(r'"lamina-([a-z-]+)[><=]', text)
    found = []
    for name in names:
        sibling = name.replace("-", "_")
        found += [s for s in [*siblings_of(sibling), sibling] if s not in found]
    return found


def run_tests(session: nox.Session, python: str, *arguments: str) -> None:
    """Run pytest with the settings that all tests share: strict, one thread a process, a private cache folder."""
    env = {
        "LAMINA_STRICT": "1",
        "LAMINA_CACHE_DIR": session.create_tmp() + "/cache",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "HF_HUB_OFFLINE": "1",
    }
    session.run(python, "-m", "pytest", *arguments, env=env, external=True)


PARALLEL = ["-n", "2", "--dist", "loadfile", "--timeout", "600"]


@nox.session
def demo(session: nox.Session) -> None:
    """Train a ResNet-18 on handwritten digits, eager and compiled, and generate text; `-- --torch-compile` compares."""
    compiler = [] if shutil.which("g++") or shutil.which("clang++") else ["ziglang"]
    python = everything(session, "demo", compiler)
    session.run(python, str(ROOT / "examples" / "demo.py"), *session.posargs, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of every package, the boundary, end-to-end and documentation tests; `-- --full` for all samples."""
    python = everything(session, "tests")
    folders = [f"packages/{p}/tests" for p in PACKAGES if (ROOT / "packages" / p / "tests").exists()]
    run_tests(session, python, *PARALLEL, *folders, "tests", *session.posargs)


@nox.session
@nox.parametrize("package", [nox.param(p, id=p) for p in PACKAGES])
def alone(session: nox.Session, package: str) -> None:
    """Test one package with nothing but its declared dependencies installed."""
    declared = siblings_of(package)
    shutil.rmtree(STATE / f"alone-{package}", ignore_errors=True)
    python = layered(session, f"alone-{package}", [], build_wheels(session, [*declared, package]))
    session.run(python, str(ROOT / "tests" / "boundary" / "check_alone.py"), package, *declared, external=True)
    run_tests(session, python, *PARALLEL, f"packages/{package}/tests", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style with ruff."""
    python = layered(session, "lint", EXTRAS["lint"], [])
    session.run(python, "-m", "ruff", "check", *(session.posargs or ["."]), external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy: strict on the public surface of each package (see pyproject.toml)."""
    python = everything(session, "types")
    for package in PACKAGES:
        session.run(python, "-m", "mypy", "-p", next((ROOT / "packages" / package / "src").glob("lamina*")).name,
                    *session.posargs, external=True)


@nox.session
def boundary(session: nox.Session) -> None:
    """Check who imports whom, and that no package imports the parts of torch that this project builds anew."""
    python = everything(session, "boundary")
    run_tests(session, python, "tests/boundary", *session.posargs)


@nox.session
def e2e(session: nox.Session) -> None:
    """Run the end-to-end and replay tests."""
    python = everything(session, "tests")
    run_tests(session, python, *PARALLEL, "tests/e2e", "tests/replay", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Execute every code block of the documentation."""
    python = everything(session, "tests")
    run_tests(session, python, *PARALLEL, "tests/docs", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure. `-- --suite timm --small` runs the model suite; without --suite the foundation numbers."""
    suite = "--suite" in session.posargs
    python = everything(session, "bench", BENCH_MODELS)
    script = ["-m", "benchmarks.models.run"] if suite else [str(ROOT / "benchmarks" / "foundation.py")]
    session.run(python, *script, *session.posargs, external=True)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run the tests that need an NVIDIA GPU, with the torch that is installed where nox runs if it has CUDA."""
    python = everything(session, "tests")
    run_tests(session, python, "-m", "gpu", "packages", "tests", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build sdists and wheels of all five packages into dist/."""
    python = layered(session, "build", EXTRAS["build"], [])
    for package in PACKAGES:
        session.run(python, "-m", "build", "--no-isolation", "--outdir", str(ROOT / "dist"),
                    str(ROOT / "packages" / package), external=True)
