// Loops over rows that the library has no plan for: maps with a bias, gates, embedding, losses; forwards and backwards
// side by side. A matrix is `rows` x `width` with a leading dimension.
//
// Rows are cut into blocks of `row_task`, whatever the number of threads; sums over rows are made block by block and then
// over the blocks in order, in double, so that the bits do not depend on threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/buffer.h"
#include "model/mixer.h"
#include "simd/simd.h"

namespace ttr::model {

inline constexpr Size row_task = 64;

/// A step of kind `map` with its parameters; rate [rates] covers the columns in equal parts.
template <class T>
struct MapCall {
  Map map = Map::none;
  T factor = 1;
  const T *bias = nullptr, *rate = nullptr;
  Size rates = 1;
};

/// Scratch that map_backward needs for sums over `rows` rows.
Size map_scratch(Size rows, Size width);

/// y = factor f(x + bias)
template <class T>
void map_forward(int threads, const Simd<T>&, const MapCall<T>&, Size rows, Size width, const T* x, Size ldx, T* y,
                 Size ldy);
/// dx, and d_bias, d_rate unless null. `scratch` as map_scratch.
template <class T>
void map_backward(int threads, const Simd<T>&, const MapCall<T>&, Size rows, Size width, const T* x, Size ldx,
                  const T* dy, Size ldy, T* dx, Size lddx, T* d_bias, T* d_rate, double* scratch);

/// y = x act(z), rows of z with a leading dimension; and back.
template <class T>
void gate_forward(int threads, const Simd<T>&, Mixer::Gate, Size rows, Size width, const T* x, const T* z, Size ldz,
                  T* y);
template <class T>
void gate_backward(int threads, const Simd<T>&, Mixer::Gate, Size rows, Size width, const T* x, const T* z, Size ldz,
                   const T* dy, T* dx, T* dz, Size lddz);

/// The hidden units of a perceptron: a = silu(h_1) h_2 for h = [h_1, h_2], or a = gelu(h); and back, dh.
template <class T>
void hidden_forward(int threads, const Simd<T>&, bool swiglu, Size rows, Size width, const T* h, T* a);
template <class T>
void hidden_backward(int threads, const Simd<T>&, bool swiglu, Size rows, Size width, const T* h, const T* da, T* dh);

template <class T>
void copy_rows(int threads, Size rows, Size width, const T* x, Size ldx, T* y, Size ldy);
template <class T>
void add_rows(int threads, Size rows, Size width, const T* x, T* y);  // y += x

/// d_t = x_{t-1} - x_t in each of `batch` sequences, x_{-1} = 0; and back: dx += (the transpose) dd.
template <class T>
void shift_forward(int threads, Size batch, Size time, Size width, const T* x, T* d);
template <class T>
void shift_backward(int threads, Size batch, Size time, Size width, const T* dd, T* dx);

/// Row number_i of y = row i of x; no number twice.
template <class T>
void scatter_rows(int threads, Size rows, Size width, const std::int32_t* numbers, const T* x, T* y);

/// r_i = E[token_i], and dE[token_i] += dr_i.
template <class T>
void embed_forward(int threads, Size rows, Size width, const std::int32_t* tokens, const T* table, T* r);
template <class T>
void embed_backward(int threads, Size rows, Size width, const std::int32_t* tokens, const T* dr, T* d_table);

/// Rows of logits become their gradient, times `weight`; losses and the largest column of every row.
template <class T>
void cross_entropy(int threads, const Simd<T>&, Size rows, Size classes, T* logits, const std::int32_t* labels,
                   T weight, double* losses, std::int32_t* largest);

}  // namespace ttr::model
