/* The Python types of the hook: Entry (one compiled version of a code object), Owner (what a call of a compiled function runs under), Wrapper (the
 * compiled function itself). */

/* Entry(key, original code, new code, program, info, closed) */
static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *key, *original, *code, *program, *info;
    int closed;
    if (!PyArg_ParseTuple(args, "OO!O!O!Op", &key, &PyCode_Type, &original, &PyCode_Type, &code, &GuardProgram_Type, &program, &info, &closed))
        return NULL;
    PyCodeObject *a = (PyCodeObject *)original, *b = (PyCodeObject *)code;
    if (count_args(a) != count_args(b) || a->co_argcount != b->co_argcount || a->co_kwonlyargcount != b->co_kwonlyargcount ||
        (a->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != (b->co_flags & (CO_VARARGS | CO_VARKEYWORDS))) {
        PyErr_SetString(PyExc_ValueError, "the new code must take the arguments of the old one");
        return NULL;
    }
    if (guard_program_gives((GuardProgram *)program) && b->co_nlocals <= count_args(b)) {
        PyErr_SetString(PyExc_ValueError, "the new code has no local for what the guards give");
        return NULL;
    }
    CodeState *state = need_state(original);
    if (state == NULL)
        return NULL;
    Entry *e = (Entry *)type->tp_alloc(type, 0);
    if (e == NULL)
        return NULL;
    Py_INCREF(key);
    e->key = key;
    Py_INCREF(code);
    e->code = code;
    Py_INCREF(program);
    e->program = (GuardProgram *)program;
    Py_INCREF(info);
    e->info = info;
    e->closed = closed;
    link_first(state, e);
    return (PyObject *)e;
}

static int entry_traverse(Entry *e, visitproc visit, void *arg) {
    Py_VISIT(e->key);
    Py_VISIT(e->code);
    Py_VISIT(e->flat_code);
    Py_VISIT(e->program);
    Py_VISIT(e->info);
    return 0;
}

static int entry_clear(Entry *e) {
    unlink_entry(e);
    Py_CLEAR(e->info);
    return 0;
}

static void entry_dealloc(Entry *e) {
    PyObject_GC_UnTrack(e);
    entry_clear(e);
    Py_CLEAR(e->key);
    Py_CLEAR(e->code);
    Py_CLEAR(e->flat_code);
    Py_CLEAR(e->program);
    Py_TYPE(e)->tp_free((PyObject *)e);
}

static PyObject *entry_unlink(Entry *e, PyObject *Py_UNUSED(ignored)) {
    unlink_entry(e);
    Py_RETURN_NONE;
}

static PyObject *entry_linked(Entry *e, void *Py_UNUSED(closure)) { return PyBool_FromLong(e->home != NULL); }

static PyMemberDef entry_members[] = {
    {"key", T_OBJECT, offsetof(Entry, key), READONLY, "owners with this very key may use it"},
    {"code", T_OBJECT, offsetof(Entry, code), READONLY, "code that runs in place of the original"},
    {"program", T_OBJECT, offsetof(Entry, program), READONLY, "guard program"},
    {"info", T_OBJECT, offsetof(Entry, info), 0, "what the compiler noted about it"},
    {"closed", T_INT, offsetof(Entry, closed), READONLY, "nothing below is captured"},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), READONLY, "times found in the cache"},
    {0}};
static PyMethodDef entry_methods[] = {{"unlink", (PyCFunction)entry_unlink, METH_NOARGS, "Take it out of the code's cache."}, {0}};
static PyGetSetDef entry_getset[] = {{"linked", (getter)entry_linked, NULL, "whether a code object still offers it", NULL}, {0}};

static PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_dynamo._eval_frame.Entry",
    .tp_doc = "Entry(key, original, code, program, info, closed): one compiled version of a code object.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_members = entry_members,
    .tp_methods = entry_methods,
    .tp_getset = entry_getset,
};

