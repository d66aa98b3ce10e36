// lamina.h: everything a generated kernel needs, and nothing else (no ATen, no Python.h, no standard header).
//
//   1  types            i8..u64, bf16, f16; vec<T, N> (compiler vector types; N = 1 is the scalar fallback)
//   2  memory           load / store of any element type, full or the first n lanes; gather
//   3  lanes            select, conversions, bit tricks, min / max that keep NaN
//   4  arithmetic       integer division and shifts without traps, fma, sqrt, rounding
//   5  vector math      float: own polynomials (< 4 ulp); double: own exp / log / tanh, libm for the rest
//   6  accumulators     sum, prod, min, max, any, all, Welford, arg-min / arg-max
//   7  loops            vectorised ranges, parallel ranges on the OpenMP runtime that torch loaded
//
// Rounding: units are compiled with -ffp-contract=off, because eager rounds after every operator and a fused a*b-c can
// turn an exact zero into a small negative number. The polynomials below ask for fma explicitly, where it only gains accuracy.
#ifndef LAMINA_H
#define LAMINA_H

// ---------------------------------------------------------------------------------------------------------- 1 types
namespace lm {

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

#define LM_INLINE inline __attribute__((always_inline))

template <class T, int N> struct vec_of { typedef T type __attribute__((vector_size(sizeof(T) * N))); };
template <class T, int N> using vec = typename vec_of<T, N>::type;

template <class T> struct plain { typedef T type; };
template <class T> struct plain<T&> { typedef T type; };
template <class T> struct plain<const T> { typedef T type; };
template <class T> struct plain<const T&> { typedef T type; };
template <class V> V& lvalue_of();
template <class V> using elem = typename plain<decltype(lvalue_of<V>()[0])>::type;
template <class V> struct lanes { static constexpr int value = int(sizeof(V) / sizeof(elem<V>)); };
template <int Bytes> struct int_of;
template <> struct int_of<1> { typedef i8 s; typedef u8 u; };
template <> struct int_of<2> { typedef i16 s; typedef u16 u; };
template <> struct int_of<4> { typedef i32 s; typedef u32 u; };
template <> struct int_of<8> { typedef i64 s; typedef u64 u; };
template <class V> using ints = vec<typename int_of<sizeof(elem<V>)>::s, lanes<V>::value>;
template <class V> using uints = vec<typename int_of<sizeof(elem<V>)>::u, lanes<V>::value>;
template <int N> using mask = vec<i32, N>;  // every truth value in flight: 0 or -1 a lane

template <class T> struct is_float { static constexpr bool value = false; };
template <> struct is_float<f32> { static constexpr bool value = true; };
template <> struct is_float<f64> { static constexpr bool value = true; };

// "All lanes" as a type, so that the same body serves full vectors and tails (an int: the first n lanes).
struct all_lanes {};
template <int K> struct slot { static constexpr int value = K; };

template <class V> LM_INLINE V splat(elem<V> x) {
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = x;
  return r;
}
template <class To, class From> LM_INLINE To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits");
  To r;
  __builtin_memcpy(&r, &x, sizeof(To));
  return r;
}
template <class V> LM_INLINE V iota() {
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = elem<V>(k);
  return r;
}
#if defined(__AVX512F__)
#define LM_REGISTER 64
#elif defined(__AVX__)
#define LM_REGISTER 32
#else
#define LM_REGISTER 16
#endif
// Values of several registers are taken apart: compilers would go lane by lane.
template <class V> struct halves {
  typedef vec<elem<V>, lanes<V>::value / 2> H;
  H lo, hi;
};
template <class V> LM_INLINE V select(ints<V> m, V a, V b) {
  if constexpr (sizeof(V) > LM_REGISTER) {
    typedef halves<V> P;
    const auto n = bits<halves<ints<V>>>(m);
    const P x = bits<P>(a), y = bits<P>(b);
    return bits<V>(P{select<typename P::H>(n.lo, x.lo, y.lo), select<typename P::H>(n.hi, x.hi, y.hi)});
  } else {
    return m ? a : b;
  }
}

