// lamina_loop.h: vectorised ranges.
#ifndef LAMINA_LOOP_H
#define LAMINA_LOOP_H
#include "lamina_types.h"

namespace lm {

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
  if constexpr (N > 1)
    if (i < hi) step(i, int(hi - i), slot<0>{});
}
template <int N, class F> LM_INLINE void vloop(i64 lo, i64 hi, F&& step) {
  i64 i = lo;
  for (; i + N <= hi; i += N) step(i, all_lanes{});
  if constexpr (N > 1)
    if (i < hi) step(i, int(hi - i));
}

}  // namespace lm
#endif
