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

/* One translation unit, so that a step or check is a branch and not a call; one concept a file. */
#include "_guard_tensors.h"
#include "_guard_tree.h"
#include "_guard_accesses.h"
#include "_guard_checks.h"
#include "_guard_relations.h"

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
