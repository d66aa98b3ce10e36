/* The frame evaluation hook (PEP 523): runs compiled code in place of a frame's own.
 *
 * Every code object that was looked at carries a CodeState (by co_extra): marks, and a list of entries, most recently used first. An Entry is a
 * guard program and the code to run while it holds. An Owner is what a call of a compiled function runs under: it says which entries count (those
 * made for the same key, by identity), what to do on a miss (a Python callback) and keeps the entries that it used alive. Code objects hold their
 * entries weakly, so entries go when their last owner goes, and when the code object goes.
 *
 * The hook is installed while some thread runs a compiled function and no longer. `current` is this thread's owner; NULL means: leave frames alone.
 * It is NULL while guards are checked, while the callback compiles, and inside code that nothing more is to be captured from.
 */
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include "_native.h"
#include <frameobject.h>
#include <structmember.h>
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030c0000
#include <internal/pycore_interp.h>
#endif
#endif
#undef Py_BUILD_CORE

#if PY_VERSION_HEX >= 0x030b0000
typedef struct _PyInterpreterFrame Frame;
#define OWN_FRAMES 1 /* the code of a frame that has not started can be replaced in place */
#else
typedef PyFrameObject Frame;
#define OWN_FRAMES 0
#endif

#if PY_VERSION_HEX < 0x030c0000
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

#if defined(__GNUC__)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define THREAD_LOCAL static __thread
#else
#define UNLIKELY(x) (x)
#define THREAD_LOCAL static _Thread_local
#endif

enum { MARK_SKIP = 1, MARK_SKIP_DEEP = 2 };

typedef struct Entry Entry;

typedef struct {
    int marks;
    Entry *first;
} CodeState;

typedef struct {
    PyObject_HEAD
    PyObject *key; /* entries of this very object count */
    PyObject *callback; /* callback(owner, code, locals, globals, builtins, closure, misses) -> Entry | None */
    PyObject *entries; /* set of Entry: kept alive */
    PyObject *state; /* dict for the callback's use */
    PyObject *weakrefs;
    int run_only;
} Owner;

struct Entry {
    PyObject_HEAD
    PyObject *key;
    PyObject *code;
    PyObject *flat_code; /* the same with plain arguments, for the call that stands in for a replaced frame; made when needed */
    GuardProgram *program;
    PyObject *info; /* what Python wants to know about it */
    CodeState *home;
    Entry *next, *previous;
    Owner *last_owner; /* borrowed: only compared */
    int closed; /* nothing below is to be captured */
    unsigned long long hits;
};

static PyTypeObject Entry_Type, Owner_Type;
static Py_ssize_t extra_index = -1;
static unsigned long long total_hits;

THREAD_LOCAL Owner *current;
THREAD_LOCAL Frame *delegated; /* the frame that an earlier evaluator was given, should it come back */
THREAD_LOCAL PyObject *flat_call; /* compiled code that is about to begin in a call of its own: no other evaluator is to see it */
THREAD_LOCAL int flat_call_closed;
THREAD_LOCAL int only_run; /* compile nothing new in this thread */
THREAD_LOCAL int depth; /* this thread's share of `users` */
static int users; /* running compiled functions, all threads */
static _PyFrameEvalFunction earlier; /* evaluator that was there before */

static PyObject *hook(PyThreadState *, Frame *, int);

/* ------------------------------------------------------------------------------------------------------------- installing the hook */
static void acquire_hook(PyThreadState *tstate) {
    depth++;
    if (users++ == 0) {
        PyInterpreterState *interp = tstate->interp;
        _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
        if (now != hook) {
            earlier = now;
            _PyInterpreterState_SetEvalFrameFunc(interp, hook);
        }
    }
}

static void release_hook(PyThreadState *tstate) {
    depth--;
    if (--users == 0) {
        PyInterpreterState *interp = tstate->interp;
        /* Somebody who came after us restores what he found; then the hook stays, passes frames on, and goes with the next release. */
        if (_PyInterpreterState_GetEvalFrameFunc(interp) == hook)
            _PyInterpreterState_SetEvalFrameFunc(interp, earlier);
    }
}

