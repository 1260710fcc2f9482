// ops.h: loops over rows.
#include "model/ops.h"

#include <algorithm>
#include <cmath>

#include "threads/pool.h"

namespace ttr::model {
namespace {

Size blocks_of(Size rows) { return (rows + row_task - 1) / row_task; }

template <class Body>
void over_rows(int threads, Size rows, Body&& body) {
  threads::for_each(threads, static_cast<int>(blocks_of(rows)), [&](int block, int) {
    const Size begin = block * row_task;
    body(begin, std::min(rows, begin + row_task), static_cast<Size>(block));
  });
}

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}
template <class T>
T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

// f(x) and f'(x)
template <Map map, class T>
T value(T x) {
  if constexpr (map == Map::silu) return x * sigmoid(x);
  if constexpr (map == Map::relu) return std::max(x, T(0));
  if constexpr (map == Map::tanh) return std::tanh(x);
  if constexpr (map == Map::sigmoid) return sigmoid(x);
  if constexpr (map == Map::log_sigmoid) return -softplus(-x);
  if constexpr (map == Map::softplus) return softplus(x);
  if constexpr (map == Map::neg_softplus || map == Map::decay) return -softplus(x);
  if constexpr (map == Map::neg_exp) return -std::exp(x);
  if constexpr (map == Map::neg_sigmoid) return -sigmoid(x);
  return x;
}
template <Map map, class T>
T slope(T x) {
  if constexpr (map == Map::silu) {
    const T s = sigmoid(x);
    return s * (1 + x * (1 - s));
  }
  if constexpr (map == Map::relu) return x > 0 ? T(1) : T(0);
  if constexpr (map == Map::tanh) {
    const T t = std::tanh(x);
    return 1 - t * t;
  }
  if constexpr (map == Map::sigmoid || map == Map::neg_sigmoid) {
    const T s = sigmoid(x);
    return (map == Map::sigmoid ? 1 : -1) * s * (1 - s);
  }
  if constexpr (map == Map::log_sigmoid) return sigmoid(-x);
  if constexpr (map == Map::softplus) return sigmoid(x);
  if constexpr (map == Map::neg_softplus || map == Map::decay) return -sigmoid(x);
  if constexpr (map == Map::neg_exp) return -std::exp(x);
  return T(1);
}

// body.template operator()<map>() for the map of the call.
template <class Body>
void with_map(Map map, Body&& body) {
  switch (map) {
    case Map::none:
      return body.template operator()<Map::none>();
    case Map::silu:
      return body.template operator()<Map::silu>();
    case Map::relu:
      return body.template operator()<Map::relu>();
    case Map::tanh:
      return body.template operator()<Map::tanh>();
    case Map::sigmoid:
      return body.template operator()<Map::sigmoid>();
    case Map::log_sigmoid:
      return body.template operator()<Map::log_sigmoid>();
    case Map::softplus:
      return body.template operator()<Map::softplus>();
    case Map::neg_softplus:
      return body.template operator()<Map::neg_softplus>();
    case Map::neg_exp:
      return body.template operator()<Map::neg_exp>();
    case Map::neg_sigmoid:
      return body.template operator()<Map::neg_sigmoid>();
    case Map::decay:
      return body.template operator()<Map::decay>();
  }
}

}  // namespace

Size map_scratch(Size rows, Size width) { return 2 * blocks_of(rows) * width; }

template <class T>
void map_forward(int threads, const MapCall<T>& call, Size rows, Size width, const T* x, Size ldx, T* y, Size ldy) {
  const Size share = width / call.rates;
  with_map(call.map, [&]<Map map>() {
    over_rows(threads, rows, [&](Size begin, Size end, Size) {
      for (Size i = begin; i < end; ++i)
        for (Size j = 0; j < width; ++j) {
          const T in = x[i * ldx + j] + (call.bias ? call.bias[j] : T(0));
          T out = call.factor * value<map>(in);
          if constexpr (map == Map::decay) out *= std::exp(call.rate[j / share]);
          y[i * ldy + j] = out;
        }
    });
  });
}