// Lane conversion with C rules, between any two element types.
template <class To, class From> struct cvt_impl {
  static LM_INLINE To run(From x) { return __builtin_convertvector(x, To); }
};
template <class V> struct cvt_impl<V, V> {
  static LM_INLINE V run(V x) { return x; }
};
// Compilers know the instructions that double or halve the width of integers; other steps they take lane by lane.
template <class From, bool Wider> struct cvt_step;
template <class From> struct cvt_step<From, true> {
  typedef int_of<2 * sizeof(elem<From>)> I;
  static constexpr bool is_signed = elem<From>(-1) < elem<From>(0);
  template <bool S, class T> struct of { typedef typename T::s type; };
  template <class T> struct of<false, T> { typedef typename T::u type; };
  typedef vec<typename of<is_signed, I>::type, lanes<From>::value> type;
};
template <class From> struct cvt_step<From, false> {
  typedef vec<typename int_of<sizeof(elem<From>) / 2>::u, lanes<From>::value> type;
};
#if defined(__AVX512F__) && !defined(__clang__)
#define LM_WIDEN(to, from, raw, name)                                                                                  \
  template <> struct cvt_impl<vec<to, 16>, vec<from, 16>> {                                                            \
    static LM_INLINE vec<to, 16> run(vec<from, 16> x) {                                                                \
      return bits<vec<to, 16>>(__builtin_ia32_##name##512_mask(bits<vec<raw, 16>>(x), vec<i32, 16>{}, (u16)-1));      \
    }                                                                                                                  \
  };
LM_WIDEN(i32, u8, char, pmovzxbd) LM_WIDEN(u32, u8, char, pmovzxbd) LM_WIDEN(i32, i8, char, pmovsxbd) LM_WIDEN(u32, i8, char, pmovsxbd)
LM_WIDEN(i32, u16, i16, pmovzxwd) LM_WIDEN(u32, u16, i16, pmovzxwd) LM_WIDEN(i32, i16, i16, pmovsxwd) LM_WIDEN(u32, i16, i16, pmovsxwd)
#define LM_NARROW(to, from, raw, name)                                                                                 \
  template <> struct cvt_impl<vec<to, 16>, vec<from, 16>> {                                                            \
    static LM_INLINE vec<to, 16> run(vec<from, 16> x) {                                                                \
      return bits<vec<to, 16>>(__builtin_ia32_##name##512_mask(bits<vec<i32, 16>>(x), vec<raw, 16>{}, (u16)-1));      \
    }                                                                                                                  \
  };
LM_NARROW(u8, i32, char, pmovdb) LM_NARROW(i8, i32, char, pmovdb) LM_NARROW(u8, u32, char, pmovdb) LM_NARROW(i8, u32, char, pmovdb)
LM_NARROW(u16, i32, i16, pmovdw) LM_NARROW(i16, i32, i16, pmovdw) LM_NARROW(u16, u32, i16, pmovdw) LM_NARROW(i16, u32, i16, pmovdw)
constexpr int LM_NATIVE = 16;  // lanes for which there are instructions of one step
#else
constexpr int LM_NATIVE = 0;
#endif
template <class To, class From> LM_INLINE To cvt(From x) {
  constexpr int a = sizeof(elem<From>), b = sizeof(elem<To>);
  if constexpr (!is_float<elem<From>>::value && !is_float<elem<To>>::value && lanes<To>::value > 1 && (b >= 4 * a || a >= 4 * b) &&
                lanes<To>::value != LM_NATIVE) {
    typedef typename cvt_step<From, (b > a)>::type Next;
    return cvt<To>(cvt_impl<Next, From>::run(x));
  } else {
    return cvt_impl<To, From>::run(x);
  }
}

#define LM_COMPARE(name, sign) \
  struct cmp_##name {          \
    template <class V> static LM_INLINE auto run(V a, V b) { return a sign b; } \
  };
LM_COMPARE(eq, ==) LM_COMPARE(ne, !=) LM_COMPARE(lt, <) LM_COMPARE(le, <=) LM_COMPARE(gt, >) LM_COMPARE(ge, >=)
template <class C, class V> LM_INLINE ints<V> compare(V a, V b) {
  if constexpr (sizeof(V) > LM_REGISTER && lanes<V>::value > 1) {
    typedef typename halves<V>::H H;
    const auto x = bits<halves<V>>(a), y = bits<halves<V>>(b);
    return bits<ints<V>>(halves<ints<V>>{compare<C, H>(x.lo, y.lo), compare<C, H>(x.hi, y.hi)});
  } else {
    return bits<ints<V>>(C::run(a, b));
  }
}
template <class V> LM_INLINE V pick(mask<lanes<V>::value> m, V a, V b) { return select<V>(cvt<ints<V>>(m), a, b); }
template <class V> LM_INLINE mask<lanes<V>::value> truth(V x) { return cvt<mask<lanes<V>::value>>(compare<cmp_ne, V>(x, V{})); }
template <class M> LM_INLINE mask<lanes<M>::value> as_mask(M m) { return cvt<mask<lanes<M>::value>>(m); }
template <class V> LM_INLINE V from_mask(mask<lanes<V>::value> m) { return cvt<V>(-m); }
template <int N> LM_INLINE mask<N> first_lanes(all_lanes) { return ~mask<N>{}; }
template <int N> LM_INLINE mask<N> first_lanes(int n) { return iota<mask<N>>() < n; }

// --------------------------------------------------------------------------------------------------------- 2 memory
template <class T, int N> struct loose { typedef T type __attribute__((vector_size(sizeof(T) * N), aligned(1), may_alias)); };

template <class T, int N> LM_INLINE vec<T, N> load_raw(const T* p, all_lanes) {
  vec<T, N> r;
  __builtin_memcpy(&r, p, sizeof(r));
  return r;
}
// The first n lanes, by the instructions that leave the others alone where there are any.
template <int Element, int Bytes> struct partial {
  static constexpr bool native = false;
  template <class V, class T> static LM_INLINE V load(const T* p, int n) {
    V r = {};
    __builtin_memcpy(&r, p, sizeof(T) * n);
    return r;
  }
  template <class V, class T> static LM_INLINE void store(T* p, V v, int n) { __builtin_memcpy(p, &v, sizeof(T) * n); }
};
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
#define LM_PARTIAL(element, bytes, type, name, count)                                                          \
  template <> struct partial<element, bytes> {                                                                 \
    typedef vec<type, bytes / element> W;                                                                      \
    static constexpr bool native = true;                                                                       \
    template <class V, class T> static LM_INLINE V load(const T* p, int n) {                                   \
      return bits<V>(__builtin_ia32_load##name##_mask((const type*)p, W{}, count((u64(1) << n) - 1)));            \
    }                                                                                                          \
    template <class V, class T> static LM_INLINE void store(T* p, V v, int n) {                                \
      __builtin_ia32_store##name##_mask((type*)p, bits<W>(v), count((u64(1) << n) - 1));                          \
    }                                                                                                          \
  };
LM_PARTIAL(4, 64, i32, dqusi512, u16) LM_PARTIAL(8, 64, i64, dqudi512, u8) LM_PARTIAL(2, 64, i16, dquhi512, u32)
LM_PARTIAL(4, 32, i32, dqusi256, u8) LM_PARTIAL(8, 32, i64, dqudi256, u8) LM_PARTIAL(2, 32, i16, dquhi256, u16)
LM_PARTIAL(4, 16, i32, dqusi128, u8) LM_PARTIAL(2, 16, i16, dquhi128, u8)
#endif
template <class T, int N> LM_INLINE vec<T, N> load_raw(const T* p, int n) {
  return partial<sizeof(T), sizeof(T) * N>::template load<vec<T, N>>(p, n);
}
template <class T, int N> LM_INLINE void store_raw(T* p, vec<T, N> v, all_lanes) { __builtin_memcpy(p, &v, sizeof(v)); }
template <class T, int N> LM_INLINE void store_raw(T* p, vec<T, N> v, int n) {
  partial<sizeof(T), sizeof(T) * N>::store(p, v, n);
}

template <int N> LM_INLINE vec<f32, N> widen_bf16(vec<u16, N> b) { return bits<vec<f32, N>>(cvt<vec<u32, N>>(b) << 16); }
template <int N> LM_INLINE vec<u16, N> narrow_bf16(vec<f32, N> x) {  // nearest even; a NaN stays a (quiet) NaN
  vec<u32, N> u = bits<vec<u32, N>>(x);
  vec<u32, N> r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  r = (x != x) ? (u >> 16) | 0x40u : r;
  return cvt<vec<u16, N>>(r);
}
template <int N> struct half_conv {
  static LM_INLINE vec<f32, N> widen(vec<u16, N> h) {
    typedef vec<u32, N> U;
    U u = cvt<U>(h), sign = (u & 0x8000u) << 16, mag = u & 0x7fffu;
    U normal = (mag << 13) + (112u << 23);
    normal = (mag >= 0x7c00u) ? ((mag << 13) | 0x7f800000u) : normal;
    vec<f32, N> small = cvt<vec<f32, N>>(cvt<vec<i32, N>>(mag)) * 5.9604644775390625e-8f;  // 2^-24: exact
    U r = (mag < 0x400u) ? bits<U>(small) : normal;
    return bits<vec<f32, N>>(r | sign);
  }
  static LM_INLINE vec<u16, N> narrow(vec<f32, N> x) {
    typedef vec<u32, N> U;
    U u = bits<U>(x), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    U normal = (mag + 0xfffu + ((mag >> 13) & 1u) - (112u << 23)) >> 13;
    vec<f32, N> shifted = bits<vec<f32, N>>(mag) + 0.5f;  // ulp(0.5) = 2^-24 = the smallest half: the adder rounds
    U small = bits<U>(shifted) - 0x3f000000u;
    U r = (mag < (113u << 23)) ? small : normal;
    r = (mag >= 0x477ff000u) ? (r * 0u + 0x7c00u) : r;
    r = (mag > 0x7f800000u) ? (0x7e00u | ((mag >> 13) & 0x3ffu)) : r;
    return cvt<vec<u16, N>>(r | sign);
  }
};
#if defined(__AVX512F__) && !defined(__clang__)
template <> struct half_conv<16> {
  static LM_INLINE vec<f32, 16> widen(vec<u16, 16> h) {
    return __builtin_ia32_vcvtph2ps512_mask(bits<vec<i16, 16>>(h), vec<f32, 16>{}, (unsigned short)-1, 4);
  }
  static LM_INLINE vec<u16, 16> narrow(vec<f32, 16> x) {
    return bits<vec<u16, 16>>(__builtin_ia32_vcvtps2ph512_mask(x, 0, vec<i16, 16>{}, (unsigned short)-1));
  }
};
#endif
#if defined(__F16C__) && !defined(__clang__)
template <> struct half_conv<8> {
  static LM_INLINE vec<f32, 8> widen(vec<u16, 8> h) { return __builtin_ia32_vcvtph2ps256(bits<vec<i16, 8>>(h)); }
  static LM_INLINE vec<u16, 8> narrow(vec<f32, 8> x) { return bits<vec<u16, 8>>(__builtin_ia32_vcvtps2ph256(x, 0)); }
};
#endif

// load<V>(p, c): element type of memory → lanes of V (float for the 16-bit floats). store(p, v, c): the way back, with wrap-around.
template <class V, class T> struct mem {
  static constexpr int N = lanes<V>::value;
  template <class C> static LM_INLINE V load(const T* p, C c) { return cvt<V>(load_raw<T, N>(p, c)); }
  template <class C> static LM_INLINE void store(T* p, V v, C c) { store_raw<T, N>(p, cvt<vec<T, N>>(v), c); }
};
template <class V> struct mem<V, bf16> {
  static constexpr int N = lanes<V>::value;
  template <class C> static LM_INLINE V load(const bf16* p, C c) { return cvt<V>(widen_bf16<N>(load_raw<u16, N>(&p->bits, c))); }
  template <class C> static LM_INLINE void store(bf16* p, V v, C c) {
    store_raw<u16, N>(&p->bits, narrow_bf16<N>(cvt<vec<f32, N>>(v)), c);
  }
};
template <class V> struct mem<V, f16> {
  static constexpr int N = lanes<V>::value;
  template <class C> static LM_INLINE V load(const f16* p, C c) { return cvt<V>(half_conv<N>::widen(load_raw<u16, N>(&p->bits, c))); }
  template <class C> static LM_INLINE void store(f16* p, V v, C c) {
    store_raw<u16, N>(&p->bits, half_conv<N>::narrow(cvt<vec<f32, N>>(v)), c);
  }
};
template <class V> struct mem<V, bool> {  // V is a mask
  static constexpr int N = lanes<V>::value;
  template <class C> static LM_INLINE V load(const bool* p, C c) { return cvt<V>(load_raw<u8, N>((const u8*)p, c)) != V{}; }
  template <class C> static LM_INLINE void store(bool* p, V v, C c) { store_raw<u8, N>((u8*)p, cvt<vec<u8, N>>(-v), c); }
};
template <class V, class T, class C> LM_INLINE V load(const T* p, C c) { return mem<V, T>::load(p, c); }
template <class V, class T, class C> LM_INLINE void store(T* p, V v, C c) { mem<V, T>::store(p, v, c); }

template <class T> struct scalar_mem { typedef T type; };
template <> struct scalar_mem<bf16> { typedef u16 type; };
template <> struct scalar_mem<f16> { typedef u16 type; };
template <> struct scalar_mem<bool> { typedef u8 type; };
LM_INLINE int lane_count(all_lanes, int n) { return n; }
LM_INLINE int lane_count(int c, int) { return c; }

// Lane k holds what address(k) points at.
template <class V, class T, class A, class C> LM_INLINE V load_each(A address, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N] = {};
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k) tmp[k] = *address(k);
  return mem<V, T>::load(tmp, all_lanes{});
}
// Lanes whose mask is off read nothing and yield 0.
template <class V, class T, class A, class C> LM_INLINE V load_each_masked(A address, mask<lanes<V>::value> m, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N] = {};
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k)
    if (m[k]) tmp[k] = *address(k);
  return mem<V, T>::load(tmp, all_lanes{});
}
template <class M> LM_INLINE bool any_lane(M m, all_lanes) {
  if constexpr (sizeof(M) > 8 && lanes<M>::value > 1) {
    const auto p = bits<halves<M>>(m);
    return any_lane(p.lo | p.hi, all_lanes{});
  } else {
    bool any = false;
    for (int k = 0; k < lanes<M>::value; ++k) any |= m[k] != 0;
    return any;
  }
}
template <class M> LM_INLINE bool any_lane(M m, int n) { return any_lane(m & first_lanes<lanes<M>::value>(n), all_lanes{}); }
template <class V, class T, class C> LM_INLINE V load_masked(const T* p, mask<lanes<V>::value> m, C c) {
  if (!any_lane(~m, c)) return mem<V, T>::load(p, c);
  return load_each_masked<V, T>([p](int k) { return p + k; }, m, c);
}
template <class V, class T, class A, class C> LM_INLINE void store_each(A address, V v, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N];
  mem<V, T>::store(tmp, v, all_lanes{});
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k) *address(k) = tmp[k];
}
template <class V, class T, class A, class C> LM_INLINE void store_each_masked(A address, mask<lanes<V>::value> m, V v, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N];
  mem<V, T>::store(tmp, v, all_lanes{});
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k)
    if (m[k]) *address(k) = tmp[k];
}
// *address(k) = join(*address(k), v[k]), in lane order, so that duplicates combine in program order.
template <class V, class T, class A, class J, class C> LM_INLINE void update_each(A address, mask<lanes<V>::value> m, V v, J join, C c) {
  typedef vec<elem<V>, 1> S;
  const int n = lane_count(c, lanes<V>::value);
  for (int k = 0; k < n; ++k)
    if (m[k]) {
      S one;
      one[0] = v[k];
      T* p = address(k);
      mem<S, T>::store(p, join(mem<S, T>::load(p, all_lanes{}), one), all_lanes{});
    }
}
LM_INLINE i64 imin(i64 a, i64 b) { return a < b ? a : b; }
LM_INLINE i64 imax(i64 a, i64 b) { return a > b ? a : b; }
template <class V> LM_INLINE auto first(V v) -> elem<V> { return v[0]; }
LM_INLINE f32 first(f32 v) { return v; }
LM_INLINE f64 first(f64 v) { return v; }
LM_INLINE i32 first(i32 v) { return v; }
LM_INLINE u32 first(u32 v) { return v; }
LM_INLINE i64 first(i64 v) { return v; }
LM_INLINE u64 first(u64 v) { return v; }
// Lane k holds value(k).
template <class V, class F> LM_INLINE V fill_each(F value) {
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = elem<V>(value(k));
  return r;
}

