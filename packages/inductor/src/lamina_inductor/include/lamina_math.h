// lamina_math.h: vector math. float: own polynomials (< 4 ulp); double: own exp / log / tanh, libtorch's vector library or libm for the rest.
#ifndef LAMINA_MATH_H
#define LAMINA_MATH_H
#include "lamina_lookup.h"

namespace lm {

// 2^n for a vector of whole numbers held as floats, n in [-252, 254] (float) or [-2044, 2046] (double): two factors, so that
// results below the normal range round once and nothing is flushed.
template <class V> LM_INLINE V scale2(V p, V n) {
  constexpr int mant = sizeof(elem<V>) == 4 ? 23 : 52, bias = sizeof(elem<V>) == 4 ? 127 : 1023;
  ints<V> k = cvt<ints<V>>(n), h = k >> 1;
  V a = bits<V>((h + bias) << mant), b = bits<V>((k - h + bias) << mant);
  return p * a * b;
}
template <class V> struct expo;  // exp(r) - 1 on |r| <= ln2/2, and the constants of its range reduction
template <int N> struct expo_f32 {
  typedef vec<f32, N> V;
  static LM_INLINE V above_one(V r) {
    V p = fmas(r, splat<V>(0.001394656195f), 0.008369223508f);
    p = fmas(p, r, 0.04166626152f);
    p = fmas(p, r, 0.1666651538f);
    p = fmas(p, r, 0.5000000081f);
    return fma_<V>(p, r * r, r);
  }
  static constexpr f32 lo = -104.5f, hi = 89.f, ln2_hi = 0.693359375f, ln2_lo = -2.12194440e-4f, log2e = 1.44269504f;
};
template <int N> struct expo_f64 {
  typedef vec<f64, N> V;
  static LM_INLINE V above_one(V r) {
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
    return fma_<V>(p, r * r, r);
  }
  static constexpr f64 lo = -746., hi = 710., ln2_hi = 0.693147180369123816490, ln2_lo = 1.90821492927058770002e-10,
                       log2e = 1.4426950408889634;
};
template <class V, int B> struct expo_pick;
template <class V> struct expo_pick<V, 4> { typedef expo_f32<lanes<V>::value> type; };
template <class V> struct expo_pick<V, 8> { typedef expo_f64<lanes<V>::value> type; };
template <class V> using expo_of = typename expo_pick<V, sizeof(elem<V>)>::type;

template <class V> LM_INLINE V exp_(V x) {
#ifdef LM_LOOKUP
  if constexpr (has_lookup<V>::value) return lookup_exp(x);
#endif
  typedef expo_of<V> E;
  V c = select<V>(x < E::lo, splat<V>(E::lo), x);
  c = select<V>(c > E::hi, splat<V>(E::hi), c);  // a NaN passes both
  V n = rint_(c * E::log2e);
  V r = fma_<V>(n, splat<V>(-E::ln2_lo), fma_<V>(n, splat<V>(-E::ln2_hi), c));
  V p = 1 + E::above_one(r);
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
  V p = E::above_one(r);
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
  V p = 1 + E::above_one(r);
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
// t / (2 - t) for t = 1 - exp(-2|x|), which lies in [0, 1): one path, exact near zero.
template <class V> LM_INLINE V tanh_(V x) {
  if constexpr (sizeof(elem<V>) == 4) {  // -2|x| = n ln2 - 2r; the sum with 1.5 * 2^23 rounds and ends in n
    const V a = at_most<V>(absolute(x), splat<V>(20));
    const V m = fmas(a, splat<V>(-2.885390082f), 12582912.f), n = m - 12582912.f;
    const V r = fma_<V>(n, splat<V>(0.34657359028f), a);
    V p = fmas(r, splat<V>(-0.08925799648f), 0.267815152256f);
    p = fmas(p, r, -0.66666018432f);
    p = fmas(p, r, 1.3333212304f);
    p = fmas(p, r, -2.0000000324f);
    p = fma_<V>(p, r * r, r + r);
    const V s = bits<V>((bits<ints<V>>(m) << 23) + (127 << 23));
    const V t = fma_<V>(p, s, 1 - s);
    const ints<V> sign = bits<ints<V>>(x) & (-0x7fffffff - 1);
    return bits<V>(sign | bits<ints<V>>(t / (2 - t)));
  } else {
    V a = absolute(x), t = expm1_<V>(-2 * a);
    return select<V>(x == 0, x, copysign<V>(-t / (t + 2), x));
  }
}
// As eager: beyond the range of exp the result is zero.
template <class V> LM_INLINE V sigmoid_(V x) {
#ifdef LM_LOOKUP
  if constexpr (has_lookup<V>::value) return lookup_sigmoid(x);
#endif
  return 1 / (1 + exp_<V>(-x));
}
// 2^n * p for -27 < n <= 0: nothing to clamp.
template <class V> LM_INLINE V scaled_down(V p, V n) {
#ifdef LM_SCALE
  if constexpr (has_scale<V>::value) return hw_scale2(p, n);
#endif
  return bits<V>(bits<ints<V>>(p) + (cvt<ints<V>>(n) << 23));
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
    V t = at_most<V>(a, splat<V>(4));
    V q = fmas(t, splat<V>(-5.131676473e-7f), -2.386465289e-5f);
    q = fmas(q, t, 0.000590786889f);
    q = fmas(q, t, -0.005907108377f);
    q = fmas(q, t, 0.03603215487f);
    q = fmas(q, t, -0.1559705083f);
    q = fmas(q, t, -0.9139033085f);
    q = fmas(q, t, -1.629473835f);
    q = fmas(q, t, 0.000239499917f);
    V n = rint_(q), r = (q - n) * 0.6931471805599453f;
    V power = 1 + expo_of<V>::above_one(r);
    power = scaled_down<V>(power, n);
    V big = copysign<V>(1 - power, x);
    return select<V>(a < 0.92f, small, select<V>(x != x, x, big));
  } else {
    return double_erf(x);
  }
}
// 1 + erf(x), to an absolute error of 1e-7 around one and a relative one of 1e-5 where it vanishes.
template <class V> LM_INLINE V erf1p_(V x) {
  const V a = absolute(x), t = at_most<V>(a, splat<V>(4));
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
  p = select<V>(a >= 4, V{}, scaled_down<V>(p, n));
  return select<V>(x < 0, p, 2 - p);
}
// The same to a relative error of 4e-4.
template <class V> LM_INLINE V erf1p_coarse_(V x) {
  const V a = absolute(x), t = at_most<V>(a, splat<V>(4));
  V q = fmas(t, splat<V>(-0.001260482706129551f), 0.018962625414133072f);
  q = fmas(q, t, -0.12458658963441849f);
  q = fmas(q, t, -0.9412440061569214f);
  q = fmas(q, t, -1.620282530784607f);
  q = fmas(q, t, -0.00040855148108676076f);
  const V n = rint_(q), r = q - n;
  V p = fmas(r, splat<V>(0.0551716648042202f), 0.2426111251115799f);
  p = fmas(p, r, 0.6932609677314758f);
  p = fmas(p, r, 0.9999280571937561f);
  p = select<V>(a >= 4, V{}, scaled_down<V>(p, n));
  return select<V>(x < 0, p, 2 - p);
}
// (1 + erf(x / sqrt(2))) / 2: the distribution function of the normal distribution.
template <class V> LM_INLINE V normal_cdf_(V x) {
#ifdef LM_LOOKUP
  if constexpr (has_lookup<V>::value) return lookup_normal_cdf(normal_tail, x);
#endif
  return erf1p_<V>(x * 0.70710678118654752f) * 0.5f;
}
// The same for what is rounded to bf16 (half a unit: 2e-3 to 4e-3) afterwards: relative error 4e-4, far below zero more.
template <class V> LM_INLINE V normal_cdf_coarse_(V x) {
#ifdef LM_LOOKUP
  if constexpr (has_lookup<V>::value) return lookup_normal_cdf(normal_tail_coarse, x);
#endif
  return erf1p_coarse_<V>(x * 0.70710678118654752f) * 0.5f;
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

}  // namespace lm
#endif
