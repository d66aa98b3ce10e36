/* Calls that hand their arguments over: what goes on after a graph break owns the locals of the frame that was left, so that an object which the
 * program drops there goes there, not when the whole call ends.
 *
 * CPython's call protocol copies references into the new frame; the caller's stay where they are until the call returns. Here the caller's slots
 * lie on its value stack (generated code calls these functions directly): once the new frame has begun, the hook puts None into them.
 */
#include "_native.h"

LAMINA_THREAD_LOCAL Handed handed;

static void forget_slot(PyObject **slot) {
    PyObject *old = *slot;
    Py_INCREF(Py_None);
    *slot = Py_None;
    Py_XDECREF(old); /* the frame has its own reference: nothing dies here */
}

void take_handed(PyObject *code, PyObject **locals) {
    if (code != handed.code || memcmp(locals, handed.args, sizeof(PyObject *) * (size_t)handed.n_args) != 0)
        return;
    Handed taken = handed;
    handed.slots = NULL;
    for (Py_ssize_t i = 0; i < taken.n; i++)
        forget_slot(taken.slots + i);
    if (taken.more)
        forget_slot(taken.more);
}

PyObject *call_handing_over(PyObject *function, PyObject **slots, Py_ssize_t n) {
    return call_handing_over_from(function, slots, n, slots, n, NULL);
}

PyObject *call_handing_over_from(PyObject *function, PyObject **args, Py_ssize_t n_args, PyObject **slots, Py_ssize_t n, PyObject **more) {
    if (PyFunction_Check(function))
        handed = (Handed){slots, n, more, PyFunction_GET_CODE(function), args, n_args};
    PyObject *result = PyObject_Vectorcall(function, args, (size_t)n_args, NULL);
    handed.slots = NULL; /* where no frame began */
    return result;
}

/* The same for the items of a tuple. Steals `args`. */
static PyObject *call_with_tuple(PyObject *function, PyObject *args) {
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    PyObject *small[16], **slots = n <= 16 ? small : (PyObject **)PyMem_Malloc(sizeof(PyObject *) * (size_t)n);
    if (slots == NULL) {
        Py_DECREF(args);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        slots[i] = PyTuple_GET_ITEM(args, i);
        Py_INCREF(slots[i]);
    }
    Py_DECREF(args);
    PyObject *result = call_handing_over(function, slots, n);
    for (Py_ssize_t i = 0; i < n; i++)
        Py_DECREF(slots[i]);
    if (slots != small)
        PyMem_Free(slots);
    return result;
}

static PyObject *tail_call_type; /* what a resume function returns in place of calling the next one: a tuple (function, *arguments) */

/* run_resumed(function, *arguments): call a resume function, and the ones that it asks for. */
static PyObject *run_resumed(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n) {
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "run_resumed needs a function");
        return NULL;
    }
    PyObject *result = call_handing_over(args[0], (PyObject **)args + 1, n - 1);
    while (result != NULL && (PyObject *)Py_TYPE(result) == tail_call_type) {
        PyObject *function = PyTuple_GET_ITEM(result, 0), *rest = PyTuple_GetSlice(result, 1, PyTuple_GET_SIZE(result));
        Py_INCREF(function);
        Py_DECREF(result);
        result = rest ? call_with_tuple(function, rest) : NULL;
        Py_DECREF(function);
    }
    return result;
}

/* tail_call(function, *arguments): the value that asks for that call. */
static PyObject *tail_call(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n) {
    PyObject *made = ((PyTypeObject *)tail_call_type)->tp_alloc((PyTypeObject *)tail_call_type, n);
    for (Py_ssize_t i = 0; made && i < n; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(made, i, args[i]);
    }
    return made;
}

/* enter_frame(code, globals, (cells, arguments)): run a continue function. */
static PyObject *enter_frame(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n) {
    if (n != 3 || !PyTuple_CheckExact(args[2]) || PyTuple_GET_SIZE(args[2]) != 2) {
        PyErr_SetString(PyExc_TypeError, "enter_frame needs code, globals and (cells, arguments)");
        return NULL;
    }
    PyObject *cells = PyTuple_GET_ITEM(args[2], 0), *arguments = PyTuple_GET_ITEM(args[2], 1);
    PyObject *function = PyFunction_New(args[0], args[1]);
    if (function == NULL || (PyTuple_GET_SIZE(cells) && PyFunction_SetClosure(function, cells) < 0)) {
        Py_XDECREF(function);
        return NULL;
    }
    Py_INCREF(arguments);
    PyObject *state = args[2]; /* the caller has no use for it any more */
    Py_INCREF(Py_None);
    ((PyObject **)args)[2] = Py_None;
    Py_DECREF(state);
    PyObject *result = call_with_tuple(function, arguments);
    Py_DECREF(function);
    return result;
}

static PyTypeObject TailCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_dynamo.TailCall",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "What a resume function returns in place of calling the next one.",
};

static PyMethodDef functions[] = {
    {"run_resumed", (PyCFunction)(void (*)(void))run_resumed, METH_FASTCALL,
     "run_resumed(function, *arguments): for generated code only; the arguments are taken off the caller's stack"},
    {"tail_call", (PyCFunction)(void (*)(void))tail_call, METH_FASTCALL, "tail_call(function, *arguments): ask run_resumed for this call"},
    {"enter_frame", (PyCFunction)(void (*)(void))enter_frame, METH_FASTCALL,
     "enter_frame(code, globals, (cells, arguments)): for generated code only; the state is taken off the caller's stack"},
    {0}};

int resume_module_init(PyObject *module) {
    TailCall_Type.tp_base = &PyTuple_Type;
    if (PyType_Ready(&TailCall_Type) < 0)
        return -1;
    tail_call_type = (PyObject *)&TailCall_Type;
    return PyModule_AddFunctions(module, functions);
}