/* --------------------------------------------------------------------------------------------------------------------- code states */
static CodeState *get_state(PyObject *code) {
    void *extra = NULL;
    PyUnstable_Code_GetExtra(code, extra_index, &extra);
    return (CodeState *)extra;
}

static void unlink_entry(Entry *e) {
    if (e->home == NULL)
        return;
    if (e->previous)
        e->previous->next = e->next;
    else
        e->home->first = e->next;
    if (e->next)
        e->next->previous = e->previous;
    e->home = NULL;
    e->next = e->previous = NULL;
}

static void link_first(CodeState *state, Entry *e) {
    e->home = state;
    e->previous = NULL;
    e->next = state->first;
    if (state->first)
        state->first->previous = e;
    state->first = e;
}

static void free_state(void *extra) {
    CodeState *state = (CodeState *)extra;
    if (state == NULL)
        return;
    while (state->first)
        unlink_entry(state->first);
    PyMem_RawFree(state);
}

static CodeState *need_state(PyObject *code) {
    CodeState *state = get_state(code);
    if (state == NULL) {
        state = (CodeState *)PyMem_RawCalloc(1, sizeof(CodeState));
        if (state == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        if (PyUnstable_Code_SetExtra(code, extra_index, state) < 0) {
            PyMem_RawFree(state);
            return NULL;
        }
    }
    return state;
}

#include "_frame_versions.h"

/* ------------------------------------------------------------------------------------------------------------------------ the hook */
/* Run the entry's code in a fresh call with the frame's arguments, one by one, and behind them what the guards give. */
static PyObject *call_flat(Entry *e, const Inputs *in, PyObject **given) {
    if (e->flat_code == NULL) {
        PyCodeObject *code = (PyCodeObject *)e->code;
        PyObject *replace = PyObject_GetAttrString(e->code, "replace");
        int argcount = count_args(code) + guard_program_gives(e->program);
        PyObject *kwargs = Py_BuildValue("{sisisisi}", "co_argcount", argcount, "co_posonlyargcount", 0, "co_kwonlyargcount", 0, "co_flags",
                                         code->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS));
        PyObject *empty = PyTuple_New(0);
        if (replace && kwargs && empty)
            e->flat_code = PyObject_Call(replace, empty, kwargs);
        Py_XDECREF(replace);
        Py_XDECREF(kwargs);
        Py_XDECREF(empty);
        CodeState *state = e->flat_code ? need_state(e->flat_code) : NULL;
        if (state == NULL)
            return NULL;
        state->marks |= MARK_SKIP;
    }
    PyObject *function = PyFunction_New(e->flat_code, in->globals);
    if (function == NULL)
        return NULL;
    if (in->closure && PyFunction_SetClosure(function, in->closure) < 0) {
        Py_DECREF(function);
        return NULL;
    }
    PyObject *result = NULL, **args = in->args;
    size_t n = (size_t)in->nargs;
    if (*given) {
        args = (PyObject **)PyMem_Malloc(sizeof(PyObject *) * (n + 1));
        if (args == NULL) {
            Py_DECREF(function);
            return PyErr_NoMemory();
        }
        memcpy(args, in->args, sizeof(PyObject *) * n);
        args[n++] = *given;
    }
    flat_call = e->flat_code;
    result = call_handing_over_from(function, args, (Py_ssize_t)n, in->args, in->owned ? in->nargs : 0, *given ? given : NULL);
    flat_call = NULL;
    if (args != in->args)
        PyMem_Free(args);
    Py_DECREF(function);
    return result;
}

