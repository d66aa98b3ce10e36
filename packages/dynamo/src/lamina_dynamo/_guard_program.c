/* The guard program: checks the assumptions of one compiled frame in one pass.
 *
 * A program is a tree. A node is one access step (an argument, an attribute, an item, ...) on the value of its parent, so that paths with a
 * common beginning share it; nodes are stored in preorder, each knows where its subtree ends. Checks hang on nodes and run before the node's
 * children, in the order in which the assumptions were made, so an access only ever meets a value of the type that it was written for.
 * Values that a relation (sizes, identity, overlap) needs are kept in registers; relations run last.
 *
 * Objects of the user's program are compared by address and never kept alive: a weak reference clears the program's `valid` flag when one dies.
 */
#include "_native.h"
#include <dlfcn.h>
#include <math.h>
#include <structmember.h>

/* ------------------------------------------------------------------------------------------------ libtorch, read without Python */
typedef int32_t (*get_i32)(void *, int32_t *);
typedef int32_t (*get_i64)(void *, int64_t *);
typedef int32_t (*get_i64s)(void *, int64_t **);

static struct {
    int tensors; /* tensor metadata can be read */
    int storages; /* storage identity can be read */
    int state; /* global state can be read */
    int key_word, storage_word;
    int size_word; /* number of dimensions, then five sizes, then five strides (more dimensions lie elsewhere) */
    get_i64 dim, offset;
    get_i64s sizes, strides;
    get_i32 dtype, device_index;
    int32_t (*data_ptr)(void *, void **);
    int (*requires_grad)(const void *);
    int (*grad_mode)(void);
    int (*inference_mode)(void);
    int8_t (*default_dtype)(void);
    void *(*context)(void);
    int (*deterministic)(const void *);
    int (*deterministic_warn)(const void *);
    int64_t (*function_stack)(void);
    int (*function_disabled)(void);
    int (*autocast_enabled)(int8_t);
    int8_t (*autocast_dtype)(int8_t);
    int (*autocast_cache)(void);
    void *c10;
} lib;

/* at::Tensor sits behind the two words of the object header; it is one pointer, to the TensorImpl. */
#define TENSOR_HANDLE(obj) ((void *)((char *)(obj) + sizeof(PyObject)))
#define TENSOR_IMPL(obj) (*(uint64_t **)TENSOR_HANDLE(obj))

static int tensor_numbers(PyObject *tensor, int64_t *dim, const int64_t **sizes, const int64_t **strides) {
    if (lib.size_word) {
        const int64_t *words = (const int64_t *)TENSOR_IMPL(tensor) + lib.size_word;
        if (words[0] <= 5) {
            *dim = words[0];
            *sizes = words + 1;
            *strides = words + 6;
            return 1;
        }
    }
    void *handle = TENSOR_HANDLE(tensor);
    return lib.dim(handle, dim) == 0 && lib.sizes(handle, (int64_t **)sizes) == 0 && lib.strides(handle, (int64_t **)strides) == 0;
}

static __thread uint64_t *tls_dispatch_keys;

static uint64_t *dispatch_tls(void) {
    if (tls_dispatch_keys == NULL)
        tls_dispatch_keys = (uint64_t *)dlsym(lib.c10, "_ZN3c104impl26raw_local_dispatch_key_setE");
    return tls_dispatch_keys;
}

typedef struct {
    uint64_t included, excluded;
    int64_t function_stack;
    int function_disabled;
    int8_t grad, inference, default_dtype, deterministic, deterministic_warn, autocast_cache;
    int8_t autocast[2], autocast_dtype[2], dual_level;
} State;

/* torch.autograd.forward_ad keeps its level in a global of that module: -1 outside */
static PyObject *forward_ad_globals, *forward_ad_level;

static int8_t dual_level(void) {
    PyObject *level = forward_ad_globals ? PyDict_GetItem(forward_ad_globals, forward_ad_level) : NULL;
    return level != NULL && PyLong_CheckExact(level) ? (int8_t)(PyLong_AsLong(level) + 1) : 0;
}

static void read_state(State *s) {
    memset(s, 0, sizeof(*s));
    uint64_t *keys = dispatch_tls();
    s->included = keys[0];
    s->excluded = keys[1];
    s->function_stack = lib.function_stack();
    s->function_disabled = lib.function_disabled() & 0xff;
    s->grad = lib.grad_mode() & 1;
    s->inference = lib.inference_mode() & 1;
    s->dual_level = dual_level();
    s->default_dtype = lib.default_dtype();
    void *context = lib.context();
    s->deterministic = lib.deterministic(context) & 1;
    s->deterministic_warn = lib.deterministic_warn(context) & 1;
    s->autocast_cache = lib.autocast_cache() & 1;
    for (int device = 0; device < 2; device++) {
        s->autocast[device] = lib.autocast_enabled((int8_t)device) & 1;
        if (s->autocast[device])
            s->autocast_dtype[device] = lib.autocast_dtype((int8_t)device);
    }
}

