// lamina_gemm.h: matrix products of small known sizes.
#ifndef LAMINA_GEMM_H
#define LAMINA_GEMM_H
#include "lamina_arith.h"

namespace lm {

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

}  // namespace lm
#endif