/* Steals `given`: the values that the entry's code finds in its first local behind the arguments, or NULL. */
static PyObject *run_entry(PyThreadState *tstate, Frame *frame, Entry *e, Owner *owner, const Inputs *in, PyObject *given) {
    PyObject *result;
    int closed = e->closed;
    current = closed ? NULL : owner;
#if OWN_FRAMES
    if (fit_frame(tstate, frame, (PyCodeObject *)e->code)) {
        if (closed)
            release_hook(tstate);
        set_frame_code(frame, (PyCodeObject *)e->code);
        if (given)
            frame->localsplus[in->nargs] = given;
        result = evaluate(tstate, frame, 0);
        if (closed)
            acquire_hook(tstate);
    } else
#endif
    {
        Py_INCREF(e);
        flat_call_closed = closed;
        result = call_flat(e, in, &given);
        Py_XDECREF(given);
        Py_DECREF(e);
        drop_frame(tstate, frame);
    }
    if (closed)
        current = owner;
    /* Otherwise `current` stays as the code left it: the frame may have been an __enter__ or __exit__ that changes it. */
    return result;
}

static PyObject *fail_frame(PyThreadState *tstate, Frame *frame) {
#if PY_VERSION_HEX >= 0x030c0000
    /* The evaluator owns the frame: let it raise the pending exception there. */
    return evaluate(tstate, frame, 1);
#else
    (void)tstate, (void)frame;
    return NULL;
#endif
}

static PyObject *locals_dict(PyCodeObject *code, const Inputs *in) {
    PyObject *locals = PyDict_New();
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *names = PyCode_GetVarnames(code), *free_names = PyCode_GetFreevars(code);
#else
    PyObject *names = code->co_varnames, *free_names = code->co_freevars;
    Py_INCREF(names);
    Py_INCREF(free_names);
#endif
    int bad = locals == NULL || names == NULL || free_names == NULL;
    for (int i = 0; !bad && i < in->nargs; i++)
        if (in->args[i])
            bad = PyDict_SetItem(locals, PyTuple_GET_ITEM(names, i), in->args[i]) < 0;
    for (Py_ssize_t i = 0; !bad && in->closure && i < PyTuple_GET_SIZE(in->closure); i++) {
        PyObject *value = PyCell_GET(PyTuple_GET_ITEM(in->closure, i));
        if (value)
            bad = PyDict_SetItem(locals, PyTuple_GET_ITEM(free_names, i), value) < 0;
    }
    Py_XDECREF(names);
    Py_XDECREF(free_names);
    if (bad)
        Py_CLEAR(locals);
    return locals;
}

/* The first entry of the owner's key whose guards hold (new reference), or NULL; `misses`, if there, gets (entry, index of the guard), `given` what
 * the guards of the entry give its code. */
static Entry *look_up(CodeState *state, Owner *owner, const Inputs *in, PyObject *misses, PyObject **given) {
    for (Entry *e = state->first, *next; e != NULL; e = next) {
        if (e->key != owner->key) {
            next = e->next;
            continue;
        }
        Py_INCREF(e); /* guards may run Python code (an __eq__), which may drop entries */
        int failed = guard_program_run(e->program, in, given);
        if (failed < 0) {
            if (state->first != e && e->home == state) {
                unlink_entry(e);
                link_first(state, e);
            }
            return e;
        }
        if (misses) {
            PyObject *pair = Py_BuildValue("(Oi)", e, failed);
            if (pair == NULL || PyList_Append(misses, pair) < 0)
                PyErr_Clear();
            Py_XDECREF(pair);
        }
        next = e->home ? e->next : NULL;
        Py_DECREF(e);
    }
    return NULL;
}

static int adopt(Owner *owner, Entry *e) {
    if (e->last_owner != owner) {
        if (PySet_Add(owner->entries, (PyObject *)e) < 0)
            return -1;
        e->last_owner = owner;
    }
    return 0;
}