template <class T>
void map_backward(int threads, const MapCall<T>& call, Size rows, Size width, const T* x, Size ldx, const T* dy,
                  Size ldy, T* dx, Size lddx, T* d_bias, T* d_rate, double* scratch) {
  const Size share = width / call.rates, blocks = blocks_of(rows);
  double* const bias_sums = scratch;                   // [blocks, width]
  double* const rate_sums = scratch + blocks * width;  // the same
  with_map(call.map, [&]<Map map>() {
    over_rows(threads, rows, [&](Size begin, Size end, Size block) {
      double* const bias_sum = bias_sums + block * width;
      double* const rate_sum = rate_sums + block * width;
      if (d_bias) std::fill_n(bias_sum, width, 0.0);
      if (d_rate) std::fill_n(rate_sum, width, 0.0);
      for (Size i = begin; i < end; ++i)
        for (Size j = 0; j < width; ++j) {
          const T in = x[i * ldx + j] + (call.bias ? call.bias[j] : T(0));
          T factor = call.factor;
          if constexpr (map == Map::decay) factor *= std::exp(call.rate[j / share]);
          const T g = dy[i * ldy + j];
          const T gradient = g * factor * slope<map>(in);
          if (d_bias) bias_sum[j] += static_cast<double>(gradient);
          if (d_rate) rate_sum[j] += static_cast<double>(g * factor * value<map>(in));
          dx[i * lddx + j] = gradient;
        }
    });
  });
  for (Size j = 0; j < width && d_bias; ++j) {
    double sum = 0;
    for (Size b = 0; b < blocks; ++b) sum += bias_sums[b * width + j];
    d_bias[j] = static_cast<T>(sum);
  }
  for (Size r = 0; r < call.rates && d_rate; ++r) {
    double sum = 0;
    for (Size b = 0; b < blocks; ++b)
      for (Size j = r * share; j < (r + 1) * share; ++j) sum += rate_sums[b * width + j];
    d_rate[r] = static_cast<T>(sum);
  }
}

template <class T>
void gate_forward(int threads, Mixer::Gate gate, Size rows, Size width, const T* x, const T* z, Size ldz, T* y) {
  const bool silu = gate == Mixer::Gate::silu;
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < width; ++j) {
        const T g = z[i * ldz + j];
        y[i * width + j] = x[i * width + j] * (silu ? g * sigmoid(g) : sigmoid(g));
      }
  });
}

template <class T>
void gate_backward(int threads, Mixer::Gate gate, Size rows, Size width, const T* x, const T* z, Size ldz,
                   const T* dy, T* dx, T* dz, Size lddz) {
  const bool silu = gate == Mixer::Gate::silu;
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < width; ++j) {
        const T g = z[i * ldz + j], s = sigmoid(g), d = dy[i * width + j];
        dz[i * lddz + j] = d * x[i * width + j] * (silu ? s * (1 + g * (1 - s)) : s * (1 - s));
        dx[i * width + j] = d * (silu ? g * s : s);
      }
  });
}

template <class T>
void hidden_forward(int threads, bool swiglu, Size rows, Size width, const T* h, T* a) {
  const T root_half = static_cast<T>(0.7071067811865476);
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i) {
      const T* const row = h + i * width * (swiglu ? 2 : 1);
      T* const out = a + i * width;
      if (swiglu)
        for (Size j = 0; j < width; ++j) out[j] = row[j] * sigmoid(row[j]) * row[width + j];
      else
        for (Size j = 0; j < width; ++j) out[j] = T(0.5) * row[j] * (1 + std::erf(row[j] * root_half));
    }
  });
}

template <class T>
void hidden_backward(int threads, bool swiglu, Size rows, Size width, const T* h, const T* da, T* dh) {
  const T root_half = static_cast<T>(0.7071067811865476), density = static_cast<T>(0.3989422804014327);
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i) {
      const T* const row = h + i * width * (swiglu ? 2 : 1);
      T* const out = dh + i * width * (swiglu ? 2 : 1);
      const T* const d = da + i * width;
      if (swiglu)
        for (Size j = 0; j < width; ++j) {
          const T g = row[j], s = sigmoid(g);
          out[j] = d[j] * row[width + j] * s * (1 + g * (1 - s));
          out[width + j] = d[j] * g * s;
        }
      else
        for (Size j = 0; j < width; ++j) {
          const T x = row[j];
          out[j] = d[j] * (T(0.5) * (1 + std::erf(x * root_half)) + x * density * std::exp(T(-0.5) * x * x));
        }
    }
  });
}