/* bind_torch(folder of torch's libraries, sample tensor requiring grad, its dispatch keys, its storage's _cdata) -> (tensors, storages, state) */
static PyObject *bind_torch(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *folder;
    PyObject *sample;
    unsigned long long keys, storage;
    if (!PyArg_ParseTuple(args, "sOKK", &folder, &sample, &keys, &storage))
        return NULL;
    memset(&lib, 0, sizeof(lib));
    if (forward_ad_globals == NULL) {
        PyObject *module = PyImport_ImportModule("torch.autograd.forward_ad");
        if (module == NULL)
            return NULL;
        forward_ad_level = PyUnicode_InternFromString("_current_level");
        forward_ad_globals = Py_NewRef(PyModule_GetDict(module));
        Py_DECREF(module);
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/libtorch_cpu.so", folder);
    void *cpu = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    snprintf(path, sizeof path, "%s/libc10.so", folder);
    void *c10 = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    if (cpu == NULL || c10 == NULL)
        return Py_BuildValue("(iii)", 0, 0, 0);
    lib.c10 = c10;
    lib.dim = (get_i64)dlsym(cpu, "aoti_torch_get_dim");
    lib.offset = (get_i64)dlsym(cpu, "aoti_torch_get_storage_offset");
    lib.sizes = (get_i64s)dlsym(cpu, "aoti_torch_get_sizes");
    lib.strides = (get_i64s)dlsym(cpu, "aoti_torch_get_strides");
    lib.dtype = (get_i32)dlsym(cpu, "aoti_torch_get_dtype");
    lib.device_index = (get_i32)dlsym(cpu, "aoti_torch_get_device_index");
    lib.data_ptr = (int32_t(*)(void *, void **))dlsym(cpu, "aoti_torch_get_data_ptr");
    lib.requires_grad = (int (*)(const void *))dlsym(c10, "_ZNK3c1010TensorImpl13requires_gradEv");
    lib.grad_mode = (int (*)(void))dlsym(c10, "_ZN3c108GradMode10is_enabledEv");
    lib.inference_mode = (int (*)(void))dlsym(c10, "_ZN3c1013InferenceMode10is_enabledEv");
    lib.default_dtype = (int8_t(*)(void))dlsym(c10, "_ZN3c1031get_default_dtype_as_scalartypeEv");
    lib.context = (void *(*)(void))dlsym(cpu, "_ZN2at13globalContextEv");
    lib.deterministic = (int (*)(const void *))dlsym(cpu, "_ZNK2at7Context23deterministicAlgorithmsEv");
    lib.deterministic_warn = (int (*)(const void *))dlsym(cpu, "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv");
    lib.function_stack = (int64_t(*)(void))dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    lib.function_disabled = (int (*)(void))dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    lib.autocast_enabled = (int (*)(int8_t))dlsym(cpu, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE");
    lib.autocast_dtype = (int8_t(*)(int8_t))dlsym(cpu, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    lib.autocast_cache = (int (*)(void))dlsym(cpu, "_ZN2at8autocast25is_autocast_cache_enabledEv");
    lib.state = dispatch_tls() && lib.grad_mode && lib.inference_mode && lib.default_dtype && lib.context && lib.deterministic &&
                lib.deterministic_warn && lib.function_stack && lib.function_disabled && lib.autocast_enabled && lib.autocast_dtype &&
                lib.autocast_cache;
    /* The layout is checked and not assumed: the handle must be the object's _cdata, and the key set and storage must be words of the TensorImpl. */
    PyObject *cdata = PyObject_GetAttrString(sample, "_cdata");
    if (cdata == NULL)
        return NULL;
    void *impl = PyLong_AsVoidPtr(cdata);
    Py_DECREF(cdata);
    if (impl == NULL && PyErr_Occurred())
        return NULL;
    if (lib.dim && lib.offset && lib.sizes && lib.strides && lib.dtype && lib.device_index && lib.data_ptr && lib.requires_grad &&
        (void *)TENSOR_IMPL(sample) == impl) {
        uint64_t *words = (uint64_t *)impl;
        /* FACTS: word 21 in the releases measured; looked for nearby so that a shifted field is found and a wrong one is not used. */
        for (int i = 16; i <= 24; i++)
            if (words[i] == keys && lib.key_word == 0)
                lib.key_word = i;
        for (int i = 1; i <= 6; i++)
            if (words[i] == storage && lib.storage_word == 0)
                lib.storage_word = i;
        for (int i = 4; i <= 20; i++)
            if (words[i] == 2 && words[i + 1] == 2 && words[i + 2] == 3 && words[i + 6] == 3 && words[i + 7] == 1 && lib.size_word == 0)
                lib.size_word = i;
        int64_t dim = -1, *sizes = NULL;
        if (lib.key_word && lib.dim(TENSOR_HANDLE(sample), &dim) == 0 && lib.sizes(TENSOR_HANDLE(sample), &sizes) == 0 && dim == 2 &&
            sizes[0] == 2 && sizes[1] == 3 && (lib.requires_grad(impl) & 1) == 1)
            lib.tensors = 1;
        lib.storages = lib.tensors && lib.storage_word;
    }
    return Py_BuildValue("(iii)", lib.tensors, lib.storages, lib.state);
}

/* The fast readings of a tensor, for the self-check in Python: (keys, dtype code, requires_grad, sizes, strides, storage). */
static PyObject *probe_tensor(PyObject *Py_UNUSED(self), PyObject *tensor) {
    if (!lib.tensors)
        Py_RETURN_NONE;
    void *handle = TENSOR_HANDLE(tensor);
    int64_t dim = 0;
    const int64_t *sizes = NULL, *strides = NULL;
    int32_t dtype = 0;
    tensor_numbers(tensor, &dim, &sizes, &strides);
    lib.dtype(handle, &dtype);
    PyObject *a = PyTuple_New(dim), *b = PyTuple_New(dim);
    for (int64_t i = 0; a && b && i < dim; i++) {
        PyTuple_SET_ITEM(a, i, PyLong_FromLongLong(sizes[i]));
        PyTuple_SET_ITEM(b, i, PyLong_FromLongLong(strides[i]));
    }
    return Py_BuildValue("(KiiNNK)", (unsigned long long)TENSOR_IMPL(tensor)[lib.key_word], (int)dtype, lib.requires_grad(TENSOR_IMPL(tensor)) & 1, a, b,
                         (unsigned long long)(lib.storage_word ? TENSOR_IMPL(tensor)[lib.storage_word] : 0));
}

/* ------------------------------------------------------------------------------------------------------------------- the program */
enum access {
    A_LOCAL, A_FREE, A_FRAME_CELL, A_GLOBAL, A_GLOBALS, A_BUILTIN, A_SYS_MODULE, A_CONST, A_ATTR, A_SELF_DICT, A_INSTANCE_ATTR, A_MODULE_MEMBER,
    A_ITEM, A_DICT_ITEM, A_DICT_KEY, A_DICT_VALUE, A_CELL_CONTENTS, A_FUNC_CELL, A_DEFAULT, A_KWDEFAULT, A_TYPE, A_CLASS_ATTR, A_TENSOR_META,
    A_GRAD, A_WEAKREF, A_PYTHON, A_COUNT
};
static const char *const access_names[A_COUNT] = {
    "LOCAL", "FREE", "FRAME_CELL", "GLOBAL", "GLOBALS", "BUILTIN", "SYS_MODULE", "CONST", "ATTR", "SELF_DICT", "INSTANCE_ATTR", "MODULE_MEMBER",
    "ITEM", "DICT_ITEM", "DICT_KEY", "DICT_VALUE", "CELL_CONTENTS", "FUNC_CELL", "DEFAULT", "KWDEFAULT", "TYPE", "CLASS_ATTR", "TENSOR_META",
    "GRAD", "WEAKREF", "PYTHON"};

enum check {
    C_TYPE, C_ID, C_CONSTANT, C_NONE, C_NOT_NONE, C_TENSOR, C_LENGTH, C_TRUTH, C_DICT_KEYS, C_DICT_CONTAINS, C_DICT_NOT_CONTAINS, C_HAS_ATTR,
    C_NO_ATTR, C_NO_INSTANCE_ATTR, C_NO_CLASS_ATTR, C_FUNCTION_CODE, C_CLASS_ATTR, C_EMPTY_CELL, C_NO_HOOKS, C_WEAKREF_ALIVE, C_ABSENT, C_PYTHON,
    C_SAME_OBJECT, C_NOT_SAME, C_NO_OVERLAP, C_SHAPE_EXPR, C_PYTHON_RELATION, C_GLOBAL_STATE, C_COUNT
};
static const char *const check_names[C_COUNT] = {
    "TYPE", "ID", "CONSTANT", "NONE", "NOT_NONE", "TENSOR", "LENGTH", "TRUTH", "DICT_KEYS", "DICT_CONTAINS", "DICT_NOT_CONTAINS", "HAS_ATTR",
    "NO_ATTR", "NO_INSTANCE_ATTR", "NO_CLASS_ATTR", "FUNCTION_CODE", "CLASS_ATTR", "EMPTY_CELL", "NO_HOOKS", "WEAKREF_ALIVE", "ABSENT", "PYTHON",
    "SAME_OBJECT", "NOT_SAME", "NO_OVERLAP", "SHAPE_EXPR", "PYTHON_RELATION", "GLOBAL_STATE"};

typedef struct {
    uint64_t keys;
    int32_t dtype, device_index;
    int requires_grad, dim, check_sizes, check_strides;
    PyTypeObject *type;
    int64_t numbers[]; /* sizes, then strides; -1: free */
} TensorSpec;

typedef struct {
    int op, arg;
    int64_t value;
} ShapeOp;

typedef struct {
    int op, guard, count;
    int *registers; /* of a relation */
    PyObject *object; /* owned, unless `pinned` */
    int pinned;
    int64_t number;
    void *extra; /* owned: TensorSpec, ShapeOp array, int64 pairs, State */
} Check;

typedef struct {
    int op, end, first_check, n_checks, keep, guard;
    int64_t number;
    PyObject *object;
    PyObject *second;
    /* What was found in a dict, and the dict's version then: while the version is that one, the dict still holds the same object. */
    uint64_t version, second_version;
    PyObject *found, *second_found; /* borrowed */
} Node;

typedef struct {
    PyObject_HEAD
    int valid;
} Validity;

struct GuardProgram {
    PyObject_HEAD
    int n_nodes, n_checks, n_relations, n_registers, n_given;
    int *given; /* registers of the values that the compiled code takes from here */
    Node *nodes;
    Check *checks; /* of nodes, grouped by node */
    Check *relations;
    Validity *validity;
    PyObject *weakrefs; /* list */
};

static PyObject *validity_call(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    ((Validity *)self)->valid = 0;
    Py_RETURN_NONE;
}

static PyTypeObject Validity_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_dynamo._eval_frame.Validity",
    .tp_doc = "Called when a pinned object dies.",
    .tp_basicsize = sizeof(Validity),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = validity_call,
};

static PyObject *str_parameters, *str_dict, *str_grad, *hook_names[4];
static PyObject *object_getattribute; /* object.__getattribute__ as stored on the type */
static PyObject *str_getattribute;

/* ---- instance dicts ---- */
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

/* ---- relations ---- */
enum shape_op { S_CONST, S_LOAD, S_ADD, S_SUB, S_MUL, S_FLOORDIV, S_MOD, S_POW, S_MIN, S_MAX, S_ABS, S_NEG, S_EQ, S_NE, S_LT, S_LE, S_GT, S_GE, S_AND, S_OR, S_NOT };

static int run_shape(const Check *check, const int64_t *values) {
    int64_t stack[64];
    int top = 0;
    const ShapeOp *ops = (const ShapeOp *)check->extra;
    for (int i = 0; i < check->number; i++) {
        int op = ops[i].op;
        if (op == S_CONST || op == S_LOAD) {
            stack[top++] = op == S_CONST ? ops[i].value : values[ops[i].arg];
            continue;
        }
        if (op == S_ABS || op == S_NEG || op == S_NOT) {
            int64_t *a = &stack[top - 1];
            if (op == S_NOT)
                *a = !*a;
            else if (*a == INT64_MIN)
                return 0;
            else if (op == S_NEG || *a < 0)
                *a = -*a;
            continue;
        }
        int64_t b = stack[--top], a = stack[top - 1], r = 0;
        switch (op) {
        case S_ADD:
            if (__builtin_add_overflow(a, b, &r))
                return 0;
            break;
        case S_SUB:
            if (__builtin_sub_overflow(a, b, &r))
                return 0;
            break;
        case S_MUL:
            if (__builtin_mul_overflow(a, b, &r))
                return 0;
            break;
        case S_FLOORDIV:
        case S_MOD: {
            if (b == 0 || (a == INT64_MIN && b == -1))
                return 0;
            int64_t q = a / b, m = a % b;
            if (m != 0 && ((m < 0) != (b < 0))) {
                q--;
                m += b;
            }
            r = op == S_FLOORDIV ? q : m;
            break;
        }
        case S_POW:
            if (b < 0)
                return 0;
            r = 1;
            while (b-- > 0)
                if (__builtin_mul_overflow(r, a, &r))
                    return 0;
            break;
        case S_MIN: r = a < b ? a : b; break;
        case S_MAX: r = a > b ? a : b; break;
        case S_EQ: r = a == b; break;
        case S_NE: r = a != b; break;
        case S_LT: r = a < b; break;
        case S_LE: r = a <= b; break;
        case S_GT: r = a > b; break;
        case S_GE: r = a >= b; break;
        case S_AND: r = a && b; break;
        case S_OR: r = a || b; break;
        default: return 0;
        }
        stack[top - 1] = r;
    }
    return top == 1 && stack[0] != 0;
}

static int run_relation(const Check *check, PyObject **registers) {
    int n = check->count;
    for (int i = 0; i < n; i++)
        if (registers[check->registers[i]] == NULL)
            return 0;
#define VALUE(i) registers[check->registers[i]]
    switch (check->op) {
    case C_GLOBAL_STATE:
        return check_state(check);
    case C_SAME_OBJECT:
        for (int i = 1; i < n; i++)
            if (VALUE(i) != VALUE(0))
                return 0;
        return 1;
    case C_NOT_SAME:
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++)
                if (VALUE(i) == VALUE(j))
                    return 0;
        return 1;
    case C_NO_OVERLAP: {
        /* extra: pairs (first tensor of the same storage, distance in bytes). Storages in a small open table. */
        const int64_t *expected = (const int64_t *)check->extra;
        int size = 16, ok = 1;
        while (size < 2 * n)
            size *= 2;
        int local[64], *table = size <= 64 ? local : (int *)malloc(sizeof(int) * (size_t)size);
        if (table == NULL)
            return 0;
        memset(table, -1, sizeof(int) * (size_t)size);
        for (int i = 0; i < n && ok; i++) {
            uint64_t storage = TENSOR_IMPL(VALUE(i))[lib.storage_word];
            int first = i;
            for (unsigned h = (unsigned)((storage >> 4) * 2654435761u) & (unsigned)(size - 1);; h = (h + 1) & (unsigned)(size - 1)) {
                if (table[h] < 0) {
                    table[h] = i;
                    break;
                }
                if (TENSOR_IMPL(VALUE(table[h]))[lib.storage_word] == storage) {
                    first = table[h];
                    break;
                }
            }
            if (first != expected[2 * i])
                ok = 0;
            else if (first != i) {
                void *a = NULL, *b = NULL;
                lib.data_ptr(TENSOR_HANDLE(VALUE(first)), &a);
                lib.data_ptr(TENSOR_HANDLE(VALUE(i)), &b);
                ok = (char *)b - (char *)a == expected[2 * i + 1];
            }
        }
        if (table != local)
            free(table);
        return ok;
    }
    case C_SHAPE_EXPR: {
        int64_t values[64];
        for (int i = 0; i < n; i++) {
            int overflow = 0;
            if (!PyLong_Check(VALUE(i)))
                return 0;
            values[i] = PyLong_AsLongLongAndOverflow(VALUE(i), &overflow);
            if (overflow)
                return 0;
        }
        return run_shape(check, values);
    }
    case C_PYTHON_RELATION: {
        PyObject *list = PyList_New(n);
        if (list == NULL) {
            PyErr_Clear();
            return 0;
        }
        for (int i = 0; i < n; i++) {
            Py_INCREF(VALUE(i));
            PyList_SET_ITEM(list, i, VALUE(i));
        }
        int ok = call_predicate(check->object, list);
        Py_DECREF(list);
        return ok;
    }
    default:
        return 0;
    }
#undef VALUE
}

static int run_node(const GuardProgram *p, const Inputs *in, int index, PyObject *base, PyObject **registers) {
    Node *node = &p->nodes[index];
    Check *check = &p->checks[node->first_check], *stop = check + node->n_checks;
    PyObject *v = access_step(node, base, in);
    if (v == NULL) {
        if (PyErr_Occurred())
            PyErr_Clear();
        return node->n_checks == 1 && check->op == C_ABSENT ? -1 : node->guard;
    }
    int failed = -1;
    for (; check < stop; check++)
        if (!run_check(check, v)) {
            failed = check->guard;
            break;
        }
    if (failed < 0)
        for (int child = index + 1; child < node->end; child = p->nodes[child].end)
            if ((failed = run_node(p, in, child, v, registers)) >= 0)
                break;
    if (node->keep >= 0 && failed < 0)
        registers[node->keep] = v;
    else
        Py_DECREF(v);
    return failed;
}

int guard_program_gives(const GuardProgram *p) { return p->n_given > 0; }

int guard_program_run(GuardProgram *p, const Inputs *in, PyObject **given) {
    if (given)
        *given = NULL;
    if (!p->validity->valid)
        return 0;
    PyObject *small[32], **registers = small;
    int failed = -1;
    if (p->n_registers > 32) {
        registers = (PyObject **)malloc(sizeof(PyObject *) * (size_t)p->n_registers);
        if (registers == NULL)
            return 0;
    }
    for (int i = 0; i < p->n_registers; i++)
        registers[i] = NULL;
    for (int i = 0; i < p->n_nodes; i = p->nodes[i].end)
        if ((failed = run_node(p, in, i, NULL, registers)) >= 0)
            break;
    for (int i = 0; failed < 0 && i < p->n_relations; i++)
        if (!run_relation(&p->relations[i], registers))
            failed = p->relations[i].guard;
    if (failed < 0 && given && p->n_given) {
        PyObject *values = *given = PyTuple_New(p->n_given);
        if (values == NULL) {
            PyErr_Clear();
            failed = GUARD_NO_MEMORY;
        } else
            for (int i = 0; i < p->n_given; i++) {
                PyObject *v = registers[p->given[i]] ? registers[p->given[i]] : Py_None;
                Py_INCREF(v);
                PyTuple_SET_ITEM(values, i, v);
            }
    }
    for (int i = 0; i < p->n_registers; i++)
        Py_XDECREF(registers[i]);
    if (registers != small)
        free(registers);
    return failed;
}

/* ------------------------------------------------------------------------------------------------------------------ construction */
/* Compare by address without keeping alive: a weak reference tells when the object dies. Objects without weak references are kept. */
static int pin(GuardProgram *p, Check *check, PyObject *object) {
    check->object = object;
    check->pinned = 1;
    if (PyType_Check(object) && !PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_HEAPTYPE))
        return 0;
    PyObject *ref = PyWeakref_NewRef(object, (PyObject *)p->validity);
    if (ref == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            return -1;
        PyErr_Clear();
        check->pinned = 0;
        Py_INCREF(object);
        return 0;
    }
    int r = PyList_Append(p->weakrefs, ref);
    Py_DECREF(ref);
    return r;
}

