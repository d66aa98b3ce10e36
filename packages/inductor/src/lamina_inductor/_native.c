/* One native call per graph.
 *
 * GraphCall objects are called with one list (boxed: its items are taken out and given up as soon as the graph is done with them) or with
 * positional arguments (`unboxed`). Tensors are read straight out of their Python objects where a self-check at import found the layout known,
 * through `_cdata` otherwise; results are wrapped by torch's own exported function.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include "lamina_frame.h"

static PyTypeObject* tensor_type = NULL;
static Py_ssize_t cell_offset = -1; /* where a tensor object keeps its TensorImpl*; -1: unknown */
static PyObject* (*wrap_ref)(void*) = NULL;  /* THPVariable_Wrap(const at::TensorBase&) */
static int (*delete_tensor)(void*) = NULL;
static int (*new_handle)(void*, void**) = NULL;
static const char* (*last_error)(void) = NULL;
static int (*data_pointer)(void*, void**) = NULL; /* these two are needed by replays alone */
static int (*reinterpret)(void*, long long, const long long*, const long long*, long long, void**) = NULL;
static PyObject* str_cdata = NULL;

static int is_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type); }

/* The TensorImpl* of a tensor object; NULL with an error set. */
static void* impl_of(PyObject* o) {
  if (cell_offset >= 0) {
    void* p;
    memcpy(&p, (char*)o + cell_offset, sizeof(p));
    if (p) return p;
  }
  PyObject* n = PyObject_GetAttr(o, str_cdata);
  if (!n) return NULL;
  void* p = PyLong_AsVoidPtr(n);
  Py_DECREF(n);
  return p;
}

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  int (*run)(LaminaFrame*);
  Py_ssize_t n_in, n_out, n_constants, n_kernels;
  int boxed, release_gil;
  char* kinds;             /* per input: 't' tensor, 'i' int, '?' anything, unused */
  char* out_kinds;         /* 't' tensor, 'i' int, 'a' the input itself, 'p' a Python object */
  Py_ssize_t* out_index;   /* for 'a': which input */
  PyObject* out_objects;   /* tuple, for 'p' */
  PyObject* constants;     /* tuple of tensors */
  void** constant_impls;
  void** constant_handles;
  LaminaKernel* kernels;
  PyObject* python;        /* tuple of callables or None, by extern number */
  PyObject* keep;          /* what has to stay loaded */
} GraphCall;

typedef struct {
  GraphCall* self;
  PyObject** owned; /* boxed: our references; NULL otherwise */
  PyObject* sinks;  /* NULL, or a list: per result None or the tensor that it is added to as soon as it is ready */
  PyThreadState* thread;
} Owner;

static PyTypeObject GraphCallType;

static int take_result(PyObject* item, void** out, long long* number) {
  if (item == Py_None) {
    *out = NULL;
    return 0;
  }
  if (is_tensor(item)) {
    void* impl = impl_of(item);
    if (!impl) return -1;
    if (new_handle(&impl, out)) {
      PyErr_SetString(PyExc_RuntimeError, "lamina: a result tensor could not be referenced");
      return -1;
    }
    return 0;
  }
  *out = NULL;
  if (PyBool_Check(item) || PyLong_Check(item)) {
    *number = PyLong_AsLongLong(item);
    return PyErr_Occurred() ? -1 : 0;
  }
  if (PyFloat_Check(item)) {
    double d = PyFloat_AS_DOUBLE(item);
    memcpy(number, &d, sizeof(d));
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "lamina: an extern op returned a %.100s", Py_TYPE(item)->tp_name);
  return -1;
}

