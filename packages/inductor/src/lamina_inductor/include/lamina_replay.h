/* Replay objects: what `mode="reduce-overhead"` calls once a CUDA graph is recorded. Part of _native.c.
 *
 * A call whose inputs lie where those of a recording lay, and whose earlier results nobody holds any more, is one launch; results are new
 * tensor objects on the recording's memory. Everything else (first calls, moved inputs, a stream that is being recorded, a failing launch) goes
 * to the Python function `slow`, which records, counts and reports. The driver's functions are given by address, so tests can stand in for them.
 */
typedef struct {
  void* exec;          /* the instantiated graph */
  void** addresses;    /* per input; NULL: not compared */
  Py_ssize_t n_copies; /* inputs that are copied into a buffer of their own first */
  Py_ssize_t* copy_from;
  unsigned long long *copy_to, *copy_bytes;
  PyObject* outputs;   /* tuple: tensors of the recording, other objects as they are */
  void** impls;        /* per output: its TensorImpl, NULL where it is no tensor */
  long long** shapes;  /* per output: dim, sizes, strides */
  Py_ssize_t n_storages;
  PyObject** storages; /* ints: addresses of the storages of the outputs */
  long long* counts;   /* their owners while nobody outside holds one */
} ReplayRecord;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *slow, *use_count;
  int device;
  Py_ssize_t n_in, n_records;
  unsigned long long replays;
  ReplayRecord* records;
  int (*launch)(void*, void*);                                             /* cuGraphLaunch */
  int (*current_stream)(int, void**);                                      /* aoti_torch_get_current_cuda_stream */
  int (*capturing)(void*, int*);                                           /* cuStreamIsCapturing */
  int (*copy)(unsigned long long, unsigned long long, size_t, void*);      /* cuMemcpyDtoDAsync */
} ReplayCall;

static PyTypeObject ReplayCallType;

static void free_record(ReplayRecord* r) {
  if (r->shapes)
    for (Py_ssize_t k = 0; r->outputs && k < PyTuple_GET_SIZE(r->outputs); ++k) PyMem_Free(r->shapes[k]);
  if (r->storages)
    for (Py_ssize_t k = 0; k < r->n_storages; ++k) Py_XDECREF(r->storages[k]);
  PyMem_Free(r->addresses), PyMem_Free(r->copy_from), PyMem_Free(r->copy_to), PyMem_Free(r->copy_bytes);
  PyMem_Free(r->impls), PyMem_Free(r->shapes), PyMem_Free(r->storages), PyMem_Free(r->counts);
  Py_XDECREF(r->outputs);
  memset(r, 0, sizeof(*r));
}

/* 1: nobody outside holds a result of the last replay, 0: someone does, -1: error */
static int is_record_free(ReplayCall* self, const ReplayRecord* r) {
  for (Py_ssize_t k = 0; k < r->n_storages; ++k) {
    PyObject* n = PyObject_Vectorcall(self->use_count, &r->storages[k], 1, NULL);
    if (!n) return -1;
    const long long have = PyLong_AsLongLong(n);
    Py_DECREF(n);
    if (have == -1 && PyErr_Occurred()) return -1;
    if (have > r->counts[k]) return 0;
  }
  return 1;
}

static PyObject* results_of(const ReplayRecord* r) {
  const Py_ssize_t n = PyTuple_GET_SIZE(r->outputs);
  PyObject* result = PyList_New(n);
  if (!result) return NULL;
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* x;
    if (r->impls[k]) {
      void* made = NULL;
      const long long* s = r->shapes[k];
      if (reinterpret(&r->impls[k], s[0], s + 1, s + 1 + s[0], 0, &made)) {
        PyErr_SetString(PyExc_RuntimeError, "lamina: a result of a replay could not be made");
        goto fail;
      }
      x = wrap_ref(made);
      delete_tensor(made);
      if (!x) goto fail;
    } else {
      x = PyTuple_GET_ITEM(r->outputs, k), Py_INCREF(x);
    }
    PyList_SET_ITEM(result, k, x);
  }
  return result;
fail:
  Py_DECREF(result);
  return NULL;
}