// One element for all lanes.
template <class V, class T> LM_INLINE V load_splat(const T* p) {
  if constexpr (lanes<V>::value == 1) return mem<V, T>::load(p, all_lanes{});
  vec<typename scalar_mem<T>::type, lanes<V>::value> raw = {};
  typename scalar_mem<T>::type s;
  __builtin_memcpy(&s, p, sizeof(s));
  raw += s;
  T tmp[lanes<V>::value];
  __builtin_memcpy(tmp, &raw, sizeof(raw));
  return mem<V, T>::load(tmp, all_lanes{});
}
// Elements at p[k * stride]; at p[index[k]].
// The even lanes of two vectors.
template <class V> LM_INLINE V every_second(V a, V b) {
#if defined(__clang__)
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = 2 * k < lanes<V>::value ? a[(2 * k) % lanes<V>::value] : b[(2 * k) % lanes<V>::value];
  return r;
#else
  return __builtin_shuffle(a, b, iota<ints<V>>() * 2);
#endif
}
template <class V, class T> LM_INLINE V load_strided(const T* p, i64 stride, all_lanes) {
  constexpr int N = lanes<V>::value;
  typedef typename int_of<sizeof(T)>::u R;
  T tmp[N];
  if constexpr (N > 1 && partial<sizeof(T), sizeof(T) * N>::native)
    if (__builtin_constant_p(stride) && stride == 2) {
      const R* q = (const R*)p;
      const vec<R, N> both = every_second(load_raw<R, N>(q, all_lanes{}), load_raw<R, N>(q + N, N - 1));
      __builtin_memcpy(tmp, &both, sizeof(both));
      return mem<V, T>::load(tmp, all_lanes{});
    }
  for (int k = 0; k < N; ++k) tmp[k] = p[k * stride];
  return mem<V, T>::load(tmp, all_lanes{});
}
template <class V, class T, class C> LM_INLINE V load_strided(const T* p, i64 stride, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N] = {};
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k) tmp[k] = p[k * stride];
  return mem<V, T>::load(tmp, all_lanes{});
}
template <class V, class T, class C> LM_INLINE void store_strided(T* p, i64 stride, V v, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N];
  mem<V, T>::store(tmp, v, all_lanes{});
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k) p[k * stride] = tmp[k];
}

// Shuffles of whole vectors; indices from N on take the second operand.
#if defined(__clang__)
template <int S, class V> LM_INLINE V shift_up(V x, V fill) {
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = k < S ? fill[k] : x[k < S ? 0 : k - S];
  return r;
}
template <class V> LM_INLINE void interleave(V a, V b, V& lo, V& hi) {
  constexpr int N = lanes<V>::value;
  for (int k = 0; k < N; ++k) lo[k] = k % 2 ? b[k / 2] : a[k / 2], hi[k] = k % 2 ? b[N / 2 + k / 2] : a[N / 2 + k / 2];
}
#else
template <int S, class V> LM_INLINE V shift_up(V x, V fill) {
  typedef ints<V> I;
  constexpr int N = lanes<V>::value;
  const I at = iota<I>();
  return __builtin_shuffle(x, fill, at < S ? at + N : at - S);
}
template <class V> LM_INLINE void interleave(V a, V b, V& lo, V& hi) {
  typedef ints<V> I;
  constexpr int N = lanes<V>::value;
  const I at = (iota<I>() >> 1) + (iota<I>() & 1) * N;
  lo = __builtin_shuffle(a, b, at), hi = __builtin_shuffle(a, b, at + N / 2);
}
#endif
// An N x N block in registers turned round: perfect shuffles of the rows r and r + N/2, log2(N) times.
template <class V> LM_INLINE void turn_block(V (&rows)[lanes<V>::value]) {
  constexpr int N = lanes<V>::value;
#pragma GCC unroll 8
  for (int step = 1; step < N; step *= 2) {
    V next[N];
#pragma GCC unroll 32
    for (int k = 0; k < N / 2; ++k) interleave<V>(rows[k], rows[k + N / 2], next[2 * k], next[2 * k + 1]);
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) rows[k] = next[k];
  }
}
// tile[j][k] = from[k * stride + j] for k < n_lanes and j < count; a row of `tile` has N elements. put_tile: the way back.
template <int N, class T> LM_INLINE void get_tile(T* tile, const T* from, i64 stride, i64 n_lanes, i64 count) {
  typedef typename int_of<sizeof(T)>::u R;
  i64 j = 0;
  auto block = [&](auto c, i64 rows_out) __attribute__((always_inline)) {
    vec<R, N> rows[N];
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) rows[k] = load_raw<R, N>((const R*)(from + k * stride + j), c);
    turn_block(rows);
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k)
      if (k < rows_out) store_raw<R, N>((R*)(tile + (j + k) * N), rows[k], all_lanes{});
  };
  if constexpr (N > 1)
    if (n_lanes == N) {
      for (; j + N <= count; j += N) block(all_lanes{}, N);
      if constexpr (partial<sizeof(T), sizeof(T) * N>::native)
        if (j < count) block(int(count - j), count - j), j = count;
    }
  for (i64 k = 0; k < n_lanes; ++k)
    for (i64 i = j; i < count; ++i) tile[i * N + k] = from[k * stride + i];
}
template <int N, class T> LM_INLINE void put_tile(T* to, i64 stride, const T* tile, i64 n_lanes, i64 count) {
  typedef typename int_of<sizeof(T)>::u R;
  i64 j = 0;
  auto block = [&](auto c, i64 rows_in) __attribute__((always_inline)) {
    vec<R, N> rows[N];
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) rows[k] = k < rows_in ? load_raw<R, N>((const R*)(tile + (j + k) * N), all_lanes{}) : vec<R, N>{};
    turn_block(rows);
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) store_raw<R, N>((R*)(to + k * stride + j), rows[k], c);
  };
  if constexpr (N > 1)
    if (n_lanes == N) {
      for (; j + N <= count; j += N) block(all_lanes{}, N);
      if constexpr (partial<sizeof(T), sizeof(T) * N>::native)
        if (j < count) block(int(count - j), count - j), j = count;
    }
  for (i64 k = 0; k < n_lanes; ++k)
    for (i64 i = j; i < count; ++i) to[k * stride + i] = tile[i * N + k];
}

// ---------------------------------------------------------------------------------------------------------- 3 lanes
template <class V> LM_INLINE V absolute(V x) {
  if constexpr (is_float<elem<V>>::value) {
    typedef typename int_of<sizeof(elem<V>)>::u U;
    return bits<V>(bits<uints<V>>(x) & U(~U(0) >> 1));
  } else {
    return x < V{} ? -x : x;
  }
}
template <class V> LM_INLINE V copysign(V mag, V sign) {
  typedef typename int_of<sizeof(elem<V>)>::u U;
  return bits<V>((bits<uints<V>>(mag) & U(~U(0) >> 1)) | (bits<uints<V>>(sign) & ~U(~U(0) >> 1)));
}
template <class V> LM_INLINE ints<V> signbit(V x) { return bits<ints<V>>(x) < ints<V>{}; }
// NaN wins, as in eager's maximum / minimum; the first operand's NaN is the one kept.
template <class V> LM_INLINE V maximum(V a, V b) {
  if constexpr (is_float<elem<V>>::value) return select<V>((a >= b) | (a != a), a, b);
  else return a > b ? a : b;
}
template <class V> LM_INLINE V minimum(V a, V b) {
  if constexpr (is_float<elem<V>>::value) return select<V>((a <= b) | (a != a), a, b);
  else return a < b ? a : b;
}
template <class V> LM_INLINE V sign(V x) {
  if constexpr (is_float<elem<V>>::value) {
    V zero = {};
    return select<V>(x > zero, zero + 1, select<V>(x < zero, zero - 1, zero));  // sign(NaN) is 0 in eager
  } else {
    return cvt<V>(-cvt<ints<V>>(x > V{})) + cvt<V>(cvt<ints<V>>(x < V{}));
  }
}
template <class V, class F> LM_INLINE V map(V x, F f) {
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = f(x[k]);
  return r;
}
template <class V, class F> LM_INLINE V map(V x, V y, F f) {
  V r;
  for (int k = 0; k < lanes<V>::value; ++k) r[k] = f(x[k], y[k]);
  return r;
}

