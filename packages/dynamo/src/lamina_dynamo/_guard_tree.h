/* What a guard program consists of: access steps, checks, and the tree of them. */

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