static PyObject* call_replay(PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  ReplayCall* self = (ReplayCall*)op;
  const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  void* at_s[SMALL];
  void** at = at_s;
  PyObject* result = NULL;
  if (!self->n_records || n != self->n_in || kwnames) goto slow;
  if (n > SMALL && !(at = (void**)PyMem_Malloc((size_t)n * sizeof(void*)))) return PyErr_NoMemory();
  for (Py_ssize_t k = 0; k < n; ++k) {
    at[k] = NULL;
    if (!is_tensor(args[k])) continue;
    void* impl = impl_of(args[k]);
    if (!impl) goto failed;
    if (data_pointer(&impl, &at[k])) goto slow;
  }
  for (Py_ssize_t i = 0; i < self->n_records; ++i) {
    const ReplayRecord* r = &self->records[i];
    Py_ssize_t k = 0;
    while (k < n && (!r->addresses[k] || r->addresses[k] == at[k])) ++k;
    if (k < n) continue;
    const int unheld = is_record_free(self, r);
    if (unheld < 0) goto failed;
    if (!unheld) continue;
    void* stream = NULL;
    int recording = 0;
    if (self->current_stream(self->device, &stream)) goto slow;
    if (self->capturing && (self->capturing(stream, &recording) || recording)) goto slow;
    for (Py_ssize_t c = 0; c < r->n_copies; ++c)
      if (self->copy(r->copy_to[c], (unsigned long long)(size_t)at[r->copy_from[c]], (size_t)r->copy_bytes[c], stream)) goto slow;
    if (self->launch(r->exec, stream)) goto slow;
    self->replays++;
    result = results_of(r);
    goto failed;
  }
slow:
  if (at != at_s) PyMem_Free(at);
  return PyObject_Vectorcall(self->slow, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
failed:
  if (at != at_s) PyMem_Free(at);
  return result;
}

/* clear(): forget all recordings */
static PyObject* replay_clear(ReplayCall* self, PyObject* none) {
  (void)none;
  for (Py_ssize_t k = 0; k < self->n_records; ++k) free_record(&self->records[k]);
  PyMem_Free(self->records);
  self->records = NULL, self->n_records = 0;
  Py_RETURN_NONE;
}

/* add(exec, addresses, copies, outputs, storages): one more recording.
 * addresses: ints, 0 where not compared; copies: (input, address of its buffer, bytes); storages: (address, owners) */
static PyObject* replay_add(ReplayCall* self, PyObject* args) {
  unsigned long long exec;
  PyObject *addresses, *copies, *outputs, *storages;
  if (!PyArg_ParseTuple(args, "KO!O!O!O!", &exec, &PyTuple_Type, &addresses, &PyTuple_Type, &copies, &PyTuple_Type, &outputs, &PyTuple_Type,
                        &storages))
    return NULL;
  if (PyTuple_GET_SIZE(addresses) != self->n_in) {
    PyErr_SetString(PyExc_ValueError, "one address for each input");
    return NULL;
  }
  ReplayRecord* more = (ReplayRecord*)PyMem_Realloc(self->records, (size_t)(self->n_records + 1) * sizeof(ReplayRecord));
  if (!more) return PyErr_NoMemory();
  self->records = more;
  ReplayRecord* r = &more[self->n_records];
  memset(r, 0, sizeof(*r));
  const Py_ssize_t n_out = PyTuple_GET_SIZE(outputs);
  r->exec = (void*)(size_t)exec;
  r->n_copies = PyTuple_GET_SIZE(copies);
  r->outputs = outputs, Py_INCREF(outputs);
  r->addresses = (void**)PyMem_Calloc((size_t)self->n_in + 1, sizeof(void*));
  r->copy_from = (Py_ssize_t*)PyMem_Calloc((size_t)r->n_copies + 1, sizeof(Py_ssize_t));
  r->copy_to = (unsigned long long*)PyMem_Calloc((size_t)r->n_copies + 1, 8);
  r->copy_bytes = (unsigned long long*)PyMem_Calloc((size_t)r->n_copies + 1, 8);
  r->impls = (void**)PyMem_Calloc((size_t)n_out + 1, sizeof(void*));
  r->shapes = (long long**)PyMem_Calloc((size_t)n_out + 1, sizeof(void*));
  r->storages = (PyObject**)PyMem_Calloc((size_t)PyTuple_GET_SIZE(storages) + 1, sizeof(PyObject*));
  r->counts = (long long*)PyMem_Calloc((size_t)PyTuple_GET_SIZE(storages) + 1, sizeof(long long));
  if (!r->addresses || !r->copy_from || !r->copy_to || !r->copy_bytes || !r->impls || !r->shapes || !r->storages || !r->counts) {
    PyErr_NoMemory();
    goto fail;
  }
  for (Py_ssize_t k = 0; k < self->n_in; ++k) r->addresses[k] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, k));
  for (Py_ssize_t k = 0; k < r->n_copies; ++k)
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(copies, k), "nKK", &r->copy_from[k], &r->copy_to[k], &r->copy_bytes[k])) goto fail;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(storages); ++k) {
    PyObject* address;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(storages, k), "O!L", &PyLong_Type, &address, &r->counts[k])) goto fail;
    Py_INCREF(address);
    r->storages[k] = address, r->n_storages = k + 1;
  }
  for (Py_ssize_t k = 0; k < n_out; ++k) {
    PyObject* o = PyTuple_GET_ITEM(outputs, k);
    if (!is_tensor(o)) continue;
    PyObject* size = PyObject_CallMethod(o, "size", NULL);
    PyObject* stride = PyObject_CallMethod(o, "stride", NULL);
    if (size && stride && PyTuple_Check(size) && PyTuple_Check(stride)) {
      const Py_ssize_t dim = PyTuple_GET_SIZE(size);
      long long* s = r->shapes[k] = (long long*)PyMem_Malloc((size_t)(2 * dim + 1) * sizeof(long long));
      if (s) {
        s[0] = dim;
        for (Py_ssize_t d = 0; d < dim; ++d)
          s[1 + d] = PyLong_AsLongLong(PyTuple_GET_ITEM(size, d)), s[1 + dim + d] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride, d));
      }
    }
    Py_XDECREF(size), Py_XDECREF(stride);
    if (PyErr_Occurred()) goto fail;
    if (!r->shapes[k] || !(r->impls[k] = impl_of(o))) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an output without sizes");
      goto fail;
    }
  }
  if (PyErr_Occurred()) goto fail;
  self->n_records++;
  Py_RETURN_NONE;