// ----------------------------------------------------------------------------------------------------- 4 arithmetic
// Float to integer as eager's scalar cast: truncation; NaN and out-of-range values give the x86 answer (the smallest integer).
template <class To, class From> LM_INLINE To to_int(From x) {
  typedef elem<To> T;
  if constexpr (T(-1) < T(0)) return cvt<To>(x);
  else return cvt<To>(cvt<vec<i64, lanes<To>::value>>(x));  // unsigned: negative values wrap around
}
// Narrow integers live in i32 lanes; wrap_to<i8> and friends put a value back into range after an operator.
template <class T, class V> LM_INLINE V wrap_to(V x) {
  if constexpr (sizeof(T) == sizeof(elem<V>)) return x;
  else {
    constexpr int s = int(8 * (sizeof(elem<V>) - sizeof(T)));
    if constexpr (T(-1) < T(0)) return (x << s) >> s;
    else return bits<V>((bits<uints<V>>(x) << s) >> s);
  }
}
template <class T> LM_INLINE T int_div(T a, T b) { return b == 0 ? T(0) : (T(-1) < T(0) && b == T(-1)) ? T(0 - u64(a)) : T(a / b); }
template <class T> LM_INLINE T int_rem(T a, T b) { return (b == 0 || (T(-1) < T(0) && b == T(-1))) ? T(0) : T(a % b); }
template <class T> LM_INLINE T floor_div(T a, T b) {
  T q = int_div(a, b);
  return T(q - (int_rem(a, b) != 0 && (int_rem(a, b) < 0) != (b < 0)));
}
template <class T> LM_INLINE T floor_rem(T a, T b) {
  T r = int_rem(a, b);
  return (r != 0 && ((r < 0) != (b < 0))) ? T(r + b) : r;
}
template <class T> LM_INLINE T shift_left(T a, T b, int width) { return (b < 0 || b >= T(width)) ? T(0) : T(u64(a) << b); }
template <class T> LM_INLINE T shift_right(T a, T b, int width) {
  if (b < 0 || b >= T(width)) return a < 0 ? T(-1) : T(0);
  return T(a >> b);
}
template <class T> LM_INLINE T int_pow(T a, T b) {
  if (b < 0) return a == 1 ? T(1) : a == T(-1) ? ((b & 1) ? T(-1) : T(1)) : T(0);
  u64 r = 1, x = u64(a), e = u64(b);
  for (; e; e >>= 1, x *= x)
    if (e & 1) r *= x;
  return T(r);
}
// Whole quotients through double where both operands are exact there: the rounded quotient is too large by one at most
// where it meets a whole number from below, and below 2^52 it never does.
template <class V, class F, class G> LM_INLINE V int_quotient(V a, V b, F vector, G scalar) {
  typedef vec<f64, lanes<V>::value> D;
  if constexpr (sizeof(D) <= LM_REGISTER && lanes<V>::value > 1) {
    constexpr bool small = sizeof(elem<V>) < 8;
    ints<V> odd = bits<ints<V>>(b) == 0;
    if constexpr (!small) {
      typedef ints<V> I;
      const I top = splat<I>(i64(1) << 51);
      const I p = bits<I>(a) + top, q = bits<I>(b) + top;
      odd |= (p < 0) | (q < 0) | (p > 2 * top) | (q > 2 * top);
    }
    if (__builtin_expect(!any_lane(odd, all_lanes{}), 1)) return vector(cvt<D>(a), cvt<D>(b), a, b);
  } else if constexpr (lanes<V>::value > 1 && sizeof(elem<V>) < 8 && sizeof(D) <= 2 * LM_REGISTER) {
    const auto p = bits<halves<V>>(a), q = bits<halves<V>>(b);
    return bits<V>(halves<V>{int_quotient(p.lo, q.lo, vector, scalar), int_quotient(p.hi, q.hi, vector, scalar)});
  }
  return map(a, b, scalar);
}
template <class V> LM_INLINE V trunc_(V x);
template <class V> LM_INLINE V floor_(V x);
template <class V> LM_INLINE V vint_div(V a, V b) {
  return int_quotient(a, b, [](auto x, auto y, auto p, auto) { return cvt<decltype(p)>(trunc_(x / y)); }, [](auto x, auto y) { return int_div(x, y); });
}
template <class V> LM_INLINE V vint_rem(V a, V b) {
  return int_quotient(a, b, [](auto x, auto y, auto p, auto q) { return p - cvt<decltype(p)>(trunc_(x / y)) * q; }, [](auto x, auto y) { return int_rem(x, y); });
}
template <class V> LM_INLINE V vfloor_div(V a, V b) {
  return int_quotient(a, b, [](auto x, auto y, auto p, auto) { return cvt<decltype(p)>(floor_(x / y)); }, [](auto x, auto y) { return floor_div(x, y); });
}
template <class V> LM_INLINE V vfloor_rem(V a, V b) {
  return int_quotient(a, b, [](auto x, auto y, auto p, auto q) { return p - cvt<decltype(p)>(floor_(x / y)) * q; }, [](auto x, auto y) { return floor_rem(x, y); });
}
template <class V> LM_INLINE V vint_pow(V a, V b) { return map(a, b, [](auto x, auto y) { return int_pow(x, y); }); }
template <class V> LM_INLINE V vshl(V a, V b, int w) { return map(a, b, [w](auto x, auto y) { return shift_left(x, y, w); }); }
template <class V> LM_INLINE V vshr(V a, V b, int w) { return map(a, b, [w](auto x, auto y) { return shift_right(x, y, w); }); }

extern "C" {
float fmaf(float, float, float); float sqrtf(float); float fmodf(float, float); float powf(float, float); float sinf(float); float cosf(float);
float tanf(float); float asinf(float); float acosf(float); float atanf(float); float sinhf(float); float coshf(float); float asinhf(float);
float acoshf(float); float atanhf(float); float lgammaf(float); float tgammaf(float); float erfcf(float); float hypotf(float, float);
float atan2f(float, float); float nextafterf(float, float); float ldexpf(float, int); float frexpf(float, int*);
double fma(double, double, double); double sqrt(double); double fmod(double, double); double pow(double, double); double sin(double);
double cos(double); double tan(double); double asin(double); double acos(double); double atan(double); double sinh(double); double cosh(double);
double asinh(double); double acosh(double); double atanh(double); double lgamma(double); double tgamma(double); double erf(double);
double erfc(double); double hypot(double, double); double atan2(double, double); double nextafter(double, double); double exp(double);
double exp2(double); double expm1(double); double log(double); double log2(double); double log10(double); double log1p(double); double tanh(double);
double ldexp(double, int); double frexp(double, int*); float log10f(float);
}

#if defined(__clang__)
template <class V> LM_INLINE V fma_(V a, V b, V c) { return __builtin_elementwise_fma(a, b, c); }
template <class V> LM_INLINE V sqrt_(V x) { return map(x, [](elem<V> v) { return __builtin_sqrt(v); }); }
template <int N> LM_INLINE vec<f32, N> sqrt_(vec<f32, N> x) { return map(x, [](f32 v) { return __builtin_sqrtf(v); }); }
#else
template <class V> struct hw {  // no fma instruction for this shape: the polynomials tolerate two roundings
  static LM_INLINE V fma(V a, V b, V c) { return a * b + c; }
  static LM_INLINE V sqrt(V x) {
    if constexpr (sizeof(elem<V>) == 4) return map(x, [](f32 v) { return __builtin_sqrtf(v); });
    else return map(x, [](f64 v) { return __builtin_sqrt(v); });
  }
};
#if defined(__AVX512F__)
template <> struct hw<vec<f32, 16>> {
  typedef vec<f32, 16> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4); }
  static LM_INLINE V sqrt(V x) { return __builtin_ia32_sqrtps512_mask(x, x, (unsigned short)-1, 4); }
};
template <> struct hw<vec<f64, 8>> {
  typedef vec<f64, 8> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)-1, 4); }
  static LM_INLINE V sqrt(V x) { return __builtin_ia32_sqrtpd512_mask(x, x, (unsigned char)-1, 4); }
};
template <> struct hw<vec<f64, 16>> {
  typedef vec<f64, 16> V;
  typedef vec<f64, 8> H;
  typedef halves<V> P;
  static LM_INLINE V fma(V a, V b, V c) {
    P x = bits<P>(a), y = bits<P>(b), z = bits<P>(c);
    return bits<V>(P{hw<H>::fma(x.lo, y.lo, z.lo), hw<H>::fma(x.hi, y.hi, z.hi)});
  }
  static LM_INLINE V sqrt(V a) {
    P x = bits<P>(a);
    return bits<V>(P{hw<H>::sqrt(x.lo), hw<H>::sqrt(x.hi)});
  }
};
#endif
#if defined(__FMA__) && defined(__AVX__)
template <> struct hw<vec<f32, 8>> {
  typedef vec<f32, 8> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_ia32_vfmaddps256(a, b, c); }
  static LM_INLINE V sqrt(V x) { return __builtin_ia32_sqrtps256(x); }
};
template <> struct hw<vec<f64, 4>> {
  typedef vec<f64, 4> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
  static LM_INLINE V sqrt(V x) { return __builtin_ia32_sqrtpd256(x); }
};
template <> struct hw<vec<f32, 4>> {
  typedef vec<f32, 4> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_ia32_vfmaddps(a, b, c); }
  static LM_INLINE V sqrt(V x) { return __builtin_ia32_sqrtps(x); }
};
#elif defined(__aarch64__)
template <> struct hw<vec<f32, 4>> {
  typedef vec<f32, 4> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_aarch64_fmav4sf(a, b, c); }
  static LM_INLINE V sqrt(V x) { return __builtin_aarch64_sqrtv4sf(x); }
};
template <> struct hw<vec<f64, 2>> {
  typedef vec<f64, 2> V;
  static LM_INLINE V fma(V a, V b, V c) { return __builtin_aarch64_fmav2df(a, b, c); }
  static LM_INLINE V sqrt(V x) { return __builtin_aarch64_sqrtv2df(x); }
};
#endif
template <class V> LM_INLINE V fma_(V a, V b, V c) { return hw<V>::fma(a, b, c); }
template <class V> LM_INLINE V sqrt_(V x) { return hw<V>::sqrt(x); }
#endif
template <class V> LM_INLINE V fmas(V a, V b, elem<V> c) { return fma_<V>(a, b, splat<V>(c)); }

