// lamina_types.h: scalar types, vec<T, N> (compiler vector types; N = 1 is the scalar fallback), lane conversion, select, masks.
#ifndef LAMINA_TYPES_H
#define LAMINA_TYPES_H
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

template <bool First, class A, class B> struct pick_type { typedef A type; };
template <class A, class B> struct pick_type<false, A, B> { typedef B type; };
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
// What running sums are carried in: floats in double, as eager does.
template <class V, bool F> struct wide_of { typedef V type; };
template <class V> struct wide_of<V, true> { typedef vec<f64, lanes<V>::value> type; };
template <class V> using wide = typename wide_of<V, is_float<elem<V>>::value>::type;

}  // namespace lm
#endif
