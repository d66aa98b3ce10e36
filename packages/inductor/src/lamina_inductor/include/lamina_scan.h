// lamina_scan.h: accumulators of inclusive scans.
#ifndef LAMINA_SCAN_H
#define LAMINA_SCAN_H
#include "lamina_math.h"
#include "lamina_tile.h"

namespace lm {

// Inclusive scans, one step at a time; floating sums and products are carried in double, as eager does.
template <class V> struct scan_sum {
  wide<V> carry = {};
  LM_INLINE V push(V v) { return carry += cvt<wide<V>>(v), cvt<V>(carry); }
};
template <class V> struct scan_prod {
  wide<V> carry = splat<wide<V>>(1);
  LM_INLINE V push(V v) { return carry *= cvt<wide<V>>(v), cvt<V>(carry); }
};
// Scans along memory: lanes are consecutive elements. A prefix inside the vector, then what came before it; only the
// latter waits for the vector before. Floats in double, register by register.
struct join_sum {
  template <class D> static LM_INLINE D unit() { return D{}; }
  template <class D> static LM_INLINE D join(D a, D b) { return a + b; }
};
struct join_prod {
  template <class D> static LM_INLINE D unit() { return splat<D>(1); }
  template <class D> static LM_INLINE D join(D a, D b) { return a * b; }
};
template <class J, int S, class D> LM_INLINE D prefix_of(D x) {
  if constexpr (S >= lanes<D>::value) return x;
  else return prefix_of<J, 2 * S>(J::join(x, shift_up<S>(x, J::template unit<D>())));
}
template <class V, class J> struct row_scan {
  static constexpr int N = lanes<V>::value, H = sizeof(elem<wide<V>>) > sizeof(elem<V>) && N > 1 ? N / 2 : N;
  typedef vec<elem<wide<V>>, H> D;
  typedef vec<elem<V>, H> P;
  D carry = J::template unit<D>();
  LM_INLINE V push(V v) {
    if constexpr (H == N) {
      const D x = prefix_of<J, 1>(cvt<D>(v)), r = J::join(x, carry);
      carry = J::join(carry, spread_last(x));
      return cvt<V>(r);
    } else {
      struct both { P lo, hi; } b = bits<both>(v);
      const D lo = prefix_of<J, 1>(cvt<D>(b.lo));
      const D hi = J::join(prefix_of<J, 1>(cvt<D>(b.hi)), spread_last(lo));
      b.lo = cvt<P>(J::join(lo, carry)), b.hi = cvt<P>(J::join(hi, carry));
      carry = J::join(carry, spread_last(hi));
      return bits<V>(b);
    }
  }
};
template <class V, bool Max> struct scan_extreme {  // the last of equals; once NaN, NaN for ever, at its last index
  typedef vec<i64, lanes<V>::value> I;
  V best = {};
  I where = {};
  bool begun = false;
  LM_INLINE void push(V v, I index) {
    ints<V> take = Max ? v >= best : v <= best;
    if constexpr (is_float<elem<V>>::value) take = (v != v) | ((best == best) & take);
    if (!begun) take = ~ints<V>{};
    begun = true;
    best = select<V>(take, v, best);
    where = select<I>(cvt<I>(take), index, where);
  }
};
template <class V> struct scan_logcumsumexp {
  typedef wide<V> D;
  D carry = splat<D>(-__builtin_inf());
  LM_INLINE V push(V v) {
    D x = cvt<D>(v), lo = minimum<D>(carry, x), hi = maximum<D>(carry, x);
    D r = log1p_<D>(exp_<D>(lo - hi)) + hi;
    carry = select<D>((lo != hi) | (absolute(lo) < __builtin_inf()), r, x);
    return cvt<V>(carry);
  }
};

}  // namespace lm
#endif
