/* Frames of each CPython version: their code, arguments and cells; replacing the code of one; running and dropping one. */

#if PY_VERSION_HEX >= 0x030d0000
#define FRAME_CODE(f) ((PyCodeObject *)(f)->f_executable)
#define FRAME_FUNC(f) ((PyFunctionObject *)(f)->f_funcobj)
#elif PY_VERSION_HEX >= 0x030c0000
#define FRAME_CODE(f) ((f)->f_code)
#define FRAME_FUNC(f) ((PyFunctionObject *)(f)->f_funcobj)
#elif PY_VERSION_HEX >= 0x030b0000
#define FRAME_CODE(f) ((f)->f_code)
#define FRAME_FUNC(f) ((f)->f_func)
#else
#define FRAME_CODE(f) ((f)->f_code)
#endif

#if OWN_FRAMES
#define FRAME_LOCALS(f) ((f)->localsplus)
#else
#define FRAME_LOCALS(f) ((f)->f_localsplus)
#endif

static PyObject *evaluate(PyThreadState *tstate, Frame *frame, int throwflag) {
#if PY_VERSION_HEX >= 0x030c0000
    /* The evaluation of a frame that was called from C counts against the limit of C recursion; without a hook it would not have been. The limit
       of Python recursion counts as ever. */
    enum { C_LEVELS = PY_VERSION_HEX >= 0x030d0000 ? 1 : 2 }; /* measured: what one level takes */
    tstate->c_recursion_remaining += C_LEVELS;
    PyObject *result = _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    tstate->c_recursion_remaining -= C_LEVELS;
    return result;
#else
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
#endif
}

static PyObject *pass_on(PyThreadState *tstate, Frame *frame, int throwflag) {
    if (earlier == _PyEval_EvalFrameDefault || earlier == NULL)
        return evaluate(tstate, frame, throwflag);
    Frame *saved = delegated;
    delegated = frame;
    PyObject *result = earlier(tstate, frame, throwflag);
    delegated = saved;
    return result;
}

/* Is there somebody who follows the program line by line (sys.settrace; since 3.12 debuggers, coverage tools and others under sys.monitoring)?
 * Profilers do not count: they would measure something else. */
static int is_watched(PyThreadState *tstate) {
    if (tstate->c_tracefunc != NULL)
        return 1;
#if PY_VERSION_HEX >= 0x030c0000
    enum { PROFILER = 2, OF_USERS = 6 }; /* sys.monitoring.PROFILER_ID; behind them are the ids of settrace and setprofile */
    PyObject **tools = tstate->interp->monitoring_tool_names;
    for (int i = 0; i < OF_USERS; i++)
        if (tools[i] != NULL && i != PROFILER)
            return 1;
#endif
    return 0;
}

static int count_args(PyCodeObject *code) {
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
}

static int can_capture(Frame *frame, PyCodeObject *code) {
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) || (code->co_flags & (CO_OPTIMIZED | CO_NEWLOCALS)) != (CO_OPTIMIZED | CO_NEWLOCALS))
        return 0;
#if OWN_FRAMES
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->frame_obj == NULL;
#else
    return frame->f_lasti < 0;
#endif
}

#if OWN_FRAMES
static PyObject **frame_args(Frame *frame, PyObject **Py_UNUSED(copy)) { return frame->localsplus; }
static PyObject *frame_closure(Frame *frame) { return FRAME_FUNC(frame)->func_closure; }

static int frame_slots(PyCodeObject *code) {
#if PY_VERSION_HEX >= 0x030c0000
    return code->co_framesize;
#else
    return code->co_nlocalsplus + code->co_stacksize + (int)FRAME_SPECIALS_SIZE;
#endif
}

/* Give the frame, which has not started, another code object. The caller has made sure that it fits. Steals nothing. */
static void set_frame_code(Frame *frame, PyCodeObject *code) {
    PyCodeObject *old = FRAME_CODE(frame);
    Py_INCREF(code);
#if PY_VERSION_HEX >= 0x030d0000
    frame->f_executable = (PyObject *)code;
    frame->instr_ptr = _PyCode_CODE(code);
#else
    frame->f_code = code;
    frame->prev_instr = _PyCode_CODE(code) - 1;
#endif
    frame->stacktop = code->co_nlocalsplus;
    Py_DECREF(old);
}

static int fit_frame(PyThreadState *tstate, Frame *frame, PyCodeObject *code) {
    PyCodeObject *old = FRAME_CODE(frame);
    int have = frame_slots(old), want = frame_slots(code);
    if (want > have) {
        PyObject **base = (PyObject **)frame;
        if (tstate->datastack_top != base + have || base + want >= tstate->datastack_limit)
            return 0;
        tstate->datastack_top = base + want;
    }
    for (int i = count_args(old); i < old->co_nlocalsplus; i++)
        Py_CLEAR(frame->localsplus[i]);
    for (int i = count_args(old); i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    return 1;
}

static PyCodeObject *empty_code; /* return None */

/* Dispose of a frame whose work was done elsewhere. Keeps a pending exception. */
static void drop_frame(PyThreadState *tstate, Frame *frame) {
#if PY_VERSION_HEX >= 0x030c0000
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; i < FRAME_CODE(frame)->co_nlocalsplus; i++)
        Py_CLEAR(frame->localsplus[i]);
    set_frame_code(frame, empty_code);
    PyObject *none = evaluate(tstate, frame, 0);
    Py_XDECREF(none);
    PyErr_Restore(type, value, traceback);
#else
    (void)tstate, (void)frame; /* the caller of the hook does it */
#endif
}
#else
#define MAX_CELL_ARGS 24 /* kept small: this lies on the C stack of every recursive call */
/* 3.10: an argument that is also a cell has been moved into its cell already. */
static PyObject **frame_args(Frame *frame, PyObject **copy) {
    PyCodeObject *code = frame->f_code;
    if (code->co_cell2arg == NULL)
        return frame->f_localsplus;
    int n = count_args(code);
    for (int i = 0; i < n; i++)
        copy[i] = frame->f_localsplus[i];
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(code->co_cellvars); k++)
        if (code->co_cell2arg[k] != CO_CELL_NOT_AN_ARG)
            copy[code->co_cell2arg[k]] = PyCell_GET(frame->f_localsplus[code->co_nlocals + k]);
    return copy;
}

/* New reference here, so that it can be made up from the frame's cells. */
static PyObject *frame_closure_new(Frame *frame) {
    PyCodeObject *code = frame->f_code;
    Py_ssize_t n = PyTuple_GET_SIZE(code->co_freevars), first = code->co_nlocals + PyTuple_GET_SIZE(code->co_cellvars);
    if (n == 0)
        return NULL;
    PyObject *cells = PyTuple_New(n);
    for (Py_ssize_t i = 0; cells && i < n; i++) {
        Py_INCREF(frame->f_localsplus[first + i]);
        PyTuple_SET_ITEM(cells, i, frame->f_localsplus[first + i]);
    }
    return cells;
}

static void drop_frame(PyThreadState *Py_UNUSED(tstate), Frame *Py_UNUSED(frame)) {}
#endif