static void keep(Check *check, PyObject *object) {
    Py_XINCREF(object);
    check->object = object;
}

static int64_t item_i64(PyObject *tuple, Py_ssize_t i) { return (int64_t)PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)); }

static int fill_tensor(GuardProgram *p, Check *check, PyObject *operand) {
    /* operand: (type, keys, dtype code, device index or -1, requires_grad, sizes tuple | None, strides tuple | None); -1 in a tuple: free */
    PyObject *type, *sizes, *strides;
    unsigned long long keys;
    int dtype, device_index, requires_grad;
    if (!PyArg_ParseTuple(operand, "OKiiiOO", &type, &keys, &dtype, &device_index, &requires_grad, &sizes, &strides))
        return -1;
    int dim = sizes == Py_None ? 0 : (int)PyTuple_GET_SIZE(sizes);
    TensorSpec *spec = (TensorSpec *)calloc(1, sizeof(TensorSpec) + sizeof(int64_t) * 2 * (size_t)dim);
    if (spec == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    check->extra = spec;
    spec->keys = keys;
    spec->dtype = dtype;
    spec->device_index = device_index;
    spec->requires_grad = requires_grad;
    spec->dim = dim;
    spec->check_sizes = sizes != Py_None;
    spec->check_strides = strides != Py_None;
    spec->type = (PyTypeObject *)type;
    for (int i = 0; i < dim; i++) {
        spec->numbers[i] = item_i64(sizes, i);
        spec->numbers[dim + i] = spec->check_strides ? item_i64(strides, i) : -1;
    }
    return pin(p, check, type);
}

/* One check or relation: (op, guard, operand, registers tuple | None) */
static int fill_check(GuardProgram *p, Check *check, int op, int guard, PyObject *operand, PyObject *registers) {
    check->op = op;
    check->guard = guard;
    if (registers != Py_None) {
        check->count = (int)PyTuple_GET_SIZE(registers);
        check->registers = (int *)malloc(sizeof(int) * (size_t)(check->count + 1));
        if (check->registers == NULL)
            return -1;
        for (int i = 0; i < check->count; i++)
            check->registers[i] = (int)item_i64(registers, i);
    }
    switch (op) {
    case C_TYPE:
    case C_ID:
        return pin(p, check, operand);
    case C_TENSOR:
        return fill_tensor(p, check, operand);
    case C_LENGTH:
    case C_TRUTH:
        check->number = PyLong_AsLongLong(operand);
        return check->number == -1 && PyErr_Occurred() ? -1 : 0;
    case C_DICT_KEYS: /* operand: (keys, ordered elsewhere, predicate) */
        keep(check, PyTuple_GET_ITEM(operand, 0));
        check->number = PyObject_IsTrue(PyTuple_GET_ITEM(operand, 1));
        Py_INCREF(PyTuple_GET_ITEM(operand, 2));
        check->extra = PyTuple_GET_ITEM(operand, 2);
        return 0;
    case C_FUNCTION_CODE: /* operand: (code, number of defaults, names of keyword defaults) */
        check->number = item_i64(operand, 1);
        Py_INCREF(PyTuple_GET_ITEM(operand, 2));
        check->extra = PyTuple_GET_ITEM(operand, 2);
        return pin(p, check, PyTuple_GET_ITEM(operand, 0));
    case C_CLASS_ATTR: /* operand: (name, object) or (name,) */
        Py_INCREF(PyTuple_GET_ITEM(operand, 0));
        check->extra = PyTuple_GET_ITEM(operand, 0);
        return PyTuple_GET_SIZE(operand) > 1 ? pin(p, check, PyTuple_GET_ITEM(operand, 1)) : 0;
    case C_NO_OVERLAP: { /* operand: flat tuple of pairs */
        Py_ssize_t n = PyTuple_GET_SIZE(operand);
        int64_t *pairs = (int64_t *)malloc(sizeof(int64_t) * (size_t)(n + 1));
        if (pairs == NULL)
            return -1;
        for (Py_ssize_t i = 0; i < n; i++)
            pairs[i] = item_i64(operand, i);
        check->extra = pairs;
        return 0;
    }
    case C_SHAPE_EXPR: { /* operand: tuple of (op, arg or value) */
        Py_ssize_t n = PyTuple_GET_SIZE(operand);
        ShapeOp *ops = (ShapeOp *)calloc((size_t)(n + 1), sizeof(ShapeOp));
        if (ops == NULL)
            return -1;
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *pair = PyTuple_GET_ITEM(operand, i);
            ops[i].op = (int)item_i64(pair, 0);
            ops[i].value = item_i64(pair, 1);
            ops[i].arg = (int)ops[i].value;
        }
        check->extra = ops;
        check->number = n;
        return 0;
    }
    case C_NO_HOOKS:
        check->extra = calloc(1, sizeof(HookDicts));
        return check->extra == NULL ? -1 : 0;
    case C_GLOBAL_STATE: /* operand: a predicate without arguments; the fast reading is taken here and now */
        keep(check, operand);
        if (lib.state) {
            check->extra = malloc(sizeof(State));
            if (check->extra == NULL)
                return -1;
            read_state((State *)check->extra);
        }
        return 0;
    default:
        keep(check, operand);
        return 0;
    }
}

