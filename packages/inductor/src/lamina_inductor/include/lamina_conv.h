// lamina_conv.h: loops around windows of images whose channels are innermost in memory.
#ifndef LAMINA_CONV_H
#define LAMINA_CONV_H
#include "lamina.h"

namespace lm {

LM_INLINE i64 floor_of(i64 a, i64 b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// The outputs [lo, hi) of a row whose whole window lies inside an input row: 0 <= o * step - pad + k * dil < size for every tap k.
struct inner_range {
  i64 lo, hi;
  inner_range(i64 outputs, i64 size, i64 taps, i64 step, i64 pad, i64 dil) {
    lo = pad > 0 ? (pad + step - 1) / step : 0;
    hi = floor_of(size - 1 + pad - (taps - 1) * dil, step) + 1;
    lo = imin(lo, outputs), hi = imax(lo, imin(hi, outputs));
  }
};

// Weight gradient of a depthwise convolution: out[c][i][j] = sum over images and outputs of
// grad[n][r][o][c] * x[n][r*sh - ph + i*dh][o*sw - pw + j*dw][c].
// Buffers: grad, x (channels innermost), out (contiguous). Taps of a row stay in registers; chunks of rows are summed apart
// (how many follows from the sizes alone) and joined at the end.
template <class T, int KW, int N> int depthwise_weight_grad(void* const* B, const i64* S) {
  typedef vec<f32, N> V;
  const i64 images = S[0], c = S[1], h = S[2], w = S[3], oh = S[4], ow = S[5], kh = S[6], sh = S[7], sw = S[8], ph = S[9], pw = S[10],
            dh = S[11], dw = S[12];
  const T* const grad = (const T*)B[0];
  const T* const x = (const T*)B[1];
  T* const out = (T*)B[2];
  const i64 blocks = (c + N - 1) / N, rows = images * oh, taps = kh * KW;
  const i64 chunks = imax(1, imin(imin(rows, 64), rows * ow * c / 32768)), step = (rows + chunks - 1) / chunks;
  const inner_range inside(ow, w, KW, sw, pw, dw);
  // the last block overlaps the one before it: loads of a part of a register are slow
  auto first = [&](i64 block) { return imin(block * N, imax(0, c - N)); };
  heap memory((chunks * blocks * taps + 1) * i64(sizeof(V)) + 64);
  f32* const parts = (f32*)(((u64)memory.p + 63) / 64 * 64);
  parallel(chunks * blocks, step * ow * taps * N, 1, [&](i64 from, i64 to) {
    for (i64 it = from; it < to; ++it) {
      const i64 chunk = it / blocks, at = first(it % blocks), end = imin((chunk + 1) * step, rows);
      f32* const mine = parts + it * taps * N;
      for (i64 k = 0; k < taps * N; ++k) mine[k] = 0;
      auto walk = [&](auto count) __attribute__((always_inline)) {
        for (i64 row = chunk * step; row < end; ++row) {
          const i64 n = row / oh, r = row % oh;
          const T* const g = grad + row * ow * c + at;
          for (i64 i = 0; i < kh; ++i) {
            const i64 y = r * sh - ph + i * dh;
            if (y < 0 || y >= h) continue;
            const T* const line = x + (n * h + y) * w * c + at;
            V a[KW];
            for (int j = 0; j < KW; ++j) a[j] = load_raw<f32, N>(mine + (i * KW + j) * N, all_lanes{});
            auto border = [&](i64 o) __attribute__((always_inline)) {
              const V v = load<V>(g + o * c, count);
#pragma GCC unroll 16
              for (int j = 0; j < KW; ++j) {
                const i64 p = o * sw - pw + j * dw;
                if (p >= 0 && p < w) a[j] = hw<V>::fma(v, load<V>(line + p * c, count), a[j]);
              }
            };
            for (i64 o = 0; o < inside.lo; ++o) border(o);
            for (i64 o = inside.lo; o < inside.hi; ++o) {
              const V v = load<V>(g + o * c, count);
              const T* p = line + (o * sw - pw) * c;
#pragma GCC unroll 16
              for (int j = 0; j < KW; ++j) a[j] = hw<V>::fma(v, load<V>(p + j * dw * c, count), a[j]);
            }
            for (i64 o = inside.hi; o < ow; ++o) border(o);
            for (int j = 0; j < KW; ++j) store_raw<f32, N>(mine + (i * KW + j) * N, a[j], all_lanes{});
          }
        }
      };
      if (c >= N) walk(all_lanes{});
      else walk(int(c));
    }
  });
  parallel(blocks, chunks * taps * N, 1, [&](i64 from, i64 to) {
    for (i64 b = from; b < to; ++b) {
      for (i64 k = 0; k < taps; ++k) {
        V sum = {};
        for (i64 chunk = 0; chunk < chunks; ++chunk) sum += load_raw<f32, N>(parts + ((chunk * blocks + b) * taps + k) * N, all_lanes{});
        for (i64 l = 0; l < imin(N, c); ++l) {
          vec<f32, 1> one = {sum[l]};
          store(out + (first(b) + l) * taps + k, one, all_lanes{});
        }
      }
    }
  });
  return 0;
}

}  // namespace lm
#endif