static PyObject *hook(PyThreadState *tstate, Frame *frame, int throwflag) {
    Owner *owner = current;
    if (UNLIKELY(handed.slots != NULL))
        take_handed((PyObject *)FRAME_CODE(frame), FRAME_LOCALS(frame));
    if (UNLIKELY(flat_call != NULL) && (PyObject *)FRAME_CODE(frame) == flat_call) {
        int closed = flat_call_closed;
        flat_call = NULL;
        if (closed)
            release_hook(tstate);
        PyObject *result = evaluate(tstate, frame, throwflag);
        if (closed)
            acquire_hook(tstate);
        return result;
    }
    if (UNLIKELY(delegated == frame) && frame != NULL)
        return evaluate(tstate, frame, throwflag);
    /* Trace functions and what they call are no part of the program; who watches the program is to see its own lines. */
    if (owner == NULL || throwflag || tstate->tracing || is_watched(tstate))
        return pass_on(tstate, frame, throwflag);
    PyCodeObject *code = FRAME_CODE(frame);
    CodeState *state = get_state((PyObject *)code);
    if (state && state->marks) {
        if (!(state->marks & MARK_SKIP_DEEP))
            return pass_on(tstate, frame, throwflag);
        current = NULL;
        PyObject *result = pass_on(tstate, frame, throwflag);
        current = owner;
        return result;
    }
    if (!can_capture(frame, code))
        return pass_on(tstate, frame, throwflag);

    Inputs in;
    in.nargs = count_args(code);
#if OWN_FRAMES
    in.args = frame_args(frame, NULL);
    in.owned = 1;
#else
    PyObject *copy[MAX_CELL_ARGS];
    if (in.nargs > MAX_CELL_ARGS && code->co_cell2arg != NULL)
        return pass_on(tstate, frame, throwflag);
    in.args = frame_args(frame, copy);
    in.owned = in.args != copy;
#endif
    in.globals = frame->f_globals;
    in.builtins = frame->f_builtins;
#if OWN_FRAMES
    in.closure = frame_closure(frame);
#else
    in.closure = frame_closure_new(frame);
#endif
    current = NULL;
    Entry *e = NULL;
    PyObject *result = NULL, *misses = NULL, *given = NULL;
    int failed = 0;
    if (state && state->first)
        e = look_up(state, owner, &in, NULL, &given);
    if (e) {
        e->hits++;
        total_hits++;
        failed = adopt(owner, e) < 0;
    } else if (!owner->run_only && !only_run) {
        /* A second pass that writes down which guards failed: misses are rare, hits must not pay for the list. */
        misses = PyList_New(0);
        PyObject *locals = locals_dict(code, &in), *made = NULL;
        Py_INCREF(owner);
        if (misses && locals && state && state->first)
            e = look_up(state, owner, &in, misses, &given);
        if (e == NULL && misses && locals)
            made = PyObject_CallFunctionObjArgs(owner->callback, (PyObject *)owner, (PyObject *)code, locals, in.globals, in.builtins,
                                                in.closure ? in.closure : Py_None, misses, NULL);
        Py_XDECREF(locals);
        Py_XDECREF(misses);
        if (made != NULL && made != Py_None) {
            if (Py_IS_TYPE(made, &Entry_Type)) {
                e = (Entry *)made;
                made = NULL;
            } else
                PyErr_SetString(PyExc_TypeError, "the callback must return an Entry or None");
        }
        Py_XDECREF(made);
        failed = PyErr_Occurred() != NULL || (e && adopt(owner, e) < 0);
        if (e && !failed && given == NULL && guard_program_gives(e->program) && guard_program_run(e->program, &in, &given) >= 0)
            Py_CLEAR(e); /* what it was made for has changed already: this call goes on as it is */
        Py_DECREF(owner); /* the caller holds another reference */
    }
    if (failed) {
        current = NULL;
        result = fail_frame(tstate, frame);
        current = owner;
    } else if (e) {
        PyObject *keep = (PyObject *)e;
        result = run_entry(tstate, frame, e, owner, &in, given);
        given = NULL;
        Py_DECREF(keep);
        e = NULL;
    } else {
        current = owner;
        /* The callback may have marked the code: the mark counts for this frame too. */
        state = get_state((PyObject *)code);
        if (state && (state->marks & MARK_SKIP_DEEP)) {
            current = NULL;
            result = pass_on(tstate, frame, throwflag);
            current = owner;
        } else
            result = pass_on(tstate, frame, throwflag);
    }
    Py_XDECREF(e);
    Py_XDECREF(given);
#if !OWN_FRAMES
    Py_XDECREF(in.closure);
#endif
    return result;
}

