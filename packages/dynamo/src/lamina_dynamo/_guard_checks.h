/* The checks that hang on the nodes of a guard program. */

static int same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static int same_constant(PyObject *a, PyObject *b) {
    if (a == b)
        return 1;
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b))
        return 0;
    if (type == &PyFloat_Type)
        return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    if (type == &PyComplex_Type) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
    }
    if (type == &PyTuple_Type) {
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        if (n != PyTuple_GET_SIZE(b))
            return 0;
        for (Py_ssize_t i = 0; i < n; i++)
            if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i)))
                return 0;
        return 1;
    }
    if (type == &PyBool_Type || a == Py_None)
        return 0;
    PyObject *answer = PyObject_RichCompare(a, b, Py_EQ); /* a tensor as the answer is no yes */
    int equal = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return equal;
}

static int is_in_dict(PyObject *dict, PyObject *key) { /* 0, 1; -1 not a dict or error */
    if (dict == NULL || !PyDict_Check(dict))
        return -1;
    int r = PyDict_Contains(dict, key);
    if (r < 0)
        PyErr_Clear();
    return r;
}

/* Does the dict (not) have the key? A check that held for a version of the dict holds while it has that version. */
static int check_key(Check *check, PyObject *dict, int wanted) {
    if (dict == NULL || !PyDict_Check(dict))
        return -1;
    uint64_t now = DICT_VERSION(dict);
    if (now != 0 && now == (uint64_t)check->number)
        return wanted;
    int r = is_in_dict(dict, check->object);
    if (r == wanted && now == DICT_VERSION(dict))
        check->number = (int64_t)now;
    return r;
}

typedef struct {
    uint64_t version;
    PyObject *hooks[4]; /* borrowed from the instance dict of that version */
} HookDicts;

static int check_no_hooks(Check *check, PyObject *v) {
    PyObject *dict = instance_dict(v);
    HookDicts *known = (HookDicts *)check->extra;
    if (dict == NULL)
        return 0;
    uint64_t now = DICT_VERSION(dict);
    if (now == 0 || now != known->version) {
        for (int i = 0; i < 4; i++)
            known->hooks[i] = PyDict_GetItemWithError(dict, hook_names[i]);
        known->version = now;
    }
    for (int i = 0; i < 4; i++)
        if (known->hooks[i] && PyDict_Check(known->hooks[i]) && PyDict_GET_SIZE(known->hooks[i]) != 0)
            return 0;
    return 1;
}

static int check_tensor(const TensorSpec *spec, PyObject *v) {
    if (Py_TYPE(v) != spec->type)
        return 0;
    uint64_t *impl = TENSOR_IMPL(v);
    if (impl[lib.key_word] != spec->keys || (lib.requires_grad(impl) & 1) != spec->requires_grad)
        return 0;
    void *handle = TENSOR_HANDLE(v);
    int32_t number = 0;
    int64_t dim = 0;
    if (lib.dtype(handle, &number) != 0 || number != spec->dtype)
        return 0;
    if (spec->device_index >= 0 && (lib.device_index(handle, &number) != 0 || number != spec->device_index))
        return 0;
    if (!spec->check_sizes)
        return 1;
    const int64_t *sizes, *strides;
    if (!tensor_numbers(v, &dim, &sizes, &strides) || dim != spec->dim)
        return 0;
    for (int i = 0; i < spec->dim; i++)
        if (spec->numbers[i] >= 0 && sizes[i] != spec->numbers[i])
            return 0;
    if (!spec->check_strides)
        return 1;
    for (int i = 0; i < spec->dim; i++)
        if (spec->numbers[spec->dim + i] >= 0 && strides[i] != spec->numbers[spec->dim + i])
            return 0;
    return 1;
}

static int call_predicate(PyObject *function, PyObject *value) {
    PyObject *r = PyObject_CallOneArg(function, value);
    int ok = r != NULL && PyObject_IsTrue(r) == 1;
    Py_XDECREF(r);
    PyErr_Clear();
    return ok;
}

static int check_state(const Check *check) {
    if (check->extra == NULL) {
        PyObject *r = PyObject_CallNoArgs(check->object);
        int ok = r != NULL && PyObject_IsTrue(r) == 1;
        Py_XDECREF(r);
        PyErr_Clear();
        return ok;
    }
    State now;
    read_state(&now);
    if (memcmp(&now, check->extra, sizeof(State)) != 0)
        return 0;
    /* Function modes are compared one by one only if there are any. */
    if (now.function_stack == 0)
        return 1;
    PyObject *r = PyObject_CallNoArgs(check->object);
    int ok = r != NULL && PyObject_IsTrue(r) == 1;
    Py_XDECREF(r);
    PyErr_Clear();
    return ok;
}