/* GuardProgram(nodes, checks, relations, n_registers, given=())
 * given: registers of the values handed to the compiled code;
 * nodes: (op, parent, object, second, number, keep register or -1, guard) in preorder; checks: (node, op, guard, operand), sorted by node;
 * relations: (op, guard, operand, registers). */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *nodes, *checks, *relations, *given = NULL;
    int n_registers;
    if (!PyArg_ParseTuple(args, "O!O!O!i|O!", &PyList_Type, &nodes, &PyList_Type, &checks, &PyList_Type, &relations, &n_registers, &PyTuple_Type,
                          &given))
        return NULL;
    GuardProgram *p = (GuardProgram *)type->tp_alloc(type, 0);
    if (p == NULL)
        return NULL;
    p->validity = PyObject_New(Validity, &Validity_Type);
    p->weakrefs = PyList_New(0);
    Py_ssize_t n_nodes = PyList_GET_SIZE(nodes), n_checks = PyList_GET_SIZE(checks), n_relations = PyList_GET_SIZE(relations);
    p->nodes = (Node *)calloc((size_t)n_nodes + 1, sizeof(Node));
    p->checks = (Check *)calloc((size_t)n_checks + 1, sizeof(Check));
    p->relations = (Check *)calloc((size_t)n_relations + 1, sizeof(Check));
    p->n_given = given ? (int)PyTuple_GET_SIZE(given) : 0;
    p->given = (int *)calloc((size_t)p->n_given + 1, sizeof(int));
    if (!p->validity || !p->weakrefs || !p->nodes || !p->checks || !p->relations || !p->given)
        goto fail;
    for (int i = 0; i < p->n_given; i++) {
        p->given[i] = (int)item_i64(given, i);
        if (p->given[i] < 0 || p->given[i] >= n_registers) {
            PyErr_SetString(PyExc_ValueError, "a given value without a register");
            goto fail;
        }
    }
    p->validity->valid = 1;
    p->n_registers = n_registers;
    int *parents = (int *)malloc(sizeof(int) * ((size_t)n_nodes + 1));
    if (parents == NULL)
        goto fail;
    for (Py_ssize_t i = 0; i < n_nodes; i++) {
        Node *node = &p->nodes[i];
        PyObject *object, *second;
        long long number;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(nodes, i), "iiOOLii", &node->op, &parents[i], &object, &second, &number, &node->keep, &node->guard)) {
            free(parents);
            goto fail;
        }
        node->number = number;
        if (object != Py_None || node->op == A_CONST || node->op == A_ITEM) {
            Py_INCREF(object);
            node->object = object;
        }
        if (second != Py_None) {
            Py_INCREF(second);
            node->second = second;
        }
        node->end = (int)i + 1;
        p->n_nodes = (int)i + 1;
    }
    for (Py_ssize_t i = n_nodes - 1; i >= 0; i--)
        if (parents[i] >= 0 && p->nodes[parents[i]].end < p->nodes[i].end)
            p->nodes[parents[i]].end = p->nodes[i].end;
    free(parents);
    for (Py_ssize_t i = 0; i < n_checks; i++) {
        int node, op, guard;
        PyObject *operand;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(checks, i), "iiiO", &node, &op, &guard, &operand))
            goto fail;
        p->n_checks = (int)i + 1;
        if (fill_check(p, &p->checks[i], op, guard, operand, Py_None) < 0)
            goto fail;
        if (p->nodes[node].n_checks++ == 0)
            p->nodes[node].first_check = (int)i;
    }
    for (Py_ssize_t i = 0; i < n_relations; i++) {
        int op, guard;
        PyObject *operand, *registers;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(relations, i), "iiOO", &op, &guard, &operand, &registers))
            goto fail;
        p->n_relations = (int)i + 1;
        if (fill_check(p, &p->relations[i], op, guard, operand, registers) < 0)
            goto fail;
    }
    if (PyErr_Occurred())
        goto fail;
    return (PyObject *)p;