static int call_python(LaminaFrame* f, int step, void** tensors, int nt, const long long* ints, int ni, void** outs, long long* out_ints,
                       int no) {
  Owner* o = (Owner*)f->owner;
  GraphCall* self = o->self;
  int failed = 1;
  if (o->thread) PyEval_RestoreThread(o->thread), o->thread = NULL;
  PyObject *t = PyList_New(nt), *i = PyList_New(ni), *r = NULL;
  if (!t || !i) goto done;
  for (int k = 0; k < nt; ++k) {
    PyObject* x = wrap_ref(tensors[k]);
    if (!x) goto done;
    PyList_SET_ITEM(t, k, x);
  }
  for (int k = 0; k < ni; ++k) {
    PyObject* x = PyLong_FromLongLong(ints[k]);
    if (!x) goto done;
    PyList_SET_ITEM(i, k, x);
  }
  r = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(self->python, step), t, i, NULL);
  if (!r) goto done;
  {
    PyObject* fast = PySequence_Fast(r, "lamina: an extern op must return a sequence");
    if (!fast) goto done;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    int bad = 0;
    for (int k = 0; k < no && k < n && !bad; ++k) bad = take_result(PySequence_Fast_GET_ITEM(fast, k), &outs[k], &out_ints[k]);
    Py_DECREF(fast);
    if (!bad && n < no) {
      PyErr_Format(PyExc_RuntimeError, "lamina: extern op %d returned %zd results, expected %d", step, n, no);
      bad = 1;
    }
    if (bad) {
      for (int k = 0; k < no; ++k)
        if (outs[k]) delete_tensor(outs[k]), outs[k] = NULL;
      goto done;
    }
  }
  failed = 0;
done:
  Py_XDECREF(t);
  Py_XDECREF(i);
  Py_XDECREF(r);
  if (!failed && self->release_gil) o->thread = PyEval_SaveThread();
  return failed;
}

static void drop_input(LaminaFrame* f, int k) {
  Owner* o = (Owner*)f->owner;
  if (!o->owned || !o->owned[k]) return;
  PyObject* x = o->owned[k];
  o->owned[k] = NULL;
  if (o->thread) {
    PyEval_RestoreThread(o->thread);
    o->thread = NULL;
    Py_DECREF(x);
    o->thread = PyEval_SaveThread();
  } else {
    Py_DECREF(x);
  }
}

/* Adds a result to the tensor that waits for it and lets go of it: `sink.add_(result)`. */
static int add_to_sink(LaminaFrame* f, int k) {
  Owner* o = (Owner*)f->owner;
  PyObject* sink = PyList_GET_ITEM(o->sinks, k);
  if (sink == Py_None || !f->out[k]) return 0;
  if (o->thread) PyEval_RestoreThread(o->thread), o->thread = NULL;
  PyObject* x = wrap_ref(f->out[k]);
  delete_tensor(f->out[k]);
  f->out[k] = NULL;
  PyObject* r = x ? PyObject_CallMethod(sink, "add_", "O", x) : NULL;
  const int failed = !r;
  Py_XDECREF(r);
  Py_XDECREF(x);
  if (!failed && o->self->release_gil) o->thread = PyEval_SaveThread();
  return failed;
}

static void raise_failure(GraphCall* self, LaminaFrame* f) {
  if (PyErr_Occurred()) return;
  if (f->error_kind) {
    PyObject* builtins = PyEval_GetBuiltins();
    PyObject* kind = builtins ? PyDict_GetItemString(builtins, f->error_kind) : NULL;
    PyErr_SetString(kind ? kind : PyExc_RuntimeError, f->error_text ? f->error_text : "");
    return;
  }
  const char* text = last_error ? last_error() : NULL;
  PyErr_SetString(PyExc_RuntimeError, text && *text ? text : "an operator called from compiled code failed (its message was printed)");
}

#define SMALL 32

