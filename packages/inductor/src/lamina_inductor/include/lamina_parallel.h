// lamina_parallel.h: scratch memory, and ranges shared by the threads of the OpenMP runtime that torch loaded.
#ifndef LAMINA_PARALLEL_H
#define LAMINA_PARALLEL_H
#include "lamina_types.h"

namespace lm {

extern "C" {
void* malloc(unsigned long);
void free(void*);
}
struct heap {  // scratch that does not fit the stack
  void* p;
  heap(i64 bytes) : p(malloc(bytes > 0 ? (unsigned long)bytes : 1)) {}
  ~heap() { free(p); }
  heap(const heap&) = delete;
};
template <class A> struct parts {  // accumulators in memory; not initialised
  heap block;
  A* p;
  parts(i64 n) : block(n * i64(sizeof(A)) + i64(alignof(A))), p((A*)(((u64)block.p + alignof(A) - 1) / alignof(A) * alignof(A))) {}
};

extern "C" {
void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned) __attribute__((weak));
int omp_get_thread_num() __attribute__((weak));
int omp_get_num_threads() __attribute__((weak));
int omp_get_max_threads() __attribute__((weak));
int omp_in_parallel() __attribute__((weak));
}
template <class F> struct par_job {
  F* body;
  i64 n, unit;
  static void run(void* p) {
    par_job* j = (par_job*)p;
    i64 t = omp_get_thread_num(), nt = omp_get_num_threads();
    i64 units = (j->n + j->unit - 1) / j->unit;
    i64 lo = units * t / nt * j->unit, hi = units * (t + 1) / nt * j->unit;
    if (hi > j->n) hi = j->n;
    if (lo < hi) (*j->body)(lo, hi);
  }
};
// body(lo, hi) over [0, n), cut at multiples of `unit`. `work`: elements touched an item; short jobs stay on this thread.
template <class F> inline void parallel(i64 n, i64 work, i64 unit, F&& body) {
  constexpr i64 grain = 32768;
  i64 want = (n * work) / grain;
  if (want > 1 && n > unit && GOMP_parallel && !omp_in_parallel()) {
    i64 most = omp_get_max_threads(), units = (n + unit - 1) / unit;
    i64 nt = want < most ? want : most;
    if (nt > units) nt = units;
    if (nt > 1) {
      typedef typename plain<F>::type B;
      par_job<B> job = {&body, n, unit};
      GOMP_parallel(&par_job<B>::run, &job, unsigned(nt), 0);
      return;
    }
  }
  if (n > 0) body(i64(0), n);
}

}  // namespace lm
#endif
