/* The access steps of a guard program: from a value to its attribute, item, cell, type, ... */

static PyObject *instance_dict(PyObject *value) { /* borrowed, or NULL without exception */
    PyObject **slot = _PyObject_GetDictPtr(value);
    return slot ? *slot : NULL;
}

/* Up to 3.12 every change gives a dict a version that no dict had before. */
#if PY_VERSION_HEX < 0x030d0000
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define DICT_VERSION(d) (((PyDictObject *)(d))->ma_version_tag)
#else
#define DICT_VERSION(d) ((uint64_t)0)
#endif

/* The value under a key, borrowed, or NULL (exception possible). The second time at the price of reading the version. */
static PyObject *dict_find(PyObject *dict, PyObject *key, uint64_t *version, PyObject **found) {
    if (dict == NULL || !PyDict_Check(dict))
        return NULL;
    uint64_t now = DICT_VERSION(dict);
    if (now != 0 && now == *version)
        return *found;
    PyObject *v = PyDict_GetItemWithError(dict, key);
    if (v != NULL && now == DICT_VERSION(dict)) { /* the lookup may have run an __eq__ */
        *version = now;
        *found = v;
    }
    return v;
}

static PyObject *dict_find_new(PyObject *dict, PyObject *key, uint64_t *version, PyObject **found) {
    PyObject *v = dict_find(dict, key, version, found);
    Py_XINCREF(v);
    return v;
}

static PyObject *dict_get(PyObject *dict, PyObject *key) { /* new reference or NULL, exception possible */
    if (dict == NULL || !PyDict_Check(dict))
        return NULL;
    PyObject *v = PyDict_GetItemWithError(dict, key);
    Py_XINCREF(v);
    return v;
}

/* getattr that runs no code of the user's class where the generic lookup finds the attribute. */
static PyObject *get_attribute(PyObject *value, PyObject *name) {
    PyTypeObject *type = Py_TYPE(value);
    if (type->tp_getattro != PyObject_GenericGetAttr && _PyType_Lookup(type, str_getattribute) == object_getattribute) {
        PyObject *found = _PyObject_GenericGetAttrWithDict(value, name, NULL, 1);
        if (found != NULL || PyErr_Occurred())
            return found;
    }
    return PyObject_GetAttr(value, name);
}

static Py_ssize_t fast_length(PyObject *v) {
    if (PyTuple_Check(v) || PyList_Check(v))
        return Py_SIZE(v);
    if (PyDict_Check(v))
        return PyDict_GET_SIZE(v);
    if (PyAnySet_Check(v))
        return PySet_GET_SIZE(v);
    return PyObject_Size(v);
}

