/* What one native call of a graph passes between the CPython extension and the generated function. Plain C. */
#ifndef LAMINA_FRAME_H
#define LAMINA_FRAME_H

typedef struct LaminaFrame LaminaFrame;
typedef int (*LaminaKernel)(void* const* buffers, const long long* sizes);

struct LaminaFrame {
  void** in;              /* tensor handles (at::Tensor*), borrowed; NULL where the input is an int */
  const long long* ints;  /* the ints among the inputs, same positions */
  void** out;             /* tensor handles, owned by the caller afterwards */
  long long* out_ints;    /* results that are ints, same positions */
  void** constants;       /* tensor handles, borrowed */
  LaminaKernel* kernels;  /* kernels that live in other units */
  const char* error_kind; /* "IndexError", ...; NULL: an op failed and `failed_step` says which */
  const char* error_text;
  int failed_step;
  /* Calls extern `step` in Python: tensors and ints in; tensors (owned) and ints out. 0, or 1 with a Python error set. */
  int (*python)(LaminaFrame*, int step, void** tensors, int n_tensors, const long long* ints, int n_ints, void** outs, long long* out_ints, int n_outs);
  void (*drop)(LaminaFrame*, int input); /* the graph is done with this input */
  void* owner;
  /* NULL, or: result `output` stands in `out` and the graph does not need it any more. 0, or 1 with a Python error set. */
  int (*ready)(LaminaFrame*, int output);
};

#endif