/* Owner(key, callback, run_only=False) */
static PyObject *owner_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *key, *callback;
    int run_only = 0;
    if (!PyArg_ParseTuple(args, "OO|p", &key, &callback, &run_only))
        return NULL;
    Owner *o = (Owner *)type->tp_alloc(type, 0);
    if (o == NULL)
        return NULL;
    Py_INCREF(key);
    o->key = key;
    Py_INCREF(callback);
    o->callback = callback;
    o->run_only = run_only;
    o->entries = PySet_New(NULL);
    o->state = PyDict_New();
    if (o->entries == NULL || o->state == NULL) {
        Py_DECREF(o);
        return NULL;
    }
    return (PyObject *)o;
}

static int owner_traverse(Owner *o, visitproc visit, void *arg) {
    Py_VISIT(o->key);
    Py_VISIT(o->callback);
    Py_VISIT(o->entries);
    Py_VISIT(o->state);
    return 0;
}

/* Addresses are compared with last_owner: entries that outlive this owner must not take a later one for it. */
static void forget_owner(Owner *o) {
    if (o->entries == NULL)
        return;
    PyObject *iterator = PyObject_GetIter(o->entries), *item;
    while (iterator && (item = PyIter_Next(iterator)) != NULL) {
        if (((Entry *)item)->last_owner == o)
            ((Entry *)item)->last_owner = NULL;
        Py_DECREF(item);
    }
    Py_XDECREF(iterator);
}

static int owner_clear(Owner *o) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    forget_owner(o);
    PyErr_Restore(type, value, traceback);
    Py_CLEAR(o->entries);
    Py_CLEAR(o->key);
    Py_CLEAR(o->callback);
    Py_CLEAR(o->state);
    return 0;
}

static void owner_dealloc(Owner *o) {
    PyObject_GC_UnTrack(o);
    if (o->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)o);
    owner_clear(o);
    Py_TYPE(o)->tp_free((PyObject *)o);
}

static PyObject *owner_drop(Owner *o, PyObject *Py_UNUSED(ignored)) {
    forget_owner(o);
    PyObject *old = o->entries;
    PyObject *iterator = PyObject_GetIter(old), *item;
    while (iterator && (item = PyIter_Next(iterator)) != NULL) {
        unlink_entry((Entry *)item);
        Py_DECREF(item);
    }
    Py_XDECREF(iterator);
    o->entries = PySet_New(NULL);
    Py_DECREF(old);
    if (o->entries == NULL)
        return NULL;
    PyDict_Clear(o->state);
    Py_RETURN_NONE;
}

static PyMemberDef owner_members[] = {
    {"key", T_OBJECT, offsetof(Owner, key), READONLY, "entries made for this very object count"},
    {"callback", T_OBJECT, offsetof(Owner, callback), READONLY, "called on a miss"},
    {"entries", T_OBJECT, offsetof(Owner, entries), READONLY, "entries that it used"},
    {"state", T_OBJECT, offsetof(Owner, state), READONLY, "a dict for the callback"},
    {"run_only", T_INT, offsetof(Owner, run_only), READONLY, "use what is there, compile nothing"},
    {0}};
static PyMethodDef owner_methods[] = {{"drop", (PyCFunction)owner_drop, METH_NOARGS, "Forget every entry and all state."}, {0}};

static PyTypeObject Owner_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_dynamo._eval_frame.Owner",
    .tp_doc = "Owner(key, callback, run_only=False): what a compiled function runs under.",
    .tp_basicsize = sizeof(Owner),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = owner_new,
    .tp_dealloc = (destructor)owner_dealloc,
    .tp_traverse = (traverseproc)owner_traverse,
    .tp_clear = (inquiry)owner_clear,
    .tp_weaklistoffset = offsetof(Owner, weakrefs),
    .tp_members = owner_members,
    .tp_methods = owner_methods,
};