static PyObject *access_step(Node *node, PyObject *base, const Inputs *in) { /* new reference or NULL */
    PyObject *v = NULL, *key, *value;
    switch (node->op) {
    case A_LOCAL:
        v = node->number < in->nargs ? in->args[node->number] : NULL;
        break;
    case A_FREE:
    case A_FRAME_CELL:
        if (in->closure == NULL || node->number >= PyTuple_GET_SIZE(in->closure))
            return NULL;
        v = PyTuple_GET_ITEM(in->closure, node->number);
        if (node->op == A_FREE)
            v = PyCell_GET(v);
        break;
    case A_GLOBAL:
        return dict_find_new(in->globals, node->object, &node->version, &node->found);
    case A_GLOBALS:
        v = in->globals;
        break;
    case A_BUILTIN:
        return dict_get(in->builtins, node->object);
    case A_SYS_MODULE:
        return dict_get(PyImport_GetModuleDict(), node->object);
    case A_CONST:
        v = node->object;
        break;
    case A_ATTR:
        return get_attribute(base, node->object);
    case A_SELF_DICT:
        v = instance_dict(base);
        break;
    case A_INSTANCE_ATTR:
        return dict_find_new(instance_dict(base), node->object, &node->version, &node->found);
    case A_MODULE_MEMBER: {
        PyObject *members = dict_find(instance_dict(base), node->second, &node->second_version, &node->second_found);
        return dict_find_new(members, node->object, &node->version, &node->found);
    }
    case A_ITEM:
        if (PyDict_Check(base))
            return dict_find_new(base, node->object, &node->version, &node->found);
        if (node->second == NULL && (PyList_Check(base) || PyTuple_Check(base))) {
            Py_ssize_t n = Py_SIZE(base), i = (Py_ssize_t)node->number;
            if (i < 0)
                i += n;
            if (i < 0 || i >= n)
                return NULL;
            v = PyList_Check(base) ? PyList_GET_ITEM(base, i) : PyTuple_GET_ITEM(base, i);
            break;
        }
        return PyObject_GetItem(base, node->object);
    case A_DICT_ITEM:
        return dict_find_new(base, node->object, &node->version, &node->found);
    case A_DICT_KEY:
    case A_DICT_VALUE: {
        Py_ssize_t pos = 0, i = 0;
        if (!PyDict_Check(base))
            return NULL;
        while (PyDict_Next(base, &pos, &key, &value))
            if (i++ == node->number) {
                v = node->op == A_DICT_KEY ? key : value;
                break;
            }
        break;
    }
    case A_CELL_CONTENTS:
        v = PyCell_Check(base) ? PyCell_GET(base) : NULL;
        break;
    case A_FUNC_CELL: {
        PyObject *closure = PyFunction_Check(base) ? PyFunction_GET_CLOSURE(base) : NULL;
        if (closure && node->number < PyTuple_GET_SIZE(closure))
            v = PyTuple_GET_ITEM(closure, node->number);
        break;
    }
    case A_DEFAULT: {
        PyObject *defaults = PyFunction_Check(base) ? PyFunction_GET_DEFAULTS(base) : NULL;
        Py_ssize_t i = (Py_ssize_t)node->number;
        if (defaults && PyTuple_Check(defaults)) {
            if (i < 0)
                i += PyTuple_GET_SIZE(defaults);
            if (i >= 0 && i < PyTuple_GET_SIZE(defaults))
                v = PyTuple_GET_ITEM(defaults, i);
        }
        break;
    }
    case A_KWDEFAULT:
        return PyFunction_Check(base) ? dict_get(PyFunction_GET_KW_DEFAULTS(base), node->object) : NULL;
    case A_TYPE:
        v = (PyObject *)Py_TYPE(base);
        break;
    case A_CLASS_ATTR:
        v = PyType_Check(base) ? _PyType_Lookup((PyTypeObject *)base, node->object) : NULL;
        break;
    case A_TENSOR_META: {
        /* second: the bound-free slow form (function, what, dim); the fast form needs the layout check and a plain tensor. */
        if (lib.tensors && node->second == NULL) {
            int64_t *numbers = NULL, n = 0;
            void *handle = TENSOR_HANDLE(base);
            if (lib.dim(handle, &n) != 0)
                return NULL;
            int what = (int)(node->number >> 32), dim = (int)(node->number & 0xffffffff);
            if (what == 2)
                return lib.offset(handle, &n) == 0 ? PyLong_FromLongLong(n) : NULL;
            if (dim >= n || (what == 0 ? lib.sizes : lib.strides)(handle, &numbers) != 0)
                return NULL;
            return PyLong_FromLongLong(numbers[dim]);
        }
        return PyObject_CallOneArg(node->object, base);
    }
    case A_GRAD:
        return PyObject_GetAttr(base, str_grad);
    case A_WEAKREF:
        return PyObject_CallNoArgs(base);
    case A_PYTHON: /* object: function, second: extra arguments */
    {
        Py_ssize_t n = PyTuple_GET_SIZE(node->second);
        PyObject *args = PyTuple_New(n + 1);
        if (args == NULL)
            return NULL;
        Py_INCREF(base);
        PyTuple_SET_ITEM(args, 0, base);
        for (Py_ssize_t i = 0; i < n; i++) {
            Py_INCREF(PyTuple_GET_ITEM(node->second, i));
            PyTuple_SET_ITEM(args, i + 1, PyTuple_GET_ITEM(node->second, i));
        }
        v = PyObject_Call(node->object, args, NULL);
        Py_DECREF(args);
        return v;
    }
    default:
        return NULL;
    }
    Py_XINCREF(v);
    return v;
}
