// lamina_arith.h: bit tricks, min / max that keep NaN, integer division and shifts without traps, fma, sqrt, rounding.
#ifndef LAMINA_ARITH_H
#define LAMINA_ARITH_H
#include "lamina_memory.h"

namespace lm {

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
// Bounds that let a NaN pass, for finite bounds.
template <class V> LM_INLINE V at_least(V x, V low) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(elem<V>) == 4 && is_float<elem<V>>::value)
    return __builtin_ia32_maxps512_mask(low, x, x, (unsigned short)-1, 4);  // a NaN in the second operand stays
#endif
  return select<V>(x < low, low, x);
}
template <class V> LM_INLINE V at_most(V x, V high) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && sizeof(elem<V>) == 4 && is_float<elem<V>>::value)
    return __builtin_ia32_minps512_mask(high, x, x, (unsigned short)-1, 4);
#endif
  return select<V>(x > high, high, x);
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
// p * 2^floor(n), rounded once, overflow and subnormals included.
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

}  // namespace lm
#endif