#if defined(__AVX512F__) && !defined(__clang__)
LM_INLINE vec<f32, 16> hw_round(vec<f32, 16> x, const int) { return __builtin_ia32_rndscaleps_mask(x, 8, x, (unsigned short)-1, 4); }
// exp with the instruction that scales by 2^n and rounds once, overflow and subnormals included.
template <class V> LM_INLINE V exp_native(V c, V lo, V hi, V log2e, V ln2_hi, V ln2_lo, V& n) {
  c = __builtin_ia32_maxps512_mask(lo, c, c, (unsigned short)-1, 4);  // a NaN in the second operand stays
  c = __builtin_ia32_minps512_mask(hi, c, c, (unsigned short)-1, 4);
  n = hw_round(c * log2e, 0);
  return fma_<V>(n, ln2_lo, fma_<V>(n, ln2_hi, c));
}
LM_INLINE vec<f32, 16> hw_scale2(vec<f32, 16> p, vec<f32, 16> n) {
  return __builtin_ia32_scalefps512_mask(p, n, p, (unsigned short)-1, 4);
}
template <class V> struct has_scale { static constexpr bool value = false; };
template <> struct has_scale<vec<f32, 16>> { static constexpr bool value = true; };
#define LM_SCALE 1
#endif
// Rounding instructions: 0 nearest even, 1 down, 2 up, 3 towards zero.
template <class V> struct hw_rounding { static constexpr bool value = false; };
#if !defined(__clang__)
#define LM_ROUNDING(type, instruction)                                                     \
  template <> struct hw_rounding<type> {                                                   \
    static constexpr bool value = true;                                                    \
    template <int How> static LM_INLINE type run(type x) { return instruction; }           \
  };
#if defined(__AVX512F__)
typedef vec<f32, 16> f32x16;
typedef vec<f64, 8> f64x8;
LM_ROUNDING(f32x16, __builtin_ia32_rndscaleps_mask(x, 8 + How, x, (unsigned short)-1, 4))
LM_ROUNDING(f64x8, __builtin_ia32_rndscalepd_mask(x, 8 + How, x, (unsigned char)-1, 4))
#endif
#if defined(__AVX__)
typedef vec<f32, 8> f32x8;
typedef vec<f64, 4> f64x4;
LM_ROUNDING(f32x8, __builtin_ia32_roundps256(x, 8 + How))
LM_ROUNDING(f64x4, __builtin_ia32_roundpd256(x, 8 + How))
#endif
#endif
// Nearest even through the "add and subtract 2^mantissa" trick (exact while -fassociative-math is off).
template <class V> LM_INLINE V rint_(V x) {
  if constexpr (sizeof(V) > LM_REGISTER && lanes<V>::value > 1) {
    const auto p = bits<halves<V>>(x);
    return bits<V>(halves<V>{rint_(p.lo), rint_(p.hi)});
  }
  if constexpr (hw_rounding<V>::value) return hw_rounding<V>::template run<0>(x);
  constexpr elem<V> magic = sizeof(elem<V>) == 4 ? elem<V>(8388608.0) : elem<V>(4503599627370496.0);
  V a = absolute(x), r = copysign<V>((a + magic) - magic, x);
  return select<V>(a < magic, r, x);
}
template <class V> LM_INLINE V trunc_(V x) {
  if constexpr (sizeof(V) > LM_REGISTER && lanes<V>::value > 1) {
    const auto p = bits<halves<V>>(x);
    return bits<V>(halves<V>{trunc_(p.lo), trunc_(p.hi)});
  }
  if constexpr (hw_rounding<V>::value) return hw_rounding<V>::template run<3>(x);
  constexpr elem<V> magic = sizeof(elem<V>) == 4 ? elem<V>(8388608.0) : elem<V>(4503599627370496.0);
  V a = absolute(x), r = (a + magic) - magic;
  r = select<V>(r > a, r - 1, r);
  return select<V>(a < magic, copysign<V>(r, x), x);
}
template <class V> LM_INLINE V floor_(V x) {
  if constexpr (sizeof(V) > LM_REGISTER && lanes<V>::value > 1) {
    const auto p = bits<halves<V>>(x);
    return bits<V>(halves<V>{floor_(p.lo), floor_(p.hi)});
  }
  if constexpr (hw_rounding<V>::value) return hw_rounding<V>::template run<1>(x);
  V r = rint_(x);
  return copysign<V>(select<V>(r > x, r - 1, r), x);
}
template <class V> LM_INLINE V ceil_(V x) {
  if constexpr (sizeof(V) > LM_REGISTER && lanes<V>::value > 1) {
    const auto p = bits<halves<V>>(x);
    return bits<V>(halves<V>{ceil_(p.lo), ceil_(p.hi)});
  }
  if constexpr (hw_rounding<V>::value) return hw_rounding<V>::template run<2>(x);
  V r = rint_(x);
  return copysign<V>(select<V>(r < x, r + 1, r), x);
}

// ---------------------------------------------------------------------------------------------------- 5 vector math
// 2^n for a vector of whole numbers held as floats, n in [-252, 254] (float) or [-2044, 2046] (double): two factors, so that
// results below the normal range round once and nothing is flushed.
template <class V> LM_INLINE V scale2(V p, V n) {
  constexpr int mant = sizeof(elem<V>) == 4 ? 23 : 52, bias = sizeof(elem<V>) == 4 ? 127 : 1023;
  ints<V> k = cvt<ints<V>>(n), h = k >> 1;
  V a = bits<V>((h + bias) << mant), b = bits<V>((k - h + bias) << mant);
  return p * a * b;
}
template <class V> struct expo;  // exp(r) - 1 - r on |r| <= ln2/2, and the constants of its range reduction
template <int N> struct expo_f32 {
  typedef vec<f32, N> V;
  static LM_INLINE V tail(V r) {
    V p = fmas(r, splat<V>(0.001394656195f), 0.008369223508f);
    p = fmas(p, r, 0.04166626152f);
    p = fmas(p, r, 0.1666651538f);
    p = fmas(p, r, 0.5000000081f);
    return p * r * r;
  }
  static constexpr f32 lo = -104.5f, hi = 89.f, ln2_hi = 0.693359375f, ln2_lo = -2.12194440e-4f, log2e = 1.44269504f;
};
template <int N> struct expo_f64 {
  typedef vec<f64, N> V;
  static LM_INLINE V tail(V r) {
    V p = fmas(r, splat<V>(2.0924596060647945551e-9), 2.5112575199224824494e-8);
    p = fmas(p, r, 2.7557241228730171948e-7);
    p = fmas(p, r, 2.7557233186138299516e-6);
    p = fmas(p, r, 0.000024801587364178479069);
    p = fmas(p, r, 0.00019841269898232815388);
    p = fmas(p, r, 0.0013888888888863462057);
    p = fmas(p, r, 0.0083333333333161921596);
    p = fmas(p, r, 0.041666666666666714273);
    p = fmas(p, r, 0.16666666666666684719);
    p = fmas(p, r, 0.4999999999999999997);
    return p * r * r;
  }
  static constexpr f64 lo = -746., hi = 710., ln2_hi = 0.693147180369123816490, ln2_lo = 1.90821492927058770002e-10,
                       log2e = 1.4426950408889634;
};
template <class V, int B> struct expo_pick;
template <class V> struct expo_pick<V, 4> { typedef expo_f32<lanes<V>::value> type; };
template <class V> struct expo_pick<V, 8> { typedef expo_f64<lanes<V>::value> type; };
template <class V> using expo_of = typename expo_pick<V, sizeof(elem<V>)>::type;

template <class V> LM_INLINE V exp_(V x) {
  typedef expo_of<V> E;
#ifdef LM_SCALE
  if constexpr (has_scale<V>::value) {
    V n, r = exp_native<V>(x, splat<V>(E::lo), splat<V>(E::hi), splat<V>(E::log2e), splat<V>(-E::ln2_hi), splat<V>(-E::ln2_lo), n);
    return hw_scale2(1 + (r + E::tail(r)), n);
  }
#endif
  V c = select<V>(x < E::lo, splat<V>(E::lo), x);
  c = select<V>(c > E::hi, splat<V>(E::hi), c);  // a NaN passes both
  V n = rint_(c * E::log2e);
  V r = fmas(n, splat<V>(-E::ln2_hi), 0);
  r = fma_<V>(n, splat<V>(-E::ln2_lo), c + r);
  V p = 1 + (r + E::tail(r));
  ints<V> nan = x != x;
  return select<V>(nan, x, scale2<V>(p, select<V>(nan, V{}, n)));
}
template <class V> LM_INLINE V expm1_(V x) {
  typedef expo_of<V> E;
  constexpr elem<V> floor_at = sizeof(elem<V>) == 4 ? elem<V>(-40) : elem<V>(-80);
  V c = select<V>(x < floor_at, splat<V>(floor_at), x);
  c = select<V>(c > E::hi, splat<V>(E::hi), c);
  V n = rint_(c * E::log2e);
  V r = fma_<V>(n, splat<V>(-E::ln2_lo), c + n * (-E::ln2_hi));
  ints<V> nan = x != x;
  n = select<V>(nan, V{}, n);
  V p = r + E::tail(r);                       // exp(r) - 1
  // 2^n may overflow on its own at the top of the range: halve it and double at the end.
  V s = scale2<V>(splat<V>(1), n - 1);
  V y = (p * s + (s - elem<V>(0.5))) * 2;
  constexpr elem<V> tiny = sizeof(elem<V>) == 4 ? elem<V>(1e-30) : elem<V>(1e-290);
  y = select<V>(absolute(x) < tiny, x, y);
  return select<V>(nan, x, y);
}
template <class V> LM_INLINE V exp2_(V x) {
  typedef expo_of<V> E;
  constexpr elem<V> lo = sizeof(elem<V>) == 4 ? elem<V>(-151) : elem<V>(-1076), hi = sizeof(elem<V>) == 4 ? elem<V>(129) : elem<V>(1025);
  V c = select<V>(x < lo, splat<V>(lo), x);
  c = select<V>(c > hi, splat<V>(hi), c);
  V n = rint_(c), f = c - n;
  V r = f * elem<V>(0.6931471805599453094172321);
  V p = 1 + (r + E::tail(r));
  ints<V> nan = x != x;
  return select<V>(nan, x, scale2<V>(p, select<V>(nan, V{}, n)));
}

