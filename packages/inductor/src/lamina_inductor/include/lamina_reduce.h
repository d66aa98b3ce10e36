// lamina_reduce.h: accumulators: sum, prod, min, max, any, all, Welford, softmax statistics, arg-min / arg-max.
#ifndef LAMINA_REDUCE_H
#define LAMINA_REDUCE_H
#include "lamina_math.h"

namespace lm {

// acc.push(slot<K>{}, value, lanes): K names one of U independent partial results (the loop is unrolled U times).
// acc.spill(): called every few hundred steps. acc.lanes_result(): a vector, lane by lane. acc.result(): one number.
template <class V> LM_INLINE elem<V> sum_lanes(V x) {
  if constexpr (lanes<V>::value == 1) {
    return x[0];
  } else {
    const auto p = bits<halves<V>>(x);
    return sum_lanes(p.lo + p.hi);
  }
}
// Lane k takes lane k + w, around the end.
template <class V> LM_INLINE V rotated(V x, int w) {
#if defined(__clang__)
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = x[(k + w) % lanes<V>::value];
  return r;
#else
  return __builtin_shuffle(x, iota<ints<V>>() + w);  // indices count modulo the number of lanes
#endif
}
template <class V, bool Floating> struct sum_store;
template <class V> struct sum_store<V, false> {
  V total = {};
  LM_INLINE void add(V v) { total += v; }
  LM_INLINE V get() const { return total; }
  LM_INLINE elem<V> all() const {
    elem<V> r = 0;
    for (int k = 0; k < lanes<V>::value; ++k) r = elem<V>(u64(r) + u64(total[k]));
    return r;
  }
};
template <class V> struct sum_store<V, true> {  // long sums carry on in double, so the error does not grow with the length
  typedef vec<f64, lanes<V>::value> D;
  D total = {};
  LM_INLINE void add(V v) { total += cvt<D>(v); }
  LM_INLINE V get() const { return cvt<V>(total); }
  LM_INLINE elem<V> all() const { return elem<V>(sum_lanes(total)); }
};
template <class V, int U = 1> struct sum_acc {
  V part[U] = {};
  sum_store<V, is_float<elem<V>>::value> store;
  template <int K, class C> LM_INLINE void push(slot<K>, V v, C c) { part[K] += masked(v, c); }
  static LM_INLINE V masked(V v, all_lanes) { return v; }
  static LM_INLINE V masked(V v, int n) { return pick<V>(first_lanes<lanes<V>::value>(n), v, V{}); }
  LM_INLINE void spill() {
    V t = part[0];
    if constexpr (U == 4) t = (part[0] + part[1]) + (part[2] + part[3]);
    else
      for (int k = 1; k < U; ++k) t += part[k];
    store.add(t);
    for (int k = 0; k < U; ++k) part[k] = V{};
  }
  LM_INLINE void merge(sum_acc& o) { spill(), o.spill(), store.total += o.store.total; }
  LM_INLINE void absorb(sum_acc& o) {  // one that has not been spilled yet
    for (int k = 0; k < U; ++k) store.add(o.part[k]);
  }
  LM_INLINE V lanes_result() { return spill(), store.get(); }
  LM_INLINE elem<V> result() { return spill(), store.all(); }
};
template <class V> struct op_prod {
  static LM_INLINE V unit() { return splat<V>(1); }
  static LM_INLINE V join(V a, V b) { return a * b; }
};
template <class T> struct extremes;
template <> struct extremes<f32> { static constexpr f32 low = -__builtin_inff(), high = __builtin_inff(); };
template <> struct extremes<f64> { static constexpr f64 low = -__builtin_inf(), high = __builtin_inf(); };
template <> struct extremes<i32> { static constexpr i32 low = -2147483647 - 1, high = 2147483647; };
template <> struct extremes<i64> { static constexpr i64 low = -9223372036854775807LL - 1, high = 9223372036854775807LL; };
template <class V> struct op_max {
  static LM_INLINE V unit() { return splat<V>(extremes<elem<V>>::low); }
  static LM_INLINE V join(V a, V b) { return maximum<V>(a, b); }
};
template <class V> struct op_min {
  static LM_INLINE V unit() { return splat<V>(extremes<elem<V>>::high); }
  static LM_INLINE V join(V a, V b) { return minimum<V>(a, b); }
};
template <class V> struct op_any {  // masks
  static LM_INLINE V unit() { return V{}; }
  static LM_INLINE V join(V a, V b) { return a | b; }
};
template <class V> struct op_all {
  static LM_INLINE V unit() { return ~V{}; }
  static LM_INLINE V join(V a, V b) { return a & b; }
};
template <class V> struct op_xor {
  static LM_INLINE V unit() { return V{}; }
  static LM_INLINE V join(V a, V b) { return a ^ b; }
};
template <class Op, class V, int U = 1> struct fold_acc {
  V part[U];
  LM_INLINE fold_acc() {
    for (int k = 0; k < U; ++k) part[k] = Op::unit();
  }
  template <int K, class C> LM_INLINE void push(slot<K>, V v, C c) { part[K] = Op::join(part[K], masked(v, c)); }
  static LM_INLINE V masked(V v, all_lanes) { return v; }
  static LM_INLINE V masked(V v, int n) { return pick<V>(first_lanes<lanes<V>::value>(n), v, Op::unit()); }
  LM_INLINE void spill() {}
  LM_INLINE void merge(fold_acc& o) { part[0] = Op::join(part[0], o.lanes_result()); }
  LM_INLINE V lanes_result() {
    V r = part[0];
    for (int k = 1; k < U; ++k) r = Op::join(r, part[k]);
    return r;
  }
  LM_INLINE elem<V> result() {
    V r = lanes_result();
#pragma GCC unroll 8
    for (int w = lanes<V>::value / 2; w; w /= 2) r = Op::join(r, rotated(r, w));
    return r[0];
  }
};

// Largest and smallest floats: NaNs are kept beside, which leaves one short instruction from step to step.
template <class V> LM_INLINE V larger_number(V a, V b) {  // b where one is NaN
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(elem<V>) == 4) return __builtin_ia32_maxps512_mask(a, b, a, (unsigned short)-1, 4);
#endif
  return select<V>(a > b, a, b);
}
template <class V> LM_INLINE V smaller_number(V a, V b) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(elem<V>) == 4) return __builtin_ia32_minps512_mask(a, b, a, (unsigned short)-1, 4);
#endif
  return select<V>(a < b, a, b);
}
template <class V, bool Max, int U> struct extreme_acc {
  typedef typename pick_type<Max, op_max<V>, op_min<V>>::type Op;
  V part[U], nan = {};
  LM_INLINE extreme_acc() {
    for (int k = 0; k < U; ++k) part[k] = Op::unit();
  }
  template <int K, class C> LM_INLINE void push(slot<K>, V v, C c) {
    v = fold_acc<Op, V>::masked(v, c);
    nan = select<V>(v != v, v, nan);
    part[K] = Max ? larger_number<V>(v, part[K]) : smaller_number<V>(v, part[K]);
  }
  LM_INLINE void spill() {}
  LM_INLINE void merge(extreme_acc& o) {
    nan = select<V>(nan != nan, nan, o.nan);
    for (int k = 0; k < U; ++k) part[k] = Op::join(part[k], o.part[k]);
  }
  LM_INLINE V lanes_result() {
    V r = part[0];
    for (int k = 1; k < U; ++k) r = Op::join(r, part[k]);
    return select<V>(nan != nan, nan, r);
  }
  LM_INLINE elem<V> result() {
    V r = lanes_result();
#pragma GCC unroll 8
    for (int w = lanes<V>::value / 2; w; w /= 2) r = Op::join(r, rotated(r, w));
    return r[0];
  }
};