static PyObject* run_graph(GraphCall* self, PyObject* const* args, PyObject** owned, PyObject* sinks) {
  void *impls_s[SMALL], *in_s[SMALL], *out_s[SMALL];
  long long ints_s[SMALL], out_ints_s[SMALL];
  Py_ssize_t ni = self->n_in, no = self->n_out;
  void **impls = impls_s, **in = in_s, **out = out_s;
  long long *ints = ints_s, *out_ints = out_ints_s;
  void* block = NULL;
  PyObject* result = NULL;
  if (ni > SMALL || no > SMALL) {
    block = PyMem_Malloc((size_t)(ni * 3 + no * 2 + 1) * 8);
    if (!block) return PyErr_NoMemory();
    impls = (void**)block, in = impls + ni, ints = (long long*)(in + ni), out = (void**)(ints + ni), out_ints = (long long*)(out + no);
  }
  memset(out, 0, (size_t)no * sizeof(void*));
  for (Py_ssize_t k = 0; k < ni; ++k) {
    PyObject* o = args[k];
    ints[k] = 0;
    if (is_tensor(o)) {
      impls[k] = impl_of(o);
      if (!impls[k]) goto done;
      in[k] = &impls[k]; /* an at::Tensor is one pointer to its TensorImpl */
      continue;
    }
    in[k] = NULL;
    if (self->kinds[k] == 't') {
      PyErr_Format(PyExc_TypeError, "lamina: input %zd must be a tensor, not %.100s", k, Py_TYPE(o)->tp_name);
      goto done;
    }
    if (self->kinds[k] == 'i') {
      ints[k] = PyLong_AsLongLong(o);
      if (ints[k] == -1 && PyErr_Occurred()) goto done;
    }
  }
  {
    Owner owner = {self, owned, sinks, NULL};
    LaminaFrame f = {in, ints, out, out_ints, self->constant_handles, self->kernels, NULL, NULL, -1, call_python, drop_input, &owner,
                     sinks ? add_to_sink : NULL};
    if (self->release_gil) owner.thread = PyEval_SaveThread();
    int failed = self->run(&f);
    if (owner.thread) PyEval_RestoreThread(owner.thread);
    if (failed) {
      raise_failure(self, &f);
      goto done;
    }
  }
  result = self->boxed && owned ? PyList_New(no) : PyTuple_New(no);
  if (!result) goto done;
  for (Py_ssize_t k = 0; k < no; ++k) {
    PyObject* x = NULL;
    switch (self->out_kinds[k]) {
      case 't':
        if (!out[k] && sinks && PyList_GET_ITEM(sinks, k) != Py_None) {
          x = Py_None, Py_INCREF(x);
          break;
        }
        x = wrap_ref(out[k]);
        delete_tensor(out[k]);
        out[k] = NULL;
        break;
      case 'i': x = PyLong_FromLongLong(out_ints[k]); break;
      case 'a': x = args[self->out_index[k]], Py_INCREF(x); break;
      default: x = PyTuple_GET_ITEM(self->out_objects, k), Py_INCREF(x); break;
    }
    if (!x) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "lamina: a result could not be wrapped");
      Py_CLEAR(result);
      goto done;
    }
    if (self->boxed && owned) PyList_SET_ITEM(result, k, x);
    else PyTuple_SET_ITEM(result, k, x);
  }
done:
  for (Py_ssize_t k = 0; k < no; ++k)
    if (out[k]) delete_tensor(out[k]);
  if (block) PyMem_Free(block);
  return result;
}