// x = m * 2^e, m in [sqrt(1/2), sqrt(2)), for positive finite x, subnormals included.
template <class V> LM_INLINE V split_log(V x, V& e) {
  constexpr int mant = sizeof(elem<V>) == 4 ? 23 : 52;
  typedef typename int_of<sizeof(elem<V>)>::s S;
  constexpr S half_root = sizeof(elem<V>) == 4 ? S(0x3f3504f3) : S(0x3fe6a09e667f3bcdLL);
  constexpr elem<V> tiny = sizeof(elem<V>) == 4 ? elem<V>(1.17549435e-38) : elem<V>(2.2250738585072014e-308);
  constexpr elem<V> up = sizeof(elem<V>) == 4 ? elem<V>(33554432.) : elem<V>(18014398509481984.);
  constexpr elem<V> up_e = sizeof(elem<V>) == 4 ? elem<V>(25) : elem<V>(54);
  ints<V> sub = x < tiny;
  x = select<V>(sub, x * up, x);
  ints<V> k = (bits<ints<V>>(x) - half_root) >> mant;
  e = cvt<V>(k) - select<V>(sub, splat<V>(up_e), V{});
  return bits<V>(bits<ints<V>>(x) - (k << mant));
}
template <class V> LM_INLINE V log_edges(V x, V y) {
  constexpr elem<V> inf = elem<V>(__builtin_inf());
  y = select<V>(x == 0, splat<V>(-inf), y);
  y = select<V>(x < 0, splat<V>(elem<V>(__builtin_nan(""))), y);
  return select<V>((x == inf) | (x != x), x, y);
}
// log(1 + f) + e * ln2 + c, for f = m - 1
template <class V> LM_INLINE V log_core(V f, V e, V c) {
  if constexpr (sizeof(elem<V>) == 4) {
    V p = fmas(f, splat<V>(0.06800912116f), -0.1172660479f);
    p = fmas(p, f, 0.1189098947f);
    p = fmas(p, f, -0.1239644514f);
    p = fmas(p, f, 0.1421776258f);
    p = fmas(p, f, -0.1666851261f);
    p = fmas(p, f, 0.2000224652f);
    p = fmas(p, f, -0.2500000056f);
    p = fmas(p, f, 0.3333331012f);
    V z = f * f;
    V y = fma_<V>(p * f, z, fma_<V>(e, splat<V>(-2.12194440e-4f), c));
    y = fma_<V>(z, splat<V>(-0.5f), y);
    return fma_<V>(e, splat<V>(0.693359375f), f + y);
  } else {
    V s = f / (f + 2), z = s * s;
    V p = fmas(z, splat<V>(0.13268314322523050893), 0.13248231508682199399);
    p = fmas(p, z, 0.15387175508441496323);
    p = fmas(p, z, 0.18181773693920252723);
    p = fmas(p, z, 0.22222222672021239179);
    p = fmas(p, z, 0.28571428568912607283);
    p = fmas(p, z, 0.40000000000006817603);
    p = fmas(p, z, 0.6666666666666666032);
    V half = f * f * 0.5;  // log(1+f) = f - f²/2 + s (f²/2 + z P(z)): the big term stays exact
    V y = s * (half + z * p);
    y = fma_<V>(e, splat<V>(1.90821492927058770002e-10), y + c);
    return e * 0.693147180369123816490 + (f - (half - y));
  }
}
template <class V> LM_INLINE V log_(V x) {
  V e, m = split_log<V>(x, e);
  return log_edges<V>(x, log_core<V>(m - 1, e, V{}));
}
template <class V> LM_INLINE V log1p_(V x) {
  V u = x + 1, e, m = split_log<V>(u, e);
  V lost = select<V>(absolute(x) > 1, 1 - (u - x), x - (u - 1));
  constexpr elem<V> inf = elem<V>(__builtin_inf());
  V y = log_core<V>(m - 1, e, select<V>(u == inf, V{}, lost / u));
  y = select<V>(absolute(x) < (sizeof(elem<V>) == 4 ? elem<V>(1e-10) : elem<V>(1e-18)), x, y);
  y = select<V>(x == -1, splat<V>(-inf), y);
  y = select<V>(x < -1, splat<V>(elem<V>(__builtin_nan(""))), y);
  return select<V>((x == inf) | (x != x), x, y);
}

// libtorch exports the vector math library that eager uses; where it does not, libm goes lane by lane.
template <class V> struct library {
  static constexpr bool value = false;
};
#define LM_SLEEF_NAMES(F)                                                                                              \
  F(1, tan, _u10) F(1, asin, _u10) F(1, acos, _u10) F(1, atan, _u10) F(1, sinh, _u10) F(1, cosh, _u10) F(1, asinh, _u10) \
  F(1, acosh, _u10) F(1, atanh, _u10) F(1, lgamma, _u10) F(1, erfc, _u15) F(2, hypot, _u05)                \
  F(2, atan2, _u10) F(2, nextafter, _) F(2, pow, _u10) F(1, sin, _u10) F(1, cos, _u10) F(1, exp2, _u10) F(1, log2, _u10)  \
  F(1, log10, _u10) F(1, erf, _u10)
#define LM_DECLARE_1(V, name) extern "C" V name(V) __attribute__((weak));
#define LM_DECLARE_2(V, name) extern "C" V name(V, V) __attribute__((weak));
#define LM_ROUTE_1(V, fn, name) static LM_INLINE bool fn(V x, V& r) { return name && (r = name(x), true); }
#define LM_ROUTE_2(V, fn, name) static LM_INLINE bool fn(V x, V y, V& r) { return name && (r = name(x, y), true); }
#if defined(__AVX512F__)
typedef vec<f32, 16> sleef_f; typedef vec<f64, 8> sleef_d;
#define LM_SLEEF_F(n, fn, acc) LM_DECLARE_##n(sleef_f, Sleef_##fn##f16##acc##avx512f)
#define LM_SLEEF_D(n, fn, acc) LM_DECLARE_##n(sleef_d, Sleef_##fn##d8##acc##avx512f)
#define LM_SLEEF_RF(n, fn, acc) LM_ROUTE_##n(sleef_f, fn, Sleef_##fn##f16##acc##avx512f)
#define LM_SLEEF_RD(n, fn, acc) LM_ROUTE_##n(sleef_d, fn, Sleef_##fn##d8##acc##avx512f)
#elif defined(__AVX2__)
typedef vec<f32, 8> sleef_f; typedef vec<f64, 4> sleef_d;
#define LM_SLEEF_F(n, fn, acc) LM_DECLARE_##n(sleef_f, Sleef_##fn##f8##acc##avx2)
#define LM_SLEEF_D(n, fn, acc) LM_DECLARE_##n(sleef_d, Sleef_##fn##d4##acc##avx2)
#define LM_SLEEF_RF(n, fn, acc) LM_ROUTE_##n(sleef_f, fn, Sleef_##fn##f8##acc##avx2)
#define LM_SLEEF_RD(n, fn, acc) LM_ROUTE_##n(sleef_d, fn, Sleef_##fn##d4##acc##avx2)
#endif
#if defined(LM_SLEEF_F)
LM_SLEEF_NAMES(LM_SLEEF_F)
LM_SLEEF_NAMES(LM_SLEEF_D)
template <> struct library<sleef_f> {
  static constexpr bool value = true;
  LM_SLEEF_NAMES(LM_SLEEF_RF)
};
template <> struct library<sleef_d> {
  static constexpr bool value = true;
  LM_SLEEF_NAMES(LM_SLEEF_RD)
};
#endif
#define LM_DOUBLE1(fn)                                                         \
  template <class V> LM_INLINE V double_##fn(V x) {                            \
    if constexpr (library<V>::value) {                                         \
      V r;                                                                     \
      if (__builtin_expect(library<V>::fn(x, r), 1)) return r;                 \
    }                                                                          \
    return map(x, [](f64 v) { return fn(v); });                                \
  }