// Welford: eight values a lane are gathered, their mean and squared distance are exact two-pass numbers, then joined (Chan).
template <class V> struct welford_acc {
  static constexpr int B = 8, N = lanes<V>::value;
  V buf[B], mean = {}, m2 = {};
  V weight = {}, mean_low = {}, m2_low = {};  // what rounding took off the running values: errors do not grow with the length
  int held = 0;
  LM_INLINE void flush() {
    if (!held) return;
    V s = buf[0];
    for (int k = 1; k < held; ++k) s += buf[k];
    V bm = s / elem<V>(held), bq = {};
    for (int k = 0; k < held; ++k) bq += (buf[k] - bm) * (buf[k] - bm);
    join(bm, bq, splat<V>(elem<V>(held)));
    held = 0;
  }
  LM_INLINE void join(V bm, V bq, V bw) {
    V w = weight + bw, d = bm - mean;
    V share = select<V>(w == 0, V{}, bw / w);
    V step = d * share + mean_low, next = mean + step;
    mean_low = select<V>(weight == 0, V{}, step - (next - mean));
    mean = select<V>(weight == 0, bm, next);
    V more = bq + select<V>((weight == 0) | (bw == 0), V{}, d * d * (weight * share)) + m2_low, sum = m2 + more;
    m2_low = more - (sum - m2);
    m2 = sum, weight = w;
  }
  template <int K> LM_INLINE void push(slot<K>, V v, all_lanes) {
    buf[held++] = v;
    if (held == B) flush();
  }
  template <int K> LM_INLINE void push(slot<K>, V v, int n) {
    flush();
    mask<N> on = first_lanes<N>(n);
    join(pick<V>(on, v, mean), V{}, pick<V>(on, splat<V>(1), V{}));
  }
  LM_INLINE void merge(welford_acc& o) { flush(), o.flush(), join(o.mean, o.m2, o.weight); }
  LM_INLINE void spill() {}
  LM_INLINE void reduce(elem<V>& out_mean, elem<V>& out_m2, elem<V>& out_weight) {
    flush();
    typedef vec<f64, N> D;
    const D weights = cvt<D>(weight), means = cvt<D>(mean);
    const f64 w = sum_lanes(weights), mu = sum_lanes(weights * means) / (w == 0 ? 1 : w);
    const D d = means - mu;
    const f64 q = sum_lanes(cvt<D>(m2) + weights * d * d);
    out_mean = elem<V>(mu), out_m2 = elem<V>(q), out_weight = elem<V>(w);
  }
};