fail:
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(p);
    return NULL;
}

static int extra_is_object(int op) { return op == C_DICT_KEYS || op == C_FUNCTION_CODE || op == C_CLASS_ATTR; }

static int program_traverse(GuardProgram *p, visitproc visit, void *arg) {
    Py_VISIT(p->weakrefs);
    for (int i = 0; i < p->n_nodes; i++) {
        Py_VISIT(p->nodes[i].object);
        Py_VISIT(p->nodes[i].second);
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < (k ? p->n_relations : p->n_checks); i++) {
            Check *c = k ? &p->relations[i] : &p->checks[i];
            if (!c->pinned)
                Py_VISIT(c->object);
            if (extra_is_object(c->op))
                Py_VISIT((PyObject *)c->extra);
        }
    return 0;
}

static int program_clear(GuardProgram *p) {
    if (p->validity)
        p->validity->valid = 0;
    Py_CLEAR(p->weakrefs);
    for (int i = 0; i < p->n_nodes; i++) {
        Py_CLEAR(p->nodes[i].object);
        Py_CLEAR(p->nodes[i].second);
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < (k ? p->n_relations : p->n_checks); i++) {
            Check *c = k ? &p->relations[i] : &p->checks[i];
            if (!c->pinned)
                Py_CLEAR(c->object);
            c->object = NULL;
            if (extra_is_object(c->op)) {
                PyObject *extra = (PyObject *)c->extra;
                c->extra = NULL;
                Py_XDECREF(extra);
            }
        }
    return 0;
}