static PyObject* call_graph(PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  GraphCall* self = (GraphCall*)op;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (kwnames && PyTuple_GET_SIZE(kwnames)) {
    PyErr_SetString(PyExc_TypeError, "a compiled graph takes no keyword arguments");
    return NULL;
  }
  if (!self->boxed) {
    if (n != self->n_in) {
      PyErr_Format(PyExc_TypeError, "the compiled graph takes %zd inputs, got %zd", self->n_in, n);
      return NULL;
    }
    return run_graph(self, args, NULL, NULL);
  }
  if (n < 1 || n > 2 || !PyList_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "a boxed compiled graph takes one list");
    return NULL;
  }
  PyObject* sinks = n == 2 && args[1] != Py_None ? args[1] : NULL;
  if (sinks && (!PyList_Check(sinks) || PyList_GET_SIZE(sinks) != self->n_out)) {
    PyErr_SetString(PyExc_TypeError, "the tensors that results are added to come in a list, one for each result");
    return NULL;
  }
  PyObject* list = args[0];
  if (PyList_GET_SIZE(list) != self->n_in) {
    PyErr_Format(PyExc_TypeError, "the compiled graph takes %zd inputs, got %zd", self->n_in, PyList_GET_SIZE(list));
    return NULL;
  }
  PyObject* small[SMALL];
  PyObject** owned = small;
  if (self->n_in > SMALL) {
    owned = (PyObject**)PyMem_Malloc((size_t)self->n_in * sizeof(PyObject*));
    if (!owned) return PyErr_NoMemory();
  }
  for (Py_ssize_t k = 0; k < self->n_in; ++k) owned[k] = PyList_GET_ITEM(list, k), Py_INCREF(owned[k]);
  if (PyList_SetSlice(list, 0, self->n_in, NULL) < 0) PyErr_Clear();
  /* inputs that are handed out again must survive a drop */
  PyObject* again = NULL;
  for (Py_ssize_t k = 0; k < self->n_out; ++k)
    if (self->out_kinds[k] == 'a') {
      if (!again) again = PyList_New(0);
      if (again) PyList_Append(again, owned[self->out_index[k]]);
    }
  PyObject* view_s[SMALL];
  PyObject** view = view_s;
  if (self->n_in > SMALL) view = (PyObject**)PyMem_Malloc((size_t)self->n_in * sizeof(PyObject*));
  PyObject* r = NULL;
  if (view) {
    memcpy(view, owned, (size_t)self->n_in * sizeof(PyObject*));
    r = run_graph(self, view, owned, sinks);
    if (view != view_s) PyMem_Free(view);
  } else {
    PyErr_NoMemory();
  }
  Py_XDECREF(again);
  for (Py_ssize_t k = 0; k < self->n_in; ++k) Py_XDECREF(owned[k]);
  if (owned != small) PyMem_Free(owned);
  return r;
}