LM_DOUBLE1(log2) LM_DOUBLE1(log10) LM_DOUBLE1(sin) LM_DOUBLE1(cos) LM_DOUBLE1(erf)
template <class V> LM_INLINE V double_pow(V x, V y) {
  if constexpr (library<V>::value) {
    V r;
    if (__builtin_expect(library<V>::pow(x, y, r), 1)) return r;
  }
  return map(x, y, [](f64 a, f64 b) { return pow(a, b); });
}
// Double lanes for single-precision arguments: one rounding at the end.
template <class V> constexpr bool in_double() {  // of several registers: compilers compare those lane by lane
  return sizeof(elem<V>) == 4 && 2 * sizeof(V) > LM_REGISTER && lanes<V>::value > 1;
}
template <class V, class F> LM_INLINE V by_halves(V x, F f) {
  const auto p = bits<halves<V>>(x);
  return bits<V>(halves<V>{f(p.lo), f(p.hi)});
}
template <int N> LM_INLINE vec<f64, N> log2_wide(vec<f32, N> x) {  // x > 0 and finite
  typedef vec<f64, N> D;
  D w = cvt<D>(x), e, m = split_log<D>(w, e);
  D f = m - 1, s = f / (f + 2), z = s * s;
  D p = fmas(z, splat<D>(0.24314838868012265), 0.26142527823018381);
  p = fmas(p, z, 0.32061696473833238);
  p = fmas(p, z, 0.41219839404374731);
  p = fmas(p, z, 0.57707801729600134);
  p = fmas(p, z, 0.96179669392422338);
  p = fmas(p, z, 2.8853900817779273);
  return fma_<D>(p, s, e);
}
template <int N> LM_INLINE vec<f64, N> exp2_wide(vec<f64, N> x) {  // |x| < 1000
  typedef vec<f64, N> D;
  D n = rint_(x), r = x - n;
  D p = fmas(r, splat<D>(1.3259823331369595e-6), 1.5310311146606473e-5);
  p = fmas(p, r, 0.00015403432969943375);
  p = fmas(p, r, 0.0013333449696144705);
  p = fmas(p, r, 0.0096181291949839121);
  p = fmas(p, r, 0.055504109421175061);
  p = fmas(p, r, 0.24022650695635951);
  p = fmas(p, r, 0.69314718054570451);
  p = fmas(p, r, 1.0000000000000138);
  return p * bits<D>((cvt<vec<i64, N>>(n) + 1023) << 52);
}
template <class V> LM_INLINE V log2_(V x) {
  if constexpr (in_double<V>()) return by_halves(x, [](auto h) { return log2_(h); });
  if constexpr (sizeof(elem<V>) == 4) return log_edges<V>(x, cvt<V>(log2_wide<lanes<V>::value>(x)));
  else return double_log2(x);
}
template <class V> LM_INLINE V log10_(V x) {
  if constexpr (in_double<V>()) return by_halves(x, [](auto h) { return log10_(h); });
  if constexpr (sizeof(elem<V>) == 4)
    return log_edges<V>(x, cvt<V>(log2_wide<lanes<V>::value>(x) * 0.30102999566398119521));
  else return double_log10(x);
}
template <class V> LM_INLINE V pow_(V x, V y) {
  if constexpr (in_double<V>()) {
    const auto p = bits<halves<V>>(x), q = bits<halves<V>>(y);
    return bits<V>(halves<V>{pow_(p.lo, q.lo), pow_(p.hi, q.hi)});
  }
  if constexpr (sizeof(elem<V>) == 4) {
    constexpr int N = lanes<V>::value;
    typedef vec<f64, N> D;
    constexpr f32 inf = __builtin_inff();
    V a = absolute(x);
    ints<V> easy = (a > 0) & (a < inf) & (absolute(y) < inf);
    D t = log2_wide<N>(select<V>(easy, a, splat<V>(1))) * cvt<D>(select<V>(easy, y, V{}));
    t = select<D>(t > 200, splat<D>(200), t);
    t = select<D>(t < -200, splat<D>(-200), t);
    V r = cvt<V>(exp2_wide<N>(t));
    V whole = trunc_(y), half = y * 0.5f;
    ints<V> odd = (whole == y) & (trunc_(half) != half);
    r = select<V>((x < 0) & odd, -r, r);
    r = select<V>((x < 0) & (whole != y), splat<V>(__builtin_nanf("")), r);
    bool rest = false;
    for (int k = 0; k < N; ++k) rest |= !easy[k];
    if (__builtin_expect(rest, 0))
      for (int k = 0; k < N; ++k)
        if (!easy[k]) r[k] = powf(x[k], y[k]);
    return r;
  } else {
    return double_pow(x, y);
  }
}
// sin (Quarter = 0) and cos (Quarter = 1): reduction by pi/2 in double, exact enough below 1e7; libm lanes beyond.
template <int N> LM_INLINE vec<f32, N> sincos_f32(vec<f32, N> x, int quarter) {
  if constexpr (in_double<vec<f32, N>>()) return by_halves(x, [quarter](auto h) { return sincos_f32<N / 2>(h, quarter); });
  typedef vec<f64, N> D;
  typedef vec<f32, N> V;
  ints<V> big = ~(absolute(x) < 1e7f);
  D w = cvt<D>(select<V>(big, V{}, x));
  D n = rint_(w * 0.63661977236758134308);
  D r = fma_<D>(n, splat<D>(-6.123233995736766e-17), fma_<D>(n, splat<D>(-1.5707963267948966), w));
  D z = r * r;
  D s = fmas(z, splat<D>(2.7249902525958409e-6), -0.00019840086614277844);
  s = fmas(s, z, 0.0083333318746482402);
  s = fmas(s, z, -0.16666666663855826);
  s = fma_<D>(s * z, r, r);
  D c = fmas(z, splat<D>(2.4463770328904252e-5), -0.0013887589092885497);
  c = fmas(c, z, 0.041666650645462046);
  c = fmas(c, z, -0.49999999969130769);
  c = fmas(c, z, 1);
  vec<i64, N> q = cvt<vec<i64, N>>(n) + quarter;
  D y = select<D>((q & 1) != 0, c, s);
  y = select<D>((q & 2) != 0, -y, y);
  V out = cvt<V>(y);
  if (!quarter) out = select<V>(x == 0, x, out);
  bool rest = false;
  for (int k = 0; k < N; ++k) rest |= big[k] != 0;
  if (__builtin_expect(rest, 0))
    for (int k = 0; k < N; ++k)
      if (big[k]) out[k] = quarter ? cosf(x[k]) : sinf(x[k]);
  return out;
}
template <class V> LM_INLINE V sin_(V x) {
  if constexpr (sizeof(elem<V>) == 4) return sincos_f32<lanes<V>::value>(x, 0);
  else return double_sin(x);
}
template <class V> LM_INLINE V cos_(V x) {
  if constexpr (sizeof(elem<V>) == 4) return sincos_f32<lanes<V>::value>(x, 1);
  else return double_cos(x);
}
template <class V> LM_INLINE V tanh_(V x) {
  if constexpr (sizeof(elem<V>) == 4) {
    V a = absolute(x), z = x * x;
    V p = fmas(z, splat<V>(-0.005696450773f), 0.02063132688f);
    p = fmas(p, z, -0.053737239f);
    p = fmas(p, z, 0.1333140987f);
    p = fmas(p, z, -0.3333328052f);
    V small = fma_<V>(p * z, x, x);
    V big = 1 - 2 / (exp_<V>(a + a) + 1);
    return copysign<V>(select<V>(a < 0.625f, small, big), x);
  } else {
    V a = absolute(x), t = expm1_<V>(-2 * a);
    return select<V>(x == 0, x, copysign<V>(-t / (t + 2), x));
  }
}
template <class V> LM_INLINE V sigmoid_(V x) {  // accurate on both sides: exp(-|x|) never overflows
  V e = exp_<V>(-absolute(x));
  V r = select<V>(x < 0, e, splat<V>(1)) / (1 + e);
  return select<V>(x != x, x, r);
}
template <class V> LM_INLINE V erf_(V x) {
  if constexpr (sizeof(elem<V>) == 4) {
    V a = absolute(x), z = x * x;
    V p = fmas(z, splat<V>(8.365941057e-5f), -0.0008142225009f);
    p = fmas(p, z, 0.005201043427f);
    p = fmas(p, z, -0.02685942905f);
    p = fmas(p, z, 0.1128369664f);
    p = fmas(p, z, -0.3761263386f);
    p = fmas(p, z, 0.1283791667f);
    V small = fma_<V>(p, x, x);
    V t = select<V>(a > 4, splat<V>(4), a);
    V q = fmas(t, splat<V>(-5.131676473e-7f), -2.386465289e-5f);
    q = fmas(q, t, 0.000590786889f);
    q = fmas(q, t, -0.005907108377f);
    q = fmas(q, t, 0.03603215487f);
    q = fmas(q, t, -0.1559705083f);
    q = fmas(q, t, -0.9139033085f);
    q = fmas(q, t, -1.629473835f);
    q = fmas(q, t, 0.000239499917f);
    // 2^q for -27 < q <= 0: nothing to clamp
    V n = rint_(q), r = (q - n) * 0.6931471805599453f;
    V power = 1 + (r + expo_of<V>::tail(r));
#ifdef LM_SCALE
    if constexpr (has_scale<V>::value) power = hw_scale2(power, n);
    else
#endif
      power = bits<V>(bits<ints<V>>(power) + (cvt<ints<V>>(n) << 23));
    V big = copysign<V>(1 - power, x);
    return select<V>(a < 0.92f, small, select<V>(x != x, x, big));
  } else {
    return double_erf(x);
  }
}
// 1 + erf(x), to an absolute error of 1e-7 around one and a relative one of 1e-5 where it vanishes.
template <class V> LM_INLINE V erf1p_(V x) {
  const V a = absolute(x), t = select<V>(a > 4, splat<V>(4), a);
  V q = fmas(t, splat<V>(3.985782768722856e-06f), -6.86070416122675e-05f);  // log2(erfc(t))
  q = fmas(q, t, 0.0004690105270128697f);
  q = fmas(q, t, -0.0013838550075888634f);
  q = fmas(q, t, -0.0010908577824011445f);
  q = fmas(q, t, 0.02859877049922943f);
  q = fmas(q, t, -0.14865714311599731f);
  q = fmas(q, t, -0.9183762073516846f);
  q = fmas(q, t, -1.627911925315857f);
  q = fmas(q, t, 5.2806370831604e-08f);
  const V n = rint_(q), r = q - n;
  V p = fmas(r, splat<V>(0.0013266979923837244f), 0.009675469395305614f);
  p = fmas(p, r, 0.05550742675409958f);
  p = fmas(p, r, 0.24022121576229874f);
  p = fmas(p, r, 0.6931469490692178f);
  p = fmas(p, r, 1.f);
#ifdef LM_SCALE
  if constexpr (has_scale<V>::value) p = hw_scale2(p, n);
  else
#endif
    p = bits<V>(bits<ints<V>>(p) + (cvt<ints<V>>(n) << 23));
  p = select<V>(a >= 4, V{}, p);
  return select<V>(x < 0, p, 2 - p);
}
#define LM_LIBM1(name, single, dbl)                                            \
  template <class V> LM_INLINE V name(V x) {                                   \
    if constexpr (library<V>::value) {                                         \
      V r;                                                                     \
      if (__builtin_expect(library<V>::dbl(x, r), 1)) return r;                \
    }                                                                          \
    if constexpr (sizeof(elem<V>) == 4) return map(x, [](f32 v) { return single(v); }); \
    else return map(x, [](f64 v) { return dbl(v); });                          \
  }
#define LM_LIBM2(name, single, dbl)                                            \
  template <class V> LM_INLINE V name(V x, V y) {                              \
    if constexpr (library<V>::value) {                                         \
      V r;                                                                     \
      if (__builtin_expect(library<V>::dbl(x, y, r), 1)) return r;             \
    }                                                                          \
    if constexpr (sizeof(elem<V>) == 4) return map(x, y, [](f32 a, f32 b) { return single(a, b); }); \
    else return map(x, y, [](f64 a, f64 b) { return dbl(a, b); });             \
  }