// Running maximum m and sum of exp(value - m): eight values share one rescaling.
template <class V> struct softmax_acc {
  static constexpr int B = 8, N = lanes<V>::value;
  V buf[B], top = splat<V>(extremes<elem<V>>::low), total = {};
  int held = 0;
  static LM_INLINE V finite(V m) { return select<V>(absolute(m) == extremes<elem<V>>::high, V{}, m); }
  LM_INLINE void flush() {
    if (!held) return;
    V m = buf[0];
    for (int k = 1; k < held; ++k) m = maximum<V>(m, buf[k]);
    m = maximum<V>(m, top);
    V s = total * exp_<V>(finite(top) - finite(m)), base = finite(m);
    s = select<V>(total == 0, V{}, s);
    for (int k = 0; k < held; ++k) s += exp_<V>(buf[k] - base);
    top = m, total = s, held = 0;
  }
  template <int K> LM_INLINE void push(slot<K>, V v, all_lanes) {
    buf[held++] = v;
    if (held == B) flush();
  }
  template <int K> LM_INLINE void push(slot<K>, V v, int n) {
    buf[held++] = pick<V>(first_lanes<N>(n), v, splat<V>(extremes<elem<V>>::low));
    if (held == B) flush();
  }
  LM_INLINE void spill() {}
  LM_INLINE void merge(softmax_acc& o) {
    flush(), o.flush();
    V m = maximum<V>(top, o.top), base = finite(m);
    total = select<V>(total == 0, V{}, total * exp_<V>(finite(top) - base)) + select<V>(o.total == 0, V{}, o.total * exp_<V>(finite(o.top) - base));
    top = m;
  }
  LM_INLINE void lanes_results(V& m_out, V& s_out) {
    flush();
    m_out = top;
    s_out = select<V>(absolute(top) == extremes<elem<V>>::high, splat<V>(elem<V>(__builtin_nan(""))), total);
  }
  LM_INLINE void reduce(elem<V>& m_out, elem<V>& s_out) {
    flush();
    fold_acc<op_max<V>, V> f;
    f.part[0] = top;
    elem<V> m = f.result();
    elem<V> base = (m == extremes<elem<V>>::high || m == extremes<elem<V>>::low) ? elem<V>(0) : m;
    V part = total * exp_<V>(finite(top) - base);
    part = select<V>(total == 0, V{}, part);
    f64 s = 0;
    for (int k = 0; k < N; ++k) s += part[k];
    // exp(inf - inf) in eager: an infinite maximum makes the sum NaN
    s_out = m == extremes<elem<V>>::high || m == extremes<elem<V>>::low ? elem<V>(__builtin_nan("")) : elem<V>(s);
    m_out = m;
  }
};