static int graph_traverse(GraphCall* self, visitproc visit, void* arg) {
  Py_VISIT(self->out_objects);
  Py_VISIT(self->constants);
  Py_VISIT(self->python);
  Py_VISIT(self->keep);
  return 0;
}
static int graph_clear(GraphCall* self) {
  Py_CLEAR(self->out_objects);
  Py_CLEAR(self->python);
  Py_CLEAR(self->keep);
  return 0;
}
static void graph_dealloc(GraphCall* self) {
  PyObject_GC_UnTrack(self);
  graph_clear(self);
  Py_CLEAR(self->constants);
  PyMem_Free(self->kinds);
  PyMem_Free(self->out_kinds);
  PyMem_Free(self->out_index);
  PyMem_Free(self->constant_impls);
  PyMem_Free(self->constant_handles);
  PyMem_Free(self->kernels);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

static char* copy_text(PyObject* text, Py_ssize_t* n) {
  const char* s = PyUnicode_AsUTF8AndSize(text, n);
  if (!s) return NULL;
  char* r = (char*)PyMem_Malloc((size_t)*n + 1);
  if (!r) return (char*)PyErr_NoMemory();
  memcpy(r, s, (size_t)*n + 1);
  return r;
}

/* make(run, boxed, release_gil, kinds, out_kinds, out_index, out_objects, constants, kernels, python, keep) */
static PyObject* make(PyObject* mod, PyObject* args) {
  unsigned long long run;
  int boxed, release;
  PyObject *kinds, *out_kinds, *out_index, *out_objects, *constants, *kernels, *python, *keep;
  if (!PyArg_ParseTuple(args, "KppUUO!O!O!O!O!O", &run, &boxed, &release, &kinds, &out_kinds, &PyTuple_Type, &out_index, &PyTuple_Type, &out_objects,
                        &PyTuple_Type, &constants, &PyTuple_Type, &kernels, &PyTuple_Type, &python, &keep))
    return NULL;
  if (!tensor_type || !wrap_ref) {
    PyErr_SetString(PyExc_RuntimeError, "configure() first");
    return NULL;
  }
  GraphCall* self = (GraphCall*)GraphCallType.tp_alloc(&GraphCallType, 0);
  if (!self) return NULL;
  self->vectorcall = call_graph;
  self->run = (int (*)(LaminaFrame*))(size_t)run;
  self->boxed = boxed, self->release_gil = release;
  Py_INCREF(out_objects), Py_INCREF(constants), Py_INCREF(python), Py_INCREF(keep);
  self->out_objects = out_objects, self->constants = constants, self->python = python, self->keep = keep;
  self->kinds = copy_text(kinds, &self->n_in);
  self->out_kinds = copy_text(out_kinds, &self->n_out);
  self->n_constants = PyTuple_GET_SIZE(constants);
  self->n_kernels = PyTuple_GET_SIZE(kernels);
  self->out_index = (Py_ssize_t*)PyMem_Calloc((size_t)self->n_out + 1, sizeof(Py_ssize_t));
  self->constant_impls = (void**)PyMem_Calloc((size_t)self->n_constants + 1, sizeof(void*));
  self->constant_handles = (void**)PyMem_Calloc((size_t)self->n_constants + 1, sizeof(void*));
  self->kernels = (LaminaKernel*)PyMem_Calloc((size_t)self->n_kernels + 1, sizeof(LaminaKernel));
  if (!self->kinds || !self->out_kinds || !self->out_index || !self->constant_impls || !self->constant_handles || !self->kernels) goto fail;
  if (PyTuple_GET_SIZE(out_index) != self->n_out || PyTuple_GET_SIZE(out_objects) != self->n_out) {
    PyErr_SetString(PyExc_ValueError, "lengths of the output description differ");
    goto fail;
  }
  for (Py_ssize_t k = 0; k < self->n_out; ++k) {
    self->out_index[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(out_index, k));
    if (PyErr_Occurred()) goto fail;
    if (self->out_kinds[k] == 'a' && (self->out_index[k] < 0 || self->out_index[k] >= self->n_in)) {
      PyErr_SetString(PyExc_ValueError, "an output names an input that is not there");
      goto fail;
    }
  }
  for (Py_ssize_t k = 0; k < self->n_constants; ++k) {
    PyObject* o = PyTuple_GET_ITEM(constants, k);
    if (!is_tensor(o)) {
      PyErr_SetString(PyExc_TypeError, "a constant must be a tensor");
      goto fail;
    }
    self->constant_impls[k] = impl_of(o);
    if (!self->constant_impls[k]) goto fail;
    self->constant_handles[k] = &self->constant_impls[k];
  }
  for (Py_ssize_t k = 0; k < self->n_kernels; ++k) {
    self->kernels[k] = (LaminaKernel)PyLong_AsVoidPtr(PyTuple_GET_ITEM(kernels, k));
    if (PyErr_Occurred()) goto fail;
  }
  return (PyObject*)self;
fail:
  Py_DECREF(self);
  return NULL;
}

#include "lamina_replay.h"

static void* find(void* lib, const char* const* names) {
  for (; *names; ++names) {
    void* p = dlsym(lib, *names);
    if (p) return p;
  }
  return NULL;
}

/* configure(tensor type, a tensor, path of libtorch_cpu, path of libtorch_python): finds torch's functions in the libraries that are already
 * loaded, makes them visible to generated code, and checks where tensor objects keep their TensorImpl. Returns "direct" or "attribute". */
static PyObject* configure(PyObject* mod, PyObject* args) {
  PyObject *type, *sample;
  const char *cpu, *python;
  if (!PyArg_ParseTuple(args, "O!Oss", &PyType_Type, &type, &sample, &cpu, &python)) return NULL;
  void* lib = dlopen(cpu, RTLD_NOLOAD | RTLD_GLOBAL | RTLD_LAZY);
  void* py = dlopen(python, RTLD_NOLOAD | RTLD_LAZY);
  if (!lib || !py) {
    PyErr_Format(PyExc_OSError, "torch's libraries are not loaded from %s", lib ? python : cpu);
    return NULL;
  }
  static const char* const wraps[] = {"_Z16THPVariable_WrapRKN2at10TensorBaseE", NULL};
  static const char* const deletes[] = {"aoti_torch_delete_tensor_object", NULL};
  static const char* const news[] = {"aoti_torch_new_tensor_handle", NULL};
  static const char* const pointers[] = {"aoti_torch_get_data_ptr", NULL};
  static const char* const views[] = {"aoti_torch__reinterpret_tensor", NULL};
  static const char* const errors[] = {"torch_exception_get_what_without_backtrace", NULL};
  wrap_ref = (PyObject * (*)(void*)) find(py, wraps);
  delete_tensor = (int (*)(void*))find(lib, deletes);
  new_handle = (int (*)(void*, void**))find(lib, news);
  last_error = (const char* (*)(void))find(lib, errors);
  data_pointer = (int (*)(void*, void**))find(lib, pointers);
  reinterpret = (int (*)(void*, long long, const long long*, const long long*, long long, void**))find(lib, views);
  if (!wrap_ref || !delete_tensor || !new_handle) {
    PyErr_SetString(PyExc_ImportError, "this torch does not export the functions that compiled graphs are called through");
    wrap_ref = NULL;
    return NULL;
  }
  Py_INCREF(type);
  tensor_type = (PyTypeObject*)type;
  cell_offset = -1;
  void* want = impl_of(sample);
  if (!want) return NULL;
  static const Py_ssize_t places[] = {16, 24};
  for (int k = 0; k < 2; ++k) {
    void* p;
    if (tensor_type->tp_basicsize < places[k] + (Py_ssize_t)sizeof(p)) continue;
    memcpy(&p, (char*)sample + places[k], sizeof(p));
    if (p == want) {
      cell_offset = places[k];
      break;
    }
  }
  return PyUnicode_FromString(cell_offset >= 0 ? "direct" : "attribute");
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, "configure(type, tensor, libtorch_cpu, libtorch_python) -> 'direct' | 'attribute'"},
    {"make", make, METH_VARARGS, "make(run, boxed, release_gil, kinds, out_kinds, out_index, out_objects, constants, kernels, python, keep)"},
    {"make_replay", make_replay, METH_VARARGS, "make_replay(slow, use_count, inputs, device, launch, current_stream, capturing, copy)"},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GraphCall, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyTypeObject GraphCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "lamina_inductor._native.GraphCall",
    .tp_basicsize = sizeof(GraphCall),
    .tp_dealloc = (destructor)graph_dealloc,
    .tp_vectorcall_offset = offsetof(GraphCall, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A compiled graph.",
    .tp_traverse = (traverseproc)graph_traverse,
    .tp_clear = (inquiry)graph_clear,
    .tp_members = members,
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Native calls of compiled graphs.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
  str_cdata = PyUnicode_InternFromString("_cdata");
  if (!str_cdata || PyType_Ready(&GraphCallType) < 0 || PyType_Ready(&ReplayCallType) < 0) return NULL;
  PyObject* m = PyModule_Create(&module);
  if (!m) return NULL;
  Py_INCREF(&GraphCallType);
  if (PyModule_AddObject(m, "GraphCall", (PyObject*)&GraphCallType) < 0) {
    Py_DECREF(m);
    return NULL;
  }
  return m;
}