LM_LIBM1(tan_, tanf, tan) LM_LIBM1(asin_, asinf, asin) LM_LIBM1(acos_, acosf, acos) LM_LIBM1(atan_, atanf, atan)
LM_LIBM1(sinh_, sinhf, sinh) LM_LIBM1(cosh_, coshf, cosh) LM_LIBM1(asinh_inner, asinhf, asinh) LM_LIBM1(acosh_inner, acoshf, acosh)
LM_LIBM1(atanh_, atanhf, atanh) LM_LIBM1(lgamma_, lgammaf, lgamma) LM_LIBM1(erfc_, erfcf, erfc)
LM_LIBM2(hypot_, hypotf, hypot) LM_LIBM2(atan2_, atan2f, atan2) LM_LIBM2(nextafter_, nextafterf, nextafter)
// The vector library squares its argument and answers infinity where the square is: beyond, it is log(2|x|).
template <class V> constexpr elem<V> square_fits() { return sizeof(elem<V>) == 4 ? elem<V>(1e18) : elem<V>(1e150); }
template <class V> LM_INLINE V log_of_twice(V x) { return log_<V>(x) + splat<V>(elem<V>(0.693147180559945309417)); }
template <class V> LM_INLINE V asinh_(V x) {
  V a = absolute(x), far = log_of_twice<V>(a);
  return select<V>(a > square_fits<V>(), select<V>(x < 0, -far, far), asinh_inner<V>(x));
}
template <class V> LM_INLINE V acosh_(V x) {
  return select<V>(x > square_fits<V>(), log_of_twice<V>(x), acosh_inner<V>(x));
}
// The remainder is exact: where the rounded quotient is a whole number too large by one, the difference is added back.
template <class V> LM_INLINE V fmod_(V a, V b) {
  const auto one = [](elem<V> x, elem<V> y) {
    if constexpr (sizeof(elem<V>) == 4) return fmodf(x, y);
    else return fmod(x, y);
  };
#if defined(__FMA__)
  if constexpr (lanes<V>::value > 1 && sizeof(V) >= 32 && sizeof(V) <= LM_REGISTER) {
    constexpr elem<V> most = sizeof(elem<V>) == 4 ? elem<V>(4194304) : elem<V>(2251799813685248.);
    const V x = absolute(a), y = absolute(b), q = trunc_<V>(x / y);
    V r = fma_<V>(-q, y, x);
    r = copysign<V>(select<V>(r < 0, r + y, r), a);
    const ints<V> hard = ~((q < most) & (y < elem<V>(__builtin_inf())));
    if (__builtin_expect(any_lane(hard, all_lanes{}), 0))
      for (int k = 0; k < lanes<V>::value; ++k)
        if (hard[k]) r[k] = one(a[k], b[k]);
    return r;
  }
#endif
  return map(a, b, one);
}
template <class V> LM_INLINE V float_trunc_div(V a, V b) { return trunc_<V>(a / b); }
template <class V> LM_INLINE V rsqrt_(V x) { return 1 / sqrt_<V>(x); }
template <class V> LM_INLINE V float_rem(V a, V b) {  // the sign of the divisor, as Python's %
  V r = fmod_<V>(a, b);
  return select<V>((r != 0) & ((r < 0) != (b < 0)), r + b, r);
}
template <class V> LM_INLINE V float_floor_div(V a, V b) {
  V m = fmod_<V>(a, b), d = (a - m) / b;
  d = select<V>((m != 0) & ((b < 0) != (m < 0)), d - 1, d);
  V f = floor_<V>(d);
  f = select<V>(d - f > elem<V>(0.5), f + 1, f);
  f = select<V>(d == 0, copysign<V>(V{}, a / b), f);
  return select<V>(b == 0, a / b, f);
}

// --------------------------------------------------------------------------------------------------- 6 accumulators
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

// c[m, n] = beta * start[m, n] + alpha * sum_k a[m, k] b[k, n], sizes known. `start` may have strides of zero (a bias).
// P: how b lies: 0 as it is read, 1 transposed in whole blocks, 2 otherwise (it is copied first).
template <int M, int N, int K, int L, int P>
inline void small_gemm(f32* c, i64 c0, const f32* a, i64 a0, i64 a1, const f32* b, i64 b0, i64 b1, const f32* start, i64 s0, i64 s1,
                       f32 beta, f32 alpha) {
  typedef vec<f32, L> V;
  // Blocks of L columns; R rows of W blocks are summed in registers at a time.
  constexpr int blocks = (N + L - 1) / L, most = L >= 16 ? 8 : 4, R = M < most ? M : most;
  alignas(64) f32 packed[P ? blocks * K * L : 1];
  alignas(64) f32 row[L] = {};
  i64 apart = L;
  if constexpr (P == 1) {
    for (int n = 0; n < N; n += L)
      for (int k = 0; k < K; k += L) {
        V turned[L];
#pragma GCC unroll 16
        for (int j = 0; j < L; ++j) turned[j] = load_raw<f32, L>(b + (n + j) * b1 + k, all_lanes{});
        turn_block(turned);
#pragma GCC unroll 16
        for (int j = 0; j < L; ++j) store_raw<f32, L>(packed + n * K + (k + j) * L, turned[j], all_lanes{});
      }
  } else if constexpr (P == 2) {
    for (int n = 0; n < N; n += L)
      for (int k = 0; k < K; ++k)
        for (int j = 0; j < L; ++j) packed[n * K + k * L + j] = n + j < N ? b[k * b0 + (n + j) * b1] : 0;
  }
  if constexpr (P != 0) b = packed, b0 = L, apart = K * L;
  auto tile = [&](int n, auto w) __attribute__((always_inline)) {
    constexpr int W = decltype(w)::value;
    const f32* column = b + n / L * apart;
    for (int m = 0; m < M; m += R) {
      const int rows = M - m < R ? M - m : R;
      const f32* from[R];
      V acc[R][W];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        from[r] = a + (m + (r < rows ? r : 0)) * a0;
        for (int j = 0; j < W; ++j) acc[r][j] = V{};
      }
      for (int k = 0; k < K; ++k) {
        V v[W];
        for (int j = 0; j < W; ++j) v[j] = load_raw<f32, L>(column + k * b0 + j * apart, all_lanes{});
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const V x = splat<V>(from[r][k * a1]);
          for (int j = 0; j < W; ++j) acc[r][j] = fma_<V>(x, v[j], acc[r][j]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        for (int j = 0; j < W; ++j) {
          if (r >= rows) continue;
          const int at = n + j * L, width = N - at < L ? N - at : L;
          V out = alpha == 1 ? acc[r][j] : acc[r][j] * alpha;
          if (start) {
            const f32* from_start = start + (m + r) * s0 + at * s1;
            V add;
            if (s1 == 1 && width == L) add = load_raw<f32, L>(from_start, all_lanes{});
            else {
              for (int k = 0; k < width; ++k) row[k] = from_start[k * s1];
              add = load_raw<f32, L>(row, all_lanes{});
            }
            out += beta == 1 ? add : add * beta;
          }
          f32* to = c + (m + r) * c0 + at;
          if (width == L) store_raw<f32, L>(to, out, all_lanes{});
          else store_raw<f32, L>(to, out, width);
        }
    }
  };
  for (int n = 0; n + L < N; n += 2 * L) tile(n, slot<2>{});
  if constexpr (blocks % 2) tile((blocks - 1) * L, slot<1>{});
}

// ---------------------------------------------------------------------------------------------------------- 7 loops
// step(i, lanes, slot) over [lo, hi), N at a time, unrolled U times; the rest comes as one partial vector.
template <int N, int U, class F, class S> LM_INLINE void vloop(i64 lo, i64 hi, F&& step, S&& spill) {
  i64 i = lo;
  constexpr int block = 128;
  for (; i + i64(N) * U * block <= hi;) {
    for (int b = 0; b < block; ++b, i += N * U) {
      step(i, all_lanes{}, slot<0>{});
      if constexpr (U > 1) step(i + N, all_lanes{}, slot<1>{});
      if constexpr (U > 2) step(i + 2 * N, all_lanes{}, slot<2>{}), step(i + 3 * N, all_lanes{}, slot<3>{});
    }
    spill();
  }
  if constexpr (U > 1)
    for (; i + i64(N) * U <= hi; i += N * U) {
      step(i, all_lanes{}, slot<0>{}), step(i + N, all_lanes{}, slot<1>{});
      if constexpr (U > 2) step(i + 2 * N, all_lanes{}, slot<2>{}), step(i + 3 * N, all_lanes{}, slot<3>{});
    }
  for (; i + N <= hi; i += N) step(i, all_lanes{}, slot<0>{});
  spill();
  if (i < hi) step(i, int(hi - i), slot<0>{});
}
// Inclusive scans, one step at a time; floating sums and products are carried in double, as eager does.
template <class V, bool F> struct wide_of { typedef V type; };
template <class V> struct wide_of<V, true> { typedef vec<f64, lanes<V>::value> type; };
template <class V> using wide = typename wide_of<V, is_float<elem<V>>::value>::type;
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
      carry = J::join(carry, splat<D>(x[H - 1]));
      return cvt<V>(r);
    } else {
      struct both { P lo, hi; } b = bits<both>(v);
      const D lo = prefix_of<J, 1>(cvt<D>(b.lo));
      const D hi = J::join(prefix_of<J, 1>(cvt<D>(b.hi)), splat<D>(lo[H - 1]));
      b.lo = cvt<P>(J::join(lo, carry)), b.hi = cvt<P>(J::join(hi, carry));
      carry = J::join(carry, splat<D>(hi[H - 1]));
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
// The same with a body that depends on the position: vector k of the range goes to slot k % U.
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
template <int N, class F> LM_INLINE void vloop(i64 lo, i64 hi, F&& step) {
  i64 i = lo;
  for (; i + N <= hi; i += N) step(i, all_lanes{});
  if (i < hi) step(i, int(hi - i));
}

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