static void program_dealloc(GuardProgram *p) {
    PyObject_GC_UnTrack(p);
    program_clear(p);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < (k ? p->n_relations : p->n_checks); i++) {
            Check *c = k ? &p->relations[i] : &p->checks[i];
            if (!extra_is_object(c->op))
                free(c->extra);
            free(c->registers);
        }
    free(p->given);
    free(p->nodes);
    free(p->checks);
    free(p->relations);
    Py_CLEAR(p->validity);
    Py_TYPE(p)->tp_free((PyObject *)p);
}

/* check(args tuple, closure tuple | None, globals, builtins) -> index of the first guard that fails, or -1 */
static PyObject *program_check(GuardProgram *p, PyObject *args) {
    PyObject *values, *closure, *globals, *builtins;
    if (!PyArg_ParseTuple(args, "O!OOO", &PyTuple_Type, &values, &closure, &globals, &builtins))
        return NULL;
    Inputs in = {&PyTuple_GET_ITEM(values, 0), (int)PyTuple_GET_SIZE(values), closure == Py_None ? NULL : closure, globals, builtins};
    return PyLong_FromLong(guard_program_run(p, &in, NULL));
}

static PyObject *program_valid(GuardProgram *p, void *Py_UNUSED(closure)) { return PyBool_FromLong(p->validity->valid); }
static PyObject *program_size(GuardProgram *p, void *Py_UNUSED(closure)) { return Py_BuildValue("(iii)", p->n_nodes, p->n_checks, p->n_relations); }