#include "_frame_objects.h"

/* ----------------------------------------------------------------------------------------------------------------------- functions */
static PyObject *mark_code(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *code;
    int marks;
    if (!PyArg_ParseTuple(args, "O!i", &PyCode_Type, &code, &marks))
        return NULL;
    CodeState *state = need_state(code);
    if (state == NULL)
        return NULL;
    state->marks = marks;
    Py_RETURN_NONE;
}

static PyObject *code_marks(PyObject *Py_UNUSED(self), PyObject *code) {
    if (!PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "a code object is needed");
        return NULL;
    }
    CodeState *state = get_state(code);
    return PyLong_FromLong(state ? state->marks : 0);
}

static PyObject *code_entries(PyObject *Py_UNUSED(self), PyObject *code) {
    PyObject *list = PyList_New(0);
    if (list == NULL || !PyCode_Check(code))
        return list;
    CodeState *state = get_state(code);
    for (Entry *e = state ? state->first : NULL; e; e = e->next)
        if (PyList_Append(list, (PyObject *)e) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    return list;
}

/* look_up(owner, code, locals, globals, builtins, closure): entry whose guards hold now, for the second look under a lock */
static PyObject *python_look_up(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *owner, *code, *locals, *globals, *builtins, *closure;
    if (!PyArg_ParseTuple(args, "O!O!O!OOO", &Owner_Type, &owner, &PyCode_Type, &code, &PyDict_Type, &locals, &globals, &builtins, &closure))
        return NULL;
    CodeState *state = get_state(code);
    if (state == NULL || state->first == NULL)
        Py_RETURN_NONE;
    PyObject *values[256];
    Inputs in = {values, count_args((PyCodeObject *)code), closure == Py_None ? NULL : closure, globals, builtins};
    if (in.nargs > 256)
        Py_RETURN_NONE;
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *names = PyCode_GetVarnames((PyCodeObject *)code);
#else
    PyObject *names = ((PyCodeObject *)code)->co_varnames;
    Py_INCREF(names);
#endif
    for (int i = 0; i < in.nargs; i++)
        values[i] = PyDict_GetItemWithError(locals, PyTuple_GET_ITEM(names, i));
    Py_DECREF(names);
    Entry *e = look_up(state, (Owner *)owner, &in, NULL, NULL);
    if (e == NULL)
        Py_RETURN_NONE;
    return (PyObject *)e;
}

/* enter(owner | None) -> token; leave(token): for context managers. The token is the owner that was current. */
static PyObject *enter(PyObject *Py_UNUSED(self), PyObject *owner) {
    if (owner != Py_None && !Py_IS_TYPE(owner, &Owner_Type)) {
        PyErr_SetString(PyExc_TypeError, "an Owner or None is needed");
        return NULL;
    }
    PyObject *token = current ? (PyObject *)current : Py_None;
    Py_INCREF(token);
    if (owner == Py_None)
        current = NULL;
    else {
        Py_INCREF(owner); /* given back by leave */
        current = (Owner *)owner;
        acquire_hook(PyThreadState_Get());
    }
    return Py_BuildValue("(NO)", token, owner);
}

static PyObject *leave(PyObject *Py_UNUSED(self), PyObject *token) {
    PyObject *saved, *owner;
    if (!PyArg_ParseTuple(token, "OO", &saved, &owner))
        return NULL;
    current = saved == Py_None ? NULL : (Owner *)saved;
    if (owner != Py_None) {
        release_hook(PyThreadState_Get());
        Py_DECREF(owner);
    }
    Py_RETURN_NONE;
}

static PyObject *current_owner(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    PyObject *o = current ? (PyObject *)current : Py_None;
    Py_INCREF(o);
    return o;
}

static PyObject *set_run_only(PyObject *Py_UNUSED(self), PyObject *value) {
    int before = only_run, on = PyObject_IsTrue(value);
    if (on < 0)
        return NULL;
    only_run = on;
    return PyBool_FromLong(before);
}

static PyObject *is_installed(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyThreadState_Get()->interp) == hook);
}