/* A callable that calls `function` under an owner (NULL: with capture off). Binds like a function. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    Owner *owner;
    PyObject *dict;
    PyObject *weakrefs;
} Wrapper;

static PyObject *wrapper_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Wrapper *w = (Wrapper *)self;
    Owner *saved = current, *owner = w->owner;
    PyObject *result;
    if (owner == NULL) {
        if (saved == NULL)
            return PyObject_Vectorcall(w->function, args, nargsf, kwnames);
        current = NULL;
        result = PyObject_Vectorcall(w->function, args, nargsf, kwnames);
        current = saved;
        return result;
    }
    PyThreadState *tstate = PyThreadState_Get();
    Py_INCREF(owner);
    acquire_hook(tstate);
    current = owner;
    result = PyObject_Vectorcall(w->function, args, nargsf, kwnames);
    current = saved;
    release_hook(tstate);
    Py_DECREF(owner);
    return result;
}

static PyObject *wrapper_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *function, *owner = Py_None;
    if (!PyArg_ParseTuple(args, "O|O", &function, &owner))
        return NULL;
    if (owner != Py_None && !Py_IS_TYPE(owner, &Owner_Type)) {
        PyErr_SetString(PyExc_TypeError, "owner must be an Owner or None");
        return NULL;
    }
    Wrapper *w = (Wrapper *)type->tp_alloc(type, 0);
    if (w == NULL)
        return NULL;
    w->vectorcall = wrapper_call;
    Py_INCREF(function);
    w->function = function;
    if (owner != Py_None) {
        Py_INCREF(owner);
        w->owner = (Owner *)owner;
    }
    return (PyObject *)w;
}

static int wrapper_traverse(Wrapper *w, visitproc visit, void *arg) {
    Py_VISIT(w->function);
    Py_VISIT(w->owner);
    Py_VISIT(w->dict);
    return 0;
}

static int wrapper_clear(Wrapper *w) {
    Py_CLEAR(w->function);
    Py_CLEAR(w->owner);
    Py_CLEAR(w->dict);
    return 0;
}

static void wrapper_dealloc(Wrapper *w) {
    PyObject_GC_UnTrack(w);
    if (w->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)w);
    wrapper_clear(w);
    Py_TYPE(w)->tp_free((PyObject *)w);
}

static PyObject *wrapper_bind(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type)) {
    if (object == NULL || object == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, object);
}

static PyObject *wrapper_getattr(PyObject *self, PyObject *name) {
    PyObject *found = _PyObject_GenericGetAttrWithDict(self, name, NULL, 1);
    if (found != NULL || PyErr_Occurred())
        return found;
    return PyObject_GetAttr(((Wrapper *)self)->function, name);
}

static PyObject *wrapper_repr(PyObject *self) {
    Wrapper *w = (Wrapper *)self;
    return PyUnicode_FromFormat(w->owner ? "<compiled %R>" : "<uncompiled %R>", w->function);
}

static PyMemberDef wrapper_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Wrapper, function), READONLY, "the original"},
    {"owner", T_OBJECT, offsetof(Wrapper, owner), READONLY, "what it runs under"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapper, vectorcall), READONLY, NULL},
    {0}};
static PyGetSetDef wrapper_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};

static PyTypeObject Wrapper_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_dynamo._eval_frame.Wrapper",
    .tp_doc = "Wrapper(function, owner=None): calls function under owner, or with capture off.",
    .tp_basicsize = sizeof(Wrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE,
    .tp_new = wrapper_new,
    .tp_dealloc = (destructor)wrapper_dealloc,
    .tp_traverse = (traverseproc)wrapper_traverse,
    .tp_clear = (inquiry)wrapper_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Wrapper, vectorcall),
    .tp_descr_get = wrapper_bind,
    .tp_getattro = wrapper_getattr,
    .tp_repr = wrapper_repr,
    .tp_dictoffset = offsetof(Wrapper, dict),
    .tp_weaklistoffset = offsetof(Wrapper, weakrefs),
    .tp_members = wrapper_members,
    .tp_getset = wrapper_getset,
};