static PyMethodDef program_methods[] = {
    {"check", (PyCFunction)program_check, METH_VARARGS, "check(args, closure, globals, builtins): index of the first guard that fails, or -1."}, {0}};
static PyGetSetDef program_getset[] = {
    {"valid", (getter)program_valid, NULL, "False once an object that a guard compares with has died.", NULL},
    {"size", (getter)program_size, NULL, "(nodes, checks, relations)", NULL},
    {0}};

PyTypeObject GuardProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_dynamo._eval_frame.GuardProgram",
    .tp_doc = "A tree of accesses with checks; see guards/build.py.",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_methods = program_methods,
    .tp_getset = program_getset,
};

static PyMethodDef guard_functions[] = {
    {"bind_torch", bind_torch, METH_VARARGS, "bind_torch(folder, sample, keys, storage) -> which readings work without Python"},
    {"probe_tensor", probe_tensor, METH_O, "The fast readings of a tensor."},
    {0}};

static PyObject *table(const char *const *names, int n) {
    PyObject *d = PyDict_New();
    for (int i = 0; d && i < n; i++) {
        PyObject *v = PyLong_FromLong(i);
        if (v == NULL || PyDict_SetItemString(d, names[i], v) < 0) {
            Py_XDECREF(v);
            Py_CLEAR(d);
            break;
        }
        Py_DECREF(v);
    }
    return d;
}