static int run_check(Check *check, PyObject *v) {
    int r;
    switch (check->op) {
    case C_TYPE:
        return (PyObject *)Py_TYPE(v) == check->object;
    case C_ID:
        return v == check->object;
    case C_CONSTANT:
        return same_constant(v, check->object);
    case C_NONE:
        return v == Py_None;
    case C_NOT_NONE:
        return v != Py_None;
    case C_TENSOR:
        return check_tensor((const TensorSpec *)check->extra, v);
    case C_LENGTH: {
        Py_ssize_t n = fast_length(v);
        if (n < 0)
            PyErr_Clear();
        return n == check->number;
    }
    case C_TRUTH:
        r = PyObject_IsTrue(v);
        if (r < 0)
            PyErr_Clear();
        return r == check->number;
    case C_DICT_KEYS: {
        Py_ssize_t pos = 0, i = 0, n = PyTuple_GET_SIZE(check->object);
        PyObject *key, *value;
        if (!PyDict_Check(v) || PyDict_GET_SIZE(v) != n)
            return 0;
        if (check->number && n > 1 && !PyDict_CheckExact(v)) { /* an OrderedDict keeps its order apart from the table that PyDict_Next walks */
            if (!Py_IS_TYPE(v, &PyODict_Type))
                return call_predicate((PyObject *)check->extra, v);
            PyObject *iterator = PyObject_GetIter(v);
            int same = iterator != NULL;
            while (same && (key = PyIter_Next(iterator)) != NULL) {
                same = i < n && same_constant(key, PyTuple_GET_ITEM(check->object, i));
                Py_DECREF(key);
                i++;
            }
            Py_XDECREF(iterator);
            PyErr_Clear();
            return same && i == n;
        }
        while (PyDict_Next(v, &pos, &key, &value)) {
            if (i >= n || !same_constant(key, PyTuple_GET_ITEM(check->object, i)))
                return 0;
            i++;
        }
        return i == n;
    }
    case C_DICT_CONTAINS:
        return check_key(check, v, 1) == 1;
    case C_DICT_NOT_CONTAINS:
        return check_key(check, v, 0) == 0;
    case C_HAS_ATTR:
        return is_in_dict(instance_dict(v), check->object) == 1 || _PyType_Lookup(Py_TYPE(v), check->object) != NULL;
    case C_NO_ATTR:
        return is_in_dict(instance_dict(v), check->object) != 1 && _PyType_Lookup(Py_TYPE(v), check->object) == NULL;
    case C_NO_INSTANCE_ATTR:
        return check_key(check, instance_dict(v), 0) != 1;
    case C_NO_CLASS_ATTR:
        return PyType_Check(v) && _PyType_Lookup((PyTypeObject *)v, check->object) == NULL;
    case C_FUNCTION_CODE: {
        /* object: the code; number: defaults; extra: tuple of names of keyword defaults, or NULL */
        if (!PyFunction_Check(v) || PyFunction_GET_CODE(v) != check->object)
            return 0;
        PyObject *defaults = PyFunction_GET_DEFAULTS(v), *keyword = PyFunction_GET_KW_DEFAULTS(v), *names = (PyObject *)check->extra;
        if ((defaults && PyTuple_Check(defaults) ? PyTuple_GET_SIZE(defaults) : 0) != check->number)
            return 0;
        Py_ssize_t n = names ? PyTuple_GET_SIZE(names) : 0;
        if ((keyword && PyDict_Check(keyword) ? PyDict_GET_SIZE(keyword) : 0) != n)
            return 0;
        for (Py_ssize_t i = 0; i < n; i++)
            if (is_in_dict(keyword, PyTuple_GET_ITEM(names, i)) != 1)
                return 0;
        return 1;
    }
    case C_CLASS_ATTR: /* extra: the name; object: what must be found, NULL: nothing */
        return PyType_Check(v) && _PyType_Lookup((PyTypeObject *)v, (PyObject *)check->extra) == check->object;
    case C_EMPTY_CELL:
        return PyCell_Check(v) && PyCell_GET(v) == NULL;
    case C_NO_HOOKS:
        return check_no_hooks(check, v);
    case C_WEAKREF_ALIVE: {
        PyObject *referent = PyObject_CallNoArgs(v);
        PyErr_Clear();
        r = referent != NULL && referent != Py_None;
        Py_XDECREF(referent);
        return r;
    }
    case C_PYTHON:
        return call_predicate(check->object, v);
    default:
        return 0;
    }
}
