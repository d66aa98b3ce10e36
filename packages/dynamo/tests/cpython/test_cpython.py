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
    ("test_set", "TestSet", "test_weakref"),
    ("test_super", "TestSuper", "test___class___mro"),
    ("test_descr", "ClassPropertiesAndMethods", "test_altmro"),
    ("test_descr", "ClassPropertiesAndMethods", "test_set_dict"),
    ("test_descr", "ClassPropertiesAndMethods", "test_cycle_through_dict"),
    ("test_descr", "ClassPropertiesAndMethods", "test_uninitialized_modules"),
    ("test_itertools", "TestBasicOps", "test_combinations"),
    ("test_itertools", "RegressionTests", "test_issue30347_2"),
    ("test_functools", "TestSingleDispatch", "test_mro_conflicts"),
    ("test_descr", "ClassPropertiesAndMethods", "test_special_method_lookup"),
    ("test_descr", "ClassPropertiesAndMethods", "test_mutable_bases_with_failing_mro"),
    ("test_collections", "TestUserObjects", "test_list_copy"),
    ("test_collections", "TestCollectionABCs", "test_MutableSequence"),
    ("test_collections", "TestCollectionABCs", "test_Sequence"),
    ("test_collections", "TestOneTrickPonyABCs", "test_Iterator"),
    ("test_collections", "TestOneTrickPonyABCs", "test_Collection"),
    ("test_contextlib", "TestAbstractContextManager", "test_structural_subclassing"),
    ("test_contextlib", "TestChdir", "test_reentrant"),
    ("test_contextlib", "ContextManagerTestCase", "test_contextmanager_except_stopiter"),
    ("test_contextlib", "ContextManagerTestCase", "test_contextmanager_traceback"),
    ("test_contextlib", "TestExitStack", "test_exit_exception_explicit_none_context"),
    ("test_dataclasses", "TestStringAnnotations", "test_classvar_module_level_import"),
    ("test_dataclasses", "TestMakeDataclass", "test_non_identifier_field_names"),
    ("test_dataclasses", "TestMakeDataclass", "test_invalid_type_specification"),
    ("test_dataclasses", "TestMakeDataclass", "test_keyword_field_names"),
    ("test_dataclasses", "TestSlots", "test_frozen_pickle"),
    ("test_descr", "ClassPropertiesAndMethods", "test_isinst_isclass"),
    ("test_descr", "ClassPropertiesAndMethods", "test_dynamics"),
    ("test_descr", "MroTest", "test_tp_subclasses_cycle_error_return_path"),
    ("test_descr", "MroTest", "test_reent_set_bases_on_base"),
    ("test_descr", "OperatorsTest", "test_spam_dicts"),
    ("test_dict", "DictTest", "test_iterator_pickling"),
    ("test_dict", "GeneralMappingTests", "test_popitem"),
    ("test_dict", "DictTest", "test_dict_copy_order"),
    ("test_dict", "GeneralMappingTests", "test_update"),
    ("test_dict", "CAPITest", "test_getitem_knownhash"),
    ("test_enum", "TestPlainEnum", "test_invalid_names"),
    ("test_enum", "TestMixedFloat", "test_repr_override"),
    ("test_enum", "TestSpecial", "test_nested_classes_in_enum_with_member"),
    ("test_enum", "TestMixedIntFlag", "test_dir_on_item"),
    ("test_enum", "TestStrEnum", "test_programmatic_function_string_list"),
    ("test_exceptions", "NameErrorTests", "test_name_error_suggestions_from_builtins"),
    ("test_exceptions", "ExceptionTests", "test_notes"),
    ("test_exceptions", "AttributeErrorTests", "test_getattr_suggestions_no_args"),
    ("test_exceptions", "AttributeErrorTests", "test_getattr_suggestions_invalid_args"),
    ("test_exceptions", "ExceptionTests", "testRaising"),
    ("test_functools", "TestPartialC", "test_kw_combinations"),
    ("test_functools", "TestSingleDispatch", "test_mro"),
    ("test_functools", "TestReduceC", "test_iterator_usage"),
    ("test_functools", "TestSingleDispatch", "test_register_genericalias_decorator"),
    ("test_functools", "TestLRUC", "test_lru"),
    ("test_generators", "GeneratorTest", "test_cr_frame_f_back"),
    ("test_generators", "GeneratorTest", "test_copy"),
    ("test_itertools", "TestBasicOps", "test_product_issue_25021"),
    ("test_itertools", "LengthTransparency", "test_repeat"),
    ("test_itertools", "TestBasicOps", "test_cycle_copy_pickle"),
    ("test_itertools", "TestBasicOps", "test_zip_tuple_reuse"),
    ("test_itertools", "SubclassWithKwargsTest", "test_keywords_in_subclass"),
    ("test_list", "ListTest", "test_addmul"),
    ("test_list", "ListTest", "test_set_subscript"),
    ("test_list", "ListTest", "test_iterator_pickle"),
    ("test_list", "ListTest", "test_remove"),
    ("test_list", "ListTest", "test_contains"),
    ("test_ordered_dict", "PurePythonOrderedDictTests", "test_dict_clear"),
    ("test_ordered_dict", "PurePythonOrderedDictSubclassTests", "test_popitem"),
    ("test_ordered_dict", "CPythonOrderedDictSubclassTests", "test_copying"),
    ("test_ordered_dict", "PurePythonOrderedDictSubclassTests", "test_merge_operator"),
    ("test_ordered_dict", "PurePythonOrderedDictTests", "test_clear"),
    ("test_set", "TestSetSubclass", "test_cyclical_repr"),
    ("test_set", "TestSetSubclass", "test_difference_update"),
    ("test_set", "TestMethodsMutating_Set_Set", "test_difference_update_with_mutation"),
    ("test_set", "TestSet", "test_hash"),
    ("test_set", "TestMethodsMutating_Set_Set", "test_difference_with_mutation"),
    ("test_super", "TestSuper", "test___classcell___overwrite"),
    ("test_functools", "TestSingleDispatch", "test_cache_invalidation"),
    ("test_dict", "DictTest", "test_fromkeys"),
    ("test_descr", "ClassPropertiesAndMethods", "test_descrdoc"),
)


@pytest.fixture(autouse=True, scope="module")
def warmed_up():
    # Some tests swap classes of the standard library that capture's own imports would then be made with.
    suite.warm_up()


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
