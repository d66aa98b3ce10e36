// lamina_period.h: loops and accumulators of columns narrower than a vector.
#ifndef LAMINA_PERIOD_H
#define LAMINA_PERIOD_H
#include "lamina_reduce.h"

namespace lm {

// A range whose body depends on the position: vector k of the range goes to slot k % U.
template <int K, int N, int U> struct each_slot {
  template <class F> static LM_INLINE void run(i64 i, F& step) {
    step(i + K * N, all_lanes{}, slot<K>{});
    if constexpr (K + 1 < U) each_slot<K + 1, N, U>::run(i, step);
  }
  template <class F> static LM_INLINE void rest(i64 i, i64 hi, F& step) {
    if (i + N <= hi) {
      step(i, all_lanes{}, slot<K>{});
      if constexpr (K + 1 < U) each_slot<K + 1, N, U>::rest(i + N, hi, step);
    } else if (i < hi) {
      step(i, int(hi - i), slot<K>{});
    }
  }
};
template <int N, int U, class F, class S> LM_INLINE void vperiod(i64 lo, i64 hi, F&& step, S&& spill) {
  i64 i = lo;
  while (i + i64(N) * U <= hi) {
    const i64 stop = imin(hi, i + i64(N) * U * 128);
    for (; i + i64(N) * U <= stop; i += i64(N) * U) each_slot<0, N, U>::run(i, step);
    spill();
  }
  each_slot<0, N, U>::rest(i, hi, step);
  spill();
}
// Sums and folds of columns narrower than a vector: U vectors hold a whole number of rows, each keeps a result of its own.
template <class V, int U> struct period_sum {
  static constexpr int N = lanes<V>::value;
  typedef wide<V> D;
  V part[U] = {};
  D total[U] = {};
  template <int K, class C> LM_INLINE void push(slot<K>, V v, C c) { part[K] += sum_acc<V>::masked(v, c); }
  LM_INLINE void spill() {
    for (int k = 0; k < U; ++k) total[k] += cvt<D>(part[k]), part[k] = V{};
  }
  void merge(const period_sum& o) {
    for (int k = 0; k < U; ++k) total[k] += o.total[k];
  }
  void columns(elem<V>* out, int count) const {
    for (int c = 0; c < count; ++c) {
      elem<D> s = 0;
      for (int k = c; k < U * N; k += count) s = add(s, total[k / N][k % N]);
      out[c] = elem<V>(s);
    }
  }
  static LM_INLINE f64 add(f64 a, f64 b) { return a + b; }
  static LM_INLINE i64 add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
  static LM_INLINE i32 add(i32 a, i32 b) { return i32(u32(a) + u32(b)); }
};
template <class Op, class V, int U> struct period_fold {
  static constexpr int N = lanes<V>::value;
  V part[U];
  LM_INLINE period_fold() {
    for (int k = 0; k < U; ++k) part[k] = Op::unit();
  }
  template <int K, class C> LM_INLINE void push(slot<K>, V v, C c) { part[K] = Op::join(part[K], fold_acc<Op, V>::masked(v, c)); }
  LM_INLINE void spill() {}
  void merge(const period_fold& o) {
    for (int k = 0; k < U; ++k) part[k] = Op::join(part[k], o.part[k]);
  }
  void columns(elem<V>* out, int count) const {
    for (int c = 0; c < count; ++c) {
      V s = splat<V>(part[c / N][c % N]);
      for (int k = c + count; k < U * N; k += count) s = Op::join(s, splat<V>(part[k / N][k % N]));
      out[c] = s[0];
    }
  }
};

}  // namespace lm
#endif
