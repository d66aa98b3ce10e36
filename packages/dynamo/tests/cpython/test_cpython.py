"""CPython's own tests, each test function captured: the outcome is that of plain Python.

The default run takes a small fixed sample; `-m slow` (or `--full` where the session offers it) takes every test.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

suite = pytest.importorskip("suite")
pytest.importorskip("test.test_list", reason="this Python comes without its own tests")

#: (module, class, method): quick tests from each family
SAMPLE = (
    ("test_list", "ListTest", "test_basic"),
    ("test_list", "ListTest", "test_extend"),
    ("test_list", "ListTest", "test_slice"),
    ("test_dict", "DictTest", "test_update"),
    ("test_dict", "DictTest", "test_setdefault"),
    ("test_dict", "DictTest", "test_mutating_iteration"),
    ("test_set", "TestSet", "test_update"),
    ("test_set", "TestSet", "test_symmetric_difference"),
    ("test_deque", "TestBasic", "test_maxlen"),
    ("test_deque", "TestBasic", "test_rotate"),
    ("test_defaultdict", "TestDefaultDict", "test_basic"),
    ("test_super", "TestSuper", "test_basics_working"),
    ("test_super", "TestSuper", "test_various___class___pathologies"),
    ("test_with", "ExceptionalTestCase", "testSingleResource"),
    ("test_contextlib", "TestExitStack", "test_callback"),
    ("test_contextlib", "TestSuppress", "test_exact_exception"),
    ("test_patma", "TestPatma", "test_patma_000"),
    ("test_patma", "TestPatma", "test_patma_100"),
)


def find(module, class_name, method):
    for cls, name in suite.tests_of(module):
        if cls.__name__ == class_name and name == method:
            return cls
    pytest.skip(f"this Python's {module} has no {class_name}.{method}")


@pytest.mark.parametrize(("module", "class_name", "method"), SAMPLE, ids=[f"{m}-{n}" for m, _, n in SAMPLE])
def test_sample(module, class_name, method):
    cls = find(module, class_name, method)
    cls.setUpClass()
    difference = suite.compare(cls, method)
    assert difference is None, difference


@pytest.mark.slow
@pytest.mark.parametrize("module", suite.MODULES)
def test_module(module, request):
    if "slow" not in (request.config.option.markexpr or "") and not request.config.getoption("--full", default=False):
        pytest.skip("part of the full run only")
    differences = []
    for cls, name in suite.tests_of(module):
        try:
            cls.setUpClass()
        except Exception:
            continue
        difference = suite.compare(cls, name)
        if difference is not None:
            differences.append(difference)
    assert not differences, "\n".join(differences)