int guard_module_init(PyObject *module) {
    static const char *const hooks[4] = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"};
    for (int i = 0; i < 4; i++)
        if ((hook_names[i] = PyUnicode_InternFromString(hooks[i])) == NULL)
            return -1;
    str_parameters = PyUnicode_InternFromString("_parameters");
    str_dict = PyUnicode_InternFromString("__dict__");
    str_grad = PyUnicode_InternFromString("grad");
    str_getattribute = PyUnicode_InternFromString("__getattribute__");
    object_getattribute = _PyType_Lookup(&PyBaseObject_Type, str_getattribute);
    if (PyType_Ready(&Validity_Type) < 0 || PyType_Ready(&GuardProgram_Type) < 0 || PyModule_AddFunctions(module, guard_functions) < 0)
        return -1;
    Py_INCREF(&GuardProgram_Type);
    if (PyModule_AddObject(module, "GuardProgram", (PyObject *)&GuardProgram_Type) < 0)
        return -1;
    PyObject *accesses = table(access_names, A_COUNT), *checks = table(check_names, C_COUNT);
    if (!accesses || !checks || PyModule_AddObject(module, "ACCESSES", accesses) < 0 || PyModule_AddObject(module, "CHECKS", checks) < 0)
        return -1;
    return 0;
}
