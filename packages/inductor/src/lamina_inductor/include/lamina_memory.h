// lamina_memory.h: load / store of any element type, full or the first n lanes; strided, masked, gathered.
#ifndef LAMINA_MEMORY_H
#define LAMINA_MEMORY_H
#include "lamina_types.h"

namespace lm {

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
// load_bits / store_bits: the lanes whose bits are set.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define LM_PARTIAL(element, bytes, type, name, count)                                                          \
  template <> struct partial<element, bytes> {                                                                 \
    typedef vec<type, bytes / element> W;                                                                      \
    static constexpr bool native = true;                                                                       \
    template <class V, class T> static LM_INLINE V load_bits(const T* p, u64 on) {                             \
      return bits<V>(__builtin_ia32_load##name##_mask((const type*)p, W{}, count(on)));                          \
    }                                                                                                          \
    template <class V, class T> static LM_INLINE void store_bits(T* p, V v, u64 on) {                          \
      __builtin_ia32_store##name##_mask((type*)p, bits<W>(v), count(on));                                        \
    }                                                                                                          \
    template <class V, class T> static LM_INLINE V load(const T* p, int n) {                                   \
      return load_bits<V>(p, (u64(1) << n) - 1);                                                               \
    }                                                                                                          \
    template <class V, class T> static LM_INLINE void store(T* p, V v, int n) {                                \
      store_bits(p, v, (u64(1) << n) - 1);                                                                     \
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
  vec<u32, N> r = (x == x) ? u + (((u >> 16) & 1u) + 0x7fffu) : (u | 0x400000u);
  return cvt<vec<u16, N>>(r >> 16);
}
// For values that are approximations anyway: halves go away from zero. A NaN must be quiet, as arithmetic makes them.
template <int N> LM_INLINE vec<u16, N> narrow_bf16_coarse(vec<f32, N> x) {
  vec<u32, N> u = bits<vec<u32, N>>(x);
  u = (x == x) ? u + 0x8000u : u;
  return cvt<vec<u16, N>>(u >> 16);
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
// Asks for memory that will be read soon. Any address will do.
template <class T> LM_INLINE void ahead(const T* p) { __builtin_prefetch(p, 0, 3); }
template <class T> LM_INLINE void far_ahead(const T* p) { __builtin_prefetch(p, 0, 2); }  // as far as the second cache
template <class V, class T, class C> LM_INLINE V load(const T* p, C c) { return mem<V, T>::load(p, c); }
template <class V, class T, class C> LM_INLINE void store(T* p, V v, C c) { mem<V, T>::store(p, v, c); }
template <class V, class C> LM_INLINE void store_coarse(bf16* p, V v, C c) {
  store_raw<u16, lanes<V>::value>(&p->bits, narrow_bf16_coarse<lanes<V>::value>(v), c);
}

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
// A mask as the bits that masked instructions take; memory behind a lane that is off is not touched.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
template <int N> struct mask_bits {
  static constexpr bool native = N == 16 || N == 8;
  static LM_INLINE u32 of(mask<N> m) {
    if constexpr (N == 16) return u16(__builtin_ia32_cvtd2mask512(m));
    else return u8(__builtin_ia32_cvtd2mask256(m));
  }
};
#else
template <int N> struct mask_bits {
  static constexpr bool native = false;
  static LM_INLINE u32 of(mask<N>) { return 0; }
};
#endif
template <class V, class T> constexpr bool masks_natively() {
  constexpr int N = lanes<V>::value;
  return mask_bits<N>::native && partial<sizeof(T), sizeof(T) * N>::native;
}
template <class V, class T, class C> LM_INLINE V load_masked(const T* p, mask<lanes<V>::value> m, C c) {
  if constexpr (masks_natively<V, T>()) {
    constexpr int N = lanes<V>::value;
    typedef typename scalar_mem<T>::type R;
    const vec<R, N> raw = partial<sizeof(T), sizeof(T) * N>::template load_bits<vec<R, N>>((const R*)p, mask_bits<N>::of(m & first_lanes<N>(c)));
    T tmp[N];
    __builtin_memcpy(tmp, &raw, sizeof(raw));
    return mem<V, T>::load(tmp, all_lanes{});
  } else {
    if (!any_lane(~m, c)) return mem<V, T>::load(p, c);
    return load_each_masked<V, T>([p](int k) { return p + k; }, m, c);
  }
}
template <class V, class T, class C> LM_INLINE void store_masked(T* p, mask<lanes<V>::value> m, V v, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N];
  mem<V, T>::store(tmp, v, all_lanes{});
  if constexpr (masks_natively<V, T>()) {
    typedef typename scalar_mem<T>::type R;
    vec<R, N> raw;
    __builtin_memcpy(&raw, tmp, sizeof(raw));
    partial<sizeof(T), sizeof(T) * N>::store_bits((R*)p, raw, mask_bits<N>::of(m & first_lanes<N>(c)));
  } else {
    const int n = lane_count(c, N);
    for (int k = 0; k < n; ++k)
      if (m[k]) p[k] = tmp[k];
  }
}
// Lane k holds p[at[k]].
template <class V, class T, class I, class C> LM_INLINE V load_at(const T* p, I at, C c) {
  constexpr int N = lanes<V>::value;
  const int n = lane_count(c, N);
#if defined(__AVX512F__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
  if constexpr (N == 8 && sizeof(elem<I>) == 8 && (sizeof(T) == 4 || sizeof(T) == 8)) {
    const u8 on = n == N ? 0xff : u8((1u << n) - 1);
    T tmp[N];
    if constexpr (sizeof(T) == 4) {
      const vec<f32, 8> raw = __builtin_ia32_gatherdiv16sf(vec<f32, 8>{}, p, bits<vec<i64, 8>>(at), on, 4);
      __builtin_memcpy(tmp, &raw, sizeof(raw));
    } else {
      const vec<f64, 8> raw = __builtin_ia32_gatherdiv8df(vec<f64, 8>{}, p, bits<vec<i64, 8>>(at), on, 8);
      __builtin_memcpy(tmp, &raw, sizeof(raw));
    }
    return mem<V, T>::load(tmp, all_lanes{});
  }
#endif
  T tmp[N] = {};
  for (int k = 0; k < n; ++k) tmp[k] = p[i64(at[k])];
  return mem<V, T>::load(tmp, all_lanes{});
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
// Lane k holds what address(k) points at: start[k * stride] for all lanes if it is for the first and the last.
template <class V, class T, class A, class C> LM_INLINE V load_inside(A address, const T* start, i64 stride, C c) {
  const int last = lane_count(c, lanes<V>::value) - 1;
  if (__builtin_expect(address(0) == start && address(last) == start + last * stride, 1)) {
    if (__builtin_constant_p(stride) && stride == 1) return mem<V, T>::load(start, c);
    return load_strided<V, T>(start, stride, c);
  }
  return load_each<V, T>(address, c);
}
template <class V, class T, class C> LM_INLINE void store_strided(T* p, i64 stride, V v, C c) {
  constexpr int N = lanes<V>::value;
  T tmp[N];
  mem<V, T>::store(tmp, v, all_lanes{});
  const int n = lane_count(c, N);
  for (int k = 0; k < n; ++k) p[k * stride] = tmp[k];
}

}  // namespace lm
#endif