fail:
  free_record(r);
  return NULL;
}

static int replay_traverse(ReplayCall* self, visitproc visit, void* arg) {
  Py_VISIT(self->slow);
  Py_VISIT(self->use_count);
  for (Py_ssize_t k = 0; k < self->n_records; ++k) Py_VISIT(self->records[k].outputs);
  return 0;
}
static int replay_unlink(ReplayCall* self) {
  Py_CLEAR(self->slow);
  Py_CLEAR(self->use_count);
  return 0;
}
static void replay_dealloc(ReplayCall* self) {
  PyObject_GC_UnTrack(self);
  replay_unlink(self);
  for (Py_ssize_t k = 0; k < self->n_records; ++k) free_record(&self->records[k]);
  PyMem_Free(self->records);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

/* make_replay(slow, use_count, inputs, device, launch, current_stream, capturing, copy): functions by address, 0: none */
static PyObject* make_replay(PyObject* mod, PyObject* args) {
  (void)mod;
  PyObject *slow, *use_count;
  Py_ssize_t n_in;
  int device;
  unsigned long long launch, stream, capturing, copy;
  if (!PyArg_ParseTuple(args, "OOniKKKK", &slow, &use_count, &n_in, &device, &launch, &stream, &capturing, &copy)) return NULL;
  if (!tensor_type || !reinterpret || !data_pointer) {
    PyErr_SetString(PyExc_RuntimeError, "this torch does not export what a replay needs, or configure() was not called");
    return NULL;
  }
  ReplayCall* self = (ReplayCall*)ReplayCallType.tp_alloc(&ReplayCallType, 0);
  if (!self) return NULL;
  Py_INCREF(slow), Py_INCREF(use_count);
  self->vectorcall = call_replay;
  self->slow = slow, self->use_count = use_count, self->n_in = n_in, self->device = device;
  self->launch = (int (*)(void*, void*))(size_t)launch;
  self->current_stream = (int (*)(int, void**))(size_t)stream;
  self->capturing = (int (*)(void*, int*))(size_t)capturing;
  self->copy = (int (*)(unsigned long long, unsigned long long, size_t, void*))(size_t)copy;
  return (PyObject*)self;
}

static PyMethodDef replay_methods[] = {
    {"add", (PyCFunction)replay_add, METH_VARARGS, "add(exec, addresses, copies, outputs, storages): one more recording"},
    {"clear", (PyCFunction)replay_clear, METH_NOARGS, "clear(): forget all recordings"},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef replay_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ReplayCall, vectorcall), READONLY, NULL},
    {"replays", T_ULONGLONG, offsetof(ReplayCall, replays), READONLY, "how often a recording was launched from here"},
    {NULL, 0, 0, 0, NULL},
};
static PyTypeObject ReplayCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_inductor._native.ReplayCall",
    .tp_basicsize = sizeof(ReplayCall),
    .tp_dealloc = (destructor)replay_dealloc,
    .tp_vectorcall_offset = offsetof(ReplayCall, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A recorded graph with its inputs' addresses.",
    .tp_traverse = (traverseproc)replay_traverse,
    .tp_clear = (inquiry)replay_unlink,
    .tp_methods = replay_methods,
    .tp_members = replay_members,
};