template <class T>
void copy_rows(int threads, Size rows, Size width, const T* x, Size ldx, T* y, Size ldy) {
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i) std::copy_n(x + i * ldx, width, y + i * ldy);
  });
}

template <class T>
void add_rows(int threads, Size rows, Size width, const T* x, T* y) {
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin * width; i < end * width; ++i) y[i] += x[i];
  });
}

template <class T>
void shift_forward(int threads, Size batch, Size time, Size width, const T* x, T* d) {
  over_rows(threads, batch * time, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < width; ++j)
        d[i * width + j] = (i % time == 0 ? T(0) : x[(i - 1) * width + j]) - x[i * width + j];
  });
}

template <class T>
void shift_backward(int threads, Size batch, Size time, Size width, const T* dd, T* dx) {
  over_rows(threads, batch * time, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < width; ++j)
        dx[i * width + j] += (i % time == time - 1 ? T(0) : dd[(i + 1) * width + j]) - dd[i * width + j];
  });
}

template <class T>
void embed_forward(int threads, Size rows, Size width, const std::int32_t* tokens, const T* table, T* r) {
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i) std::copy_n(table + tokens[i] * width, width, r + i * width);
  });
}

// Rows of the table meet tokens of several row blocks: tasks are columns, and tokens come in their order.
template <class T>
void embed_backward(int threads, Size rows, Size width, const std::int32_t* tokens, const T* dr, T* d_table) {
  constexpr Size strip = 32;
  threads::for_each(threads, static_cast<int>((width + strip - 1) / strip), [&](int task, int) {
    const Size begin = task * strip, end = std::min(width, begin + strip);
    for (Size i = 0; i < rows; ++i) {
      T* const to = d_table + tokens[i] * width;
      for (Size j = begin; j < end; ++j) to[j] += dr[i * width + j];
    }
  });
}

template <class T>
void cross_entropy(int threads, const Simd<T>& simd, Size rows, Size classes, T* logits, const std::int32_t* labels,
                   T weight, double* losses, std::int32_t* largest) {
  threads::for_each(threads, static_cast<int>(rows), [&](int i, int) {
    T* const row = logits + i * classes;
    const T* const top = std::max_element(row, row + classes);
    const T most = *top;
    largest[i] = static_cast<std::int32_t>(top - row);
    const T at_label = row[labels[i]] - most;
    for (Size j = 0; j < classes; ++j) row[j] -= most;
    simd.exp(classes, row, row);
    double sum = 0;
    for (Size j = 0; j < classes; ++j) sum += static_cast<double>(row[j]);
    losses[i] = std::log(sum) - static_cast<double>(at_label);
    const T factor = weight / static_cast<T>(sum);
    for (Size j = 0; j < classes; ++j) row[j] *= factor;
    row[labels[i]] -= weight;
  });
}

#define TTR_MODEL_OPS(T)                                                                                          \
  template void map_forward<T>(int, const MapCall<T>&, Size, Size, const T*, Size, T*, Size);                     \
  template void map_backward<T>(int, const MapCall<T>&, Size, Size, const T*, Size, const T*, Size, T*, Size, T*, \
                                T*, double*);                                                                     \
  template void gate_forward<T>(int, Mixer::Gate, Size, Size, const T*, const T*, Size, T*);                      \
  template void gate_backward<T>(int, Mixer::Gate, Size, Size, const T*, const T*, Size, const T*, T*, T*, Size); \
  template void hidden_forward<T>(int, bool, Size, Size, const T*, T*);                                           \
  template void hidden_backward<T>(int, bool, Size, Size, const T*, const T*, T*);                                \
  template void copy_rows<T>(int, Size, Size, const T*, Size, T*, Size);                                          \
  template void add_rows<T>(int, Size, Size, const T*, T*);                                                       \
  template void shift_forward<T>(int, Size, Size, Size, const T*, T*);                                            \
  template void shift_backward<T>(int, Size, Size, Size, const T*, T*);                                           \
  template void embed_forward<T>(int, Size, Size, const std::int32_t*, const T*, T*);                             \
  template void embed_backward<T>(int, Size, Size, const std::int32_t*, const T*, T*);                            \
  template void cross_entropy<T>(int, const Simd<T>&, Size, Size, T*, const std::int32_t*, T, double*, std::int32_t*);
TTR_MODEL_OPS(float)
TTR_MODEL_OPS(double)

}  // namespace ttr::model
