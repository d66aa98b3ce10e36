// What the generated function of a whole graph needs besides kernels: libtorch's exported C shim, declared by hand (nothing is linked), and
// owners for tensors and memory.
#ifndef LAMINA_GRAPH_H
#define LAMINA_GRAPH_H
#include "lamina_frame.h"

typedef long long i64;
extern "C" {
int aoti_torch_delete_tensor_object(void*);
int aoti_torch_new_tensor_handle(void*, void**);
int aoti_torch_get_data_ptr(void*, void**);
int aoti_torch_get_size(void*, i64, i64*);
int aoti_torch_get_stride(void*, i64, i64*);
int aoti_torch_get_dim(void*, i64*);
int aoti_torch_get_sizes(void*, i64**);
int aoti_torch_get_strides(void*, i64**);
int aoti_torch_get_dtype(void*, int*);
int aoti_torch_copy_(void*, void*, int);
int aoti_torch_empty_strided(i64, const i64*, const i64*, int, int, int, void**);
int aoti_torch__alloc_from_pool(void*, i64, int, i64, const i64*, const i64*, void**);
int aoti_torch__reinterpret_tensor(void*, i64, const i64*, const i64*, i64, void**);
int aoti_torch_create_tensor_from_blob(void*, i64, const i64*, const i64*, i64, int, int, int, void**);
bool aoti_torch_grad_mode_is_enabled();
void aoti_torch_grad_mode_set_enabled(bool);
unsigned long aoti_torch_abi_version();
int torch_call_dispatcher(const char*, const char*, unsigned long long*, unsigned long) __attribute__((weak));
int torch_new_list_reserve_size(unsigned long, void**) __attribute__((weak));
int torch_list_push_back(void*, unsigned long long) __attribute__((weak));
int torch_list_get_item(void*, unsigned long, unsigned long long*) __attribute__((weak));
int torch_list_size(void*, unsigned long*) __attribute__((weak));
int torch_delete_list(void*) __attribute__((weak));
int torch_new_string_handle(const char*, unsigned long, void**) __attribute__((weak));
int aoti_torch_cpu_mm_out(void*, void*, void*);
int aoti_torch_cpu_addmm_out(void*, void*, void*, void*, double, double);
int aoti_torch_cpu_bmm_out(void*, void*, void*);
int aoti_torch_cpu_baddbmm_out(void*, void*, void*, void*, double, double);
int aoti_torch_cpu__linear_pointwise(void*, void*, void**, const char*, const double**, i64, const char* const*, void**) __attribute__((weak));
int aoti_torch_cpu_mkldnn__convolution_pointwise(void*, void*, void**, const i64*, i64, const i64*, i64, const i64*, i64, i64, const char*,
                                                 const double**, i64, const char* const*, void**) __attribute__((weak));
int aoti_torch_cpu_convolution(void*, void*, void**, const i64*, i64, const i64*, i64, const i64*, i64, int, const i64*, i64, i64, void**);
int aoti_torch_cpu_convolution_backward(void*, void*, void*, const i64**, i64, const i64*, i64, const i64*, i64, const i64*, i64, int,
                                        const i64*, i64, i64, const int*, i64, void**, void**, void**);
// the same on CUDA; absent (null) in a torch without it
int aoti_torch_cuda_mm_out(void*, void*, void*) __attribute__((weak));
int aoti_torch_cuda_addmm_out(void*, void*, void*, void*, double, double) __attribute__((weak));
int aoti_torch_cuda_bmm_out(void*, void*, void*) __attribute__((weak));
int aoti_torch_cuda_baddbmm_out(void*, void*, void*, void*, double, double) __attribute__((weak));
int aoti_torch_cuda_convolution(void*, void*, void**, const i64*, i64, const i64*, i64, const i64*, i64, int, const i64*, i64, i64, void**) __attribute__((weak));
int aoti_torch_cuda_convolution_backward(void*, void*, void*, const i64**, i64, const i64*, i64, const i64*, i64, const i64*, i64, int,
                                        const i64*, i64, i64, const int*, i64, void**, void**, void**) __attribute__((weak));
void* malloc(unsigned long);
void free(void*);
int posix_memalign(void**, unsigned long, unsigned long);
}

