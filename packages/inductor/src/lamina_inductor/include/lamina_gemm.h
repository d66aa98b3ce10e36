// lamina_gemm.h: matrix products of small known sizes.
#ifndef LAMINA_GEMM_H
#define LAMINA_GEMM_H
#include "lamina_arith.h"

namespace lm {

// c[m, n] = beta * start[m, n] + alpha * sum_k a[m, k] b[k, n], sizes known. `start` may have strides of zero (a bias).
template <int M, int N, int K, int L>
inline void small_gemm(f32* c, i64 c0, const f32* a, i64 a0, i64 a1, const f32* b, i64 b0, i64 b1, const f32* start, i64 s0, i64 s1,
                       f32 beta, f32 alpha) {
  typedef vec<f32, L> V;
  constexpr int NP = (N + L - 1) / L * L, R = M < 4 ? M : 4;
  alignas(64) f32 packed[K * NP];
  alignas(64) f32 row[NP] = {};
  if (b1 != 1 || N != NP) {
    if (b0 == 1)
      for (int n = 0; n < N; ++n)
        for (int k = 0; k < K; ++k) packed[k * NP + n] = b[n * b1 + k];
    else
      for (int k = 0; k < K; ++k)
        for (int n = 0; n < N; ++n) packed[k * NP + n] = b[k * b0 + n * b1];
    for (int k = 0; k < K; ++k)
      for (int n = N; n < NP; ++n) packed[k * NP + n] = 0;
    b = packed, b0 = NP;
  }
  for (int n = 0; n < NP; n += L)
    for (int m = 0; m < M; m += R) {
      const int rows = M - m < R ? M - m : R;
      const f32* from[R];
      V acc[R];
      for (int r = 0; r < R; ++r) acc[r] = V{}, from[r] = a + (m + (r < rows ? r : 0)) * a0;
      for (int k = 0; k < K; ++k) {
        V v = load_raw<f32, L>(b + k * b0 + n, all_lanes{});
        for (int r = 0; r < R; ++r) acc[r] = fma_<V>(splat<V>(from[r][k * a1]), v, acc[r]);
      }
      const int width = N - n < L ? N - n : L;
      for (int r = 0; r < rows; ++r) {
        V out = alpha == 1 ? acc[r] : acc[r] * alpha;
        if (start) {
          const f32* from_start = start + (m + r) * s0 + n * s1;
          V add;
          if (s1 == 1 && width == L) add = load_raw<f32, L>(from_start, all_lanes{});
          else {
            for (int k = 0; k < width; ++k) row[k] = from_start[k * s1];
            add = load_raw<f32, L>(row, all_lanes{});
          }
          out += beta == 1 ? add : add * beta;
        }
        f32* to = c + (m + r) * c0 + n;
        if (width == L) store_raw<f32, L>(to, out, all_lanes{});
        else store_raw<f32, L>(to, out, width);
      }
    }
}

}  // namespace lm
#endif
