// lamina_tile.h: shuffles of whole vectors, and small tiles turned round in registers.
#ifndef LAMINA_TILE_H
#define LAMINA_TILE_H
#include "lamina_memory.h"

namespace lm {

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
// The last lane in all lanes.
template <class V> LM_INLINE V spread_last(V x) {
#if defined(__clang__)
  return splat<V>(x[lanes<V>::value - 1]);
#else
  return __builtin_shuffle(x, splat<ints<V>>(lanes<V>::value - 1));
#endif
}
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
// tile[j][k] = from[k * stride + j] for k < n_lanes and j < count; a row of `tile` has W elements. put_tile: the way back.
// Next: how far away the next tile lies along j, which is fetched meanwhile; 0: nowhere.
template <int N, int W = N, int Next = 0, class T> LM_INLINE void get_tile(T* tile, const T* from, i64 stride, i64 n_lanes, i64 count) {
  typedef typename int_of<sizeof(T)>::u R;
  i64 j = 0;
  auto block = [&](auto c, i64 rows_out) __attribute__((always_inline)) {
    vec<R, N> rows[N];
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) {
      rows[k] = load_raw<R, N>((const R*)(from + k * stride + j), c);
      if constexpr (Next != 0) far_ahead(from + k * stride + j + Next);
    }
    turn_block(rows);
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k)
      if (k < rows_out) store_raw<R, N>((R*)(tile + (j + k) * W), rows[k], all_lanes{});
  };
  if constexpr (N > 1)
    if (n_lanes == N) {
      for (; j + N <= count; j += N) block(all_lanes{}, N);
      if constexpr (partial<sizeof(T), sizeof(T) * N>::native)
        if (j < count) block(int(count - j), count - j), j = count;
    }
  for (i64 k = 0; k < n_lanes; ++k)
    for (i64 i = j; i < count; ++i) tile[i * W + k] = from[k * stride + i];
}
template <int N, int W = N, int Next = 0, class T> LM_INLINE void put_tile(T* to, i64 stride, const T* tile, i64 n_lanes, i64 count) {
  typedef typename int_of<sizeof(T)>::u R;
  i64 j = 0;
  auto block = [&](auto c, i64 rows_in) __attribute__((always_inline)) {
    vec<R, N> rows[N];
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) rows[k] = k < rows_in ? load_raw<R, N>((const R*)(tile + (j + k) * W), all_lanes{}) : vec<R, N>{};
    turn_block(rows);
#pragma GCC unroll 32
    for (int k = 0; k < N; ++k) {
      store_raw<R, N>((R*)(to + k * stride + j), rows[k], c);
      if constexpr (Next != 0) far_ahead(to + k * stride + j + Next);
    }
  };
  if constexpr (N > 1)
    if (n_lanes == N) {
      for (; j + N <= count; j += N) block(all_lanes{}, N);
      if constexpr (partial<sizeof(T), sizeof(T) * N>::native)
        if (j < count) block(int(count - j), count - j), j = count;
    }
  for (i64 k = 0; k < n_lanes; ++k)
    for (i64 i = j; i < count; ++i) to[k * stride + i] = tile[i * W + k];
}

}  // namespace lm
#endif