namespace lg {

struct Tensor {  // owns one handle
  void* h = nullptr;
  Tensor() = default;
  Tensor(const Tensor&) = delete;
  __attribute__((noinline)) ~Tensor() { reset(); }  // out of line: a graph has many of these
  __attribute__((noinline)) void reset() {
    if (h) aoti_torch_delete_tensor_object(h);
    h = nullptr;
  }
  void take(Tensor& o) { reset(), h = o.h, o.h = nullptr; }
  void* release() {
    void* r = h;
    h = nullptr;
    return r;
  }
};

struct Arena {  // one block for all buffers with a planned place
  void* p = nullptr;
  explicit Arena(i64 bytes) {
    if (bytes > 0 && posix_memalign(&p, 64, (unsigned long)bytes) != 0) p = nullptr;
  }
  ~Arena() { free(p); }
  Arena(const Arena&) = delete;
};

struct NoGrad {
  bool before = aoti_torch_grad_mode_is_enabled();
  NoGrad() { if (before) aoti_torch_grad_mode_set_enabled(false); }
  ~NoGrad() { if (before) aoti_torch_grad_mode_set_enabled(true); }
};

inline char* data(void* tensor) {
  void* p = nullptr;
  aoti_torch_get_data_ptr(tensor, &p);
  return (char*)p;
}
inline i64 size(void* tensor, i64 dim) {
  i64 r = 0;
  aoti_torch_get_size(tensor, dim, &r);
  return r;
}
inline i64 stride(void* tensor, i64 dim) {
  i64 r = 0;
  aoti_torch_get_stride(tensor, dim, &r);
  return r;
}

// A result of an operator, with the dtype (-1: not looked at) and strides that the code behind it was written for: as it is where it has
// them, else copied. Other sizes are an error. Returns 0 if all is well.
__attribute__((noinline)) inline int settle(Tensor& t, int dtype, int device, int index, i64 n, const i64* z, const i64* s, LaminaFrame* f) {
  if (!t.h) return 0;
  i64 dims = 0, *sizes = nullptr, *strides = nullptr;
  int real = 0;
  if (aoti_torch_get_dim(t.h, &dims) || aoti_torch_get_sizes(t.h, &sizes)) return 0;
  bool same = dims == n, empty = false, laid_out = true;
  for (i64 d = 0; d < n && same; ++d) same = sizes[d] == z[d], empty |= z[d] == 0;
  if (!same && n == 1 && z[0] == 0 && dtype == 0) return 0;  // bytes that only the backward kernel reads: no rule knows their number
  if (!same) {
    f->error_kind = "RuntimeError", f->error_text = "an operator called from compiled code gave a result of another shape than was predicted";
    return 1;
  }
  if (dtype < 0 || aoti_torch_get_dtype(t.h, &real)) return 0;
  if (!empty) {
    if (aoti_torch_get_strides(t.h, &strides)) return 0;  // a layout without strides
    for (i64 d = 0; d < n && laid_out; ++d) laid_out = z[d] == 1 || strides[d] == s[d];
  }
  if (laid_out && real == dtype) return 0;
  Tensor copy;
  if (aoti_torch_empty_strided(n, z, s, dtype, device, index, &copy.h) || aoti_torch_copy_(copy.h, t.h, 0)) return 1;
  t.take(copy);
  return 0;
}

inline i64 imin(i64 a, i64 b) { return a < b ? a : b; }
inline i64 imax(i64 a, i64 b) { return a > b ? a : b; }
template <class T> inline T floor_div(T a, T b) { return b == 0 ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
template <class T> inline T floor_rem(T a, T b) { return b == 0 ? 0 : a - floor_div(a, b) * b; }

// An operator failed: calls it again from Python, which leaves the exception as eager raises it. If that call succeeds, the first one's text
// is raised.
__attribute__((noinline, unused)) static void fail_again(LaminaFrame* f, int step, void** tensors, int nt, const i64* ints, int ni, int n) {
  f->failed_step = step;
  if (f->error_kind || n > 16) return;
  void* outs[16] = {};
  i64 numbers[16] = {};
  for (int k = 0; k < nt; ++k)
    if (!tensors[k]) return;
  if (f->python(f, step, tensors, nt, ints, ni, outs, numbers, n)) return;
  for (int k = 0; k < n; ++k)
    if (outs[k]) aoti_torch_delete_tensor_object(outs[k]);
}

inline void drop(LaminaFrame* f, int first, int last) {
  for (int k = first; k <= last; ++k) f->drop(f, k);
}

// The frame of a region, a function that the graph's own function calls for each of its equal stretches.
struct Drop {  // who lets go of an argument when the region is done with it: an input of the caller, a tensor of the caller, or nobody
  int input;
  Tensor* tensor;
};
struct Region : LaminaFrame {
  LaminaFrame* caller;
  const Drop* drops;
  Region(LaminaFrame* f, void** args, void** results, int first_constant, const Drop* d) : LaminaFrame(*f), caller(f), drops(d) {
    in = args, out = results, constants = f->constants + first_constant, drop = let_go;
  }
  static void let_go(LaminaFrame* f, int k) {
    Region* r = static_cast<Region*>(f);
    const Drop& d = r->drops[k];
    if (d.tensor) d.tensor->reset();
    else if (d.input >= 0) r->caller->drop(r->caller, d.input);
  }
  void fail(int n) {
    caller->error_kind = error_kind, caller->error_text = error_text, caller->failed_step = failed_step;
    for (int k = 0; k < n; ++k)
      if (out[k]) aoti_torch_delete_tensor_object(out[k]);
  }
};

// The dispatcher's stack: 64-bit cells.
typedef unsigned long long Cell;
inline Cell of(double x) {
  Cell c;
  __builtin_memcpy(&c, &x, 8);
  return c;
}
inline Cell of(void* h) {  // a new reference, which the call consumes
  void* r = nullptr;
  aoti_torch_new_tensor_handle(h, &r);
  return (Cell)r;
}
inline Cell some(Cell c) { return (Cell) new Cell(c); }  // a value of optional type; libtorch deletes it
template <int K> struct Ints {  // a list of ints that lives as long as the call it is written in
  i64 v[K];
  operator const i64*() const { return v; }
};
template <int K> struct Cells { Cell v[K]; };
template <int K> inline Cell list(const Cells<K>& items, int n) {
  void* l = nullptr;
  torch_new_list_reserve_size((unsigned long)n, &l);
  for (int k = 0; k < n; ++k) torch_list_push_back(l, items.v[k]);
  return (Cell)l;
}
inline Cell text(const char* s, unsigned long n) {
  void* r = nullptr;
  torch_new_string_handle(s, n, &r);
  return (Cell)r;
}
inline int dispatch(const char* name, const char* overload, Cell* stack) {
  return torch_call_dispatcher(name, overload, stack, aoti_torch_abi_version());
}

}  // namespace lg
#endif