static PyObject *hit_count(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) { return PyLong_FromUnsignedLongLong(total_hits); }

static PyObject *reset_hits(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    total_hits = 0;
    Py_RETURN_NONE;
}

/* In a forked child only this thread is left. */
static PyObject *after_fork(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    PyThreadState *tstate = PyThreadState_Get();
    if (users != depth) {
        users = depth;
        if (users == 0 && _PyInterpreterState_GetEvalFrameFunc(tstate->interp) == hook)
            _PyInterpreterState_SetEvalFrameFunc(tstate->interp, earlier);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"mark_code", mark_code, METH_VARARGS, "mark_code(code, marks): 0, MARK_SKIP (leave its frames alone) or MARK_SKIP_DEEP (and what they call)"},
    {"code_marks", code_marks, METH_O, "marks of a code object"},
    {"code_entries", code_entries, METH_O, "entries of a code object, most recently used first"},
    {"look_up", python_look_up, METH_VARARGS, "look_up(owner, code, locals, globals, builtins, closure) -> Entry | None"},
    {"enter", enter, METH_O, "enter(owner | None) -> token: capture under owner (None: not at all) in this thread"},
    {"leave", leave, METH_O, "leave(token): undo enter"},
    {"current_owner", current_owner, METH_NOARGS, "what this thread captures under, or None"},
    {"set_run_only", set_run_only, METH_O, "set_run_only(on) -> what it was: this thread uses what is compiled and compiles nothing"},
    {"is_installed", is_installed, METH_NOARGS, "whether the hook is installed now"},
    {"hit_count", hit_count, METH_NOARGS, "entries found by a frame so far"},
    {"reset_hits", reset_hits, METH_NOARGS, "set hit_count to 0"},
    {"after_fork", after_fork, METH_NOARGS, "for a forked child"},
    {0}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_eval_frame", "Frame evaluation hook and guard programs.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__eval_frame(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    extra_index = PyUnstable_Eval_RequestCodeExtraIndex(free_state);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "no slot for data on code objects is left");
        return NULL;
    }
#if OWN_FRAMES
    PyObject *source = Py_CompileString("def f():\n    return None\n", "<lamina>", Py_file_input);
    PyObject *consts = source ? PyObject_GetAttrString(source, "co_consts") : NULL;
    if (consts == NULL)
        return NULL;
    empty_code = (PyCodeObject *)PyTuple_GET_ITEM(consts, 0);
    Py_INCREF(empty_code);
    Py_DECREF(consts);
    Py_DECREF(source);
#endif
    earlier = _PyEval_EvalFrameDefault;
    PyTypeObject *types[] = {&Entry_Type, &Owner_Type, &Wrapper_Type};
    const char *names[] = {"Entry", "Owner", "Wrapper"};
    for (int i = 0; i < 3; i++) {
        if (PyType_Ready(types[i]) < 0)
            return NULL;
        Py_INCREF(types[i]);
        if (PyModule_AddObject(module, names[i], (PyObject *)types[i]) < 0)
            return NULL;
    }
    Py_INCREF(&Wrapper_Type);
    if (PyModule_AddObject(module, "Disabled", (PyObject *)&Wrapper_Type) < 0 || PyModule_AddIntConstant(module, "MARK_SKIP", MARK_SKIP) < 0 ||
        PyModule_AddIntConstant(module, "MARK_SKIP_DEEP", MARK_SKIP_DEEP) < 0 || guard_module_init(module) < 0 || resume_module_init(module) < 0)
        return NULL;
    return module;
}
