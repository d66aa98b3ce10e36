// lamina.h: everything a generated kernel needs, and nothing else (no ATen, no Python.h, no standard header). One header a concept:
//
//   lamina_types.h     i8..u64, bf16, f16; vec<T, N> (compiler vector types; N = 1 is the scalar fallback); conversions, select
//   lamina_memory.h    load / store of any element type, full or the first n lanes; gather
//   lamina_tile.h      shuffles; tiles turned round in registers
//   lamina_arith.h     min / max that keep NaN, integer division and shifts without traps, fma, sqrt, rounding
//   lamina_math.h      float: own polynomials (< 4 ulp); double: own exp / log / tanh, library or libm for the rest
//   lamina_reduce.h    accumulators: sum, prod, min, max, any, all, Welford, softmax statistics, arg-min / arg-max
//   lamina_scan.h      accumulators of scans
//   lamina_period.h    columns narrower than a vector
//   lamina_gemm.h      small matrix products
//   lamina_loop.h      vectorised ranges
//   lamina_parallel.h  scratch memory; parallel ranges on the OpenMP runtime that torch loaded
//
// Rounding: units are compiled with -ffp-contract=off, because eager rounds after every operator and a fused a*b-c can
// turn an exact zero into a small negative number. The polynomials ask for fma explicitly, where it only gains accuracy.
#ifndef LAMINA_H
#define LAMINA_H
#include "lamina_types.h"
#include "lamina_memory.h"
#include "lamina_tile.h"
#include "lamina_arith.h"
#include "lamina_math.h"
#include "lamina_reduce.h"
#include "lamina_scan.h"
#include "lamina_period.h"
#include "lamina_gemm.h"
#include "lamina_loop.h"
#include "lamina_parallel.h"
#endif