// Arg-reductions: the first index of the best value; a NaN is better than anything. Every lane sees its indices in
// ascending order, so that only `merge` has to compare them. With `Small`, they are kept as narrow as the values.
// Ordered: positions come in increasing order, so that of equal values the first one met is the first.
template <class V, bool Max, bool Small = false, bool Ordered = true> struct arg_acc {
  static constexpr int N = lanes<V>::value;
  typedef vec<i64, N> I;
  typedef vec<elem<ints<V>>, N> J;
  template <bool S, class A, class B> struct one { typedef A type; };
  template <class A, class B> struct one<false, A, B> { typedef B type; };
  typedef typename one<(Small && sizeof(elem<V>) >= 4), J, I>::type W;
  static constexpr elem<W> none = sizeof(elem<W>) == 4 ? elem<W>(extremes<i32>::high) : elem<W>(extremes<i64>::high);
  V best;
  W where;
  LM_INLINE arg_acc() {
    best = splat<V>(Max ? extremes<elem<V>>::low : extremes<elem<V>>::high);
    where = splat<W>(none);
  }
  static LM_INLINE ints<V> better(V a, V b) {
    ints<V> r = Max ? a > b : a < b;
    if constexpr (is_float<elem<V>>::value) r |= (a != a) & (b == b);
    return r;
  }
  static LM_INLINE ints<V> same(V a, V b) {
    ints<V> r = a == b;
    if constexpr (is_float<elem<V>>::value) r |= (a != a) & (b != b);
    return r;
  }
  LM_INLINE void take(ints<V> on, V v, W index) {
    best = select<V>(on, v, best);
    where = select<W>(cvt<W>(on), index, where);
  }
  LM_INLINE ints<V> wins(V v, W index) {
    ints<V> r = better(v, best) | cvt<ints<V>>(where == none);
    if constexpr (!Ordered) r |= same(v, best) & cvt<ints<V>>(index < where);
    return r;
  }
  template <int K, class X> LM_INLINE void push(slot<K>, V v, X index, all_lanes) {
    const W at = cvt<W>(index);
    take(wins(v, at), v, at);
  }
  template <int K, class X> LM_INLINE void push(slot<K>, V v, X index, int n) {
    const W at = cvt<W>(index);
    take(wins(v, at) & cvt<ints<V>>(first_lanes<N>(n)), v, at);
  }
  LM_INLINE void spill() {}
  LM_INLINE void merge(arg_acc& o) {
    const ints<V> earlier = cvt<ints<V>>(o.where < where), has = cvt<ints<V>>(o.where != none);
    take(has & (better(o.best, best) | (same(o.best, best) & earlier) | cvt<ints<V>>(where == none)), o.best, o.where);
  }
  LM_INLINE V lanes_result() { return best; }
  LM_INLINE I lanes_index() { return cvt<I>(where); }
  LM_INLINE i64 index() {
    int b = 0;
    for (int k = 1; k < N; ++k) {
      V x = splat<V>(best[k]), y = splat<V>(best[b]);
      if (where[k] == none) continue;
      if (where[b] == none || better(x, y)[0] || (same(x, y)[0] && where[k] < where[b])) b = k;
    }
    return i64(where[b]);
  }
  LM_INLINE elem<V> result() {
    const i64 at = index();
    for (int k = 0; k < N; ++k)
      if (i64(where[k]) == at) return best[k];
    return best[0];
  }
};

}  // namespace lm
#endif
