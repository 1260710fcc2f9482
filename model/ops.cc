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

// Every map is a function of x and e = exp(-|x|), which the library's vectors compute for a chunk of a row at a time.
constexpr Size chunk = 256;
template <class T>
T sigmoid(T x, T e) {
  return (x < 0 ? e : T(1)) / (1 + e);
}
// log(1 + e) for e in [0, 1]. In float by 2 atanh(e / (2 + e)), whose argument is at most 1/3: the first term left out is
// below 4e-9, and a compiler makes vectors of it.
inline double log_one_plus(double e) { return std::log1p(e); }
inline float log_one_plus(float e) {
  const float z = e / (2 + e), s = z * z;
  return 2 * z *
         (1 + s * (1 / 3.0f + s * (1 / 5.0f + s * (1 / 7.0f + s * (1 / 9.0f + s * (1 / 11.0f + s * (1 / 13.0f)))))));
}
template <class T>
T softplus(T x, T e) {
  return std::max(x, T(0)) + log_one_plus(e);
}

// f(x) and f'(x)
template <Map map, class T>
T value(T x, T e) {
  if constexpr (map == Map::silu) return x * sigmoid(x, e);
  if constexpr (map == Map::relu) return std::max(x, T(0));
  if constexpr (map == Map::tanh) return std::tanh(x);
  if constexpr (map == Map::sigmoid) return sigmoid(x, e);
  if constexpr (map == Map::log_sigmoid) return -softplus(-x, e);
  if constexpr (map == Map::softplus) return softplus(x, e);
  if constexpr (map == Map::neg_softplus || map == Map::decay) return -softplus(x, e);
  if constexpr (map == Map::neg_exp) return x < 0 ? -e : -1 / e;
  if constexpr (map == Map::neg_sigmoid) return -sigmoid(x, e);
  return x;
}
template <Map map, class T>
T slope(T x, T e) {
  if constexpr (map == Map::silu) {
    const T s = sigmoid(x, e);
    return s * (1 + x * (1 - s));
  }
  if constexpr (map == Map::relu) return x > 0 ? T(1) : T(0);
  if constexpr (map == Map::tanh) {
    const T t = std::tanh(x);
    return 1 - t * t;
  }
  if constexpr (map == Map::sigmoid || map == Map::neg_sigmoid) {
    const T s = sigmoid(x, e);
    return (map == Map::sigmoid ? 1 : -1) * s * (1 - s);
  }
  if constexpr (map == Map::log_sigmoid) return sigmoid(-x, e);
  if constexpr (map == Map::softplus) return sigmoid(x, e);
  if constexpr (map == Map::neg_softplus || map == Map::decay) return -sigmoid(x, e);
  if constexpr (map == Map::neg_exp) return x < 0 ? -e : -1 / e;
  return T(1);
}
template <Map map>
constexpr bool needs_exp = map != Map::none&& map != Map::relu&& map != Map::tanh;

// e = exp(-|x|) of at most `chunk` numbers.
template <class T>
void decreasing(const Simd<T>& simd, Size n, const T* x, T* e) {
  for (Size j = 0; j < n; ++j) e[j] = -std::abs(x[j]);
  simd.exp(n, e, e);
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
void map_forward(int threads, const Simd<T>& simd, const MapCall<T>& call, Size rows, Size width, const T* x,
                 Size ldx, T* y, Size ldy) {
  const Size share = width / call.rates;
  with_map(call.map, [&]<Map map>() {
    over_rows(threads, rows, [&](Size begin, Size end, Size) {
      T in[chunk], e[chunk] = {};
      for (Size i = begin; i < end; ++i)
        for (Size first = 0; first < width; first += chunk) {
          const Size n = std::min(chunk, width - first);
          const T* const from = x + i * ldx + first;
          T* const to = y + i * ldy + first;
          for (Size j = 0; j < n; ++j) in[j] = from[j] + (call.bias ? call.bias[first + j] : T(0));
          if constexpr (needs_exp<map>) decreasing(simd, n, in, e);
          for (Size j = 0; j < n; ++j) to[j] = call.factor * value<map>(in[j], e[j]);
          if constexpr (map == Map::decay)
            for (Size j = 0; j < n; ++j) to[j] *= std::exp(call.rate[(first + j) / share]);
        }
    });
  });
}

template <class T>
void map_backward(int threads, const Simd<T>& simd, const MapCall<T>& call, Size rows, Size width, const T* x,
                  Size ldx, const T* dy, Size ldy, T* dx, Size lddx, T* d_bias, T* d_rate, double* scratch) {
  const Size share = width / call.rates, blocks = blocks_of(rows);
  double* const bias_sums = scratch;                   // [blocks, width]
  double* const rate_sums = scratch + blocks * width;  // the same
  with_map(call.map, [&]<Map map>() {
    over_rows(threads, rows, [&](Size begin, Size end, Size block) {
      double* const bias_sum = bias_sums + block * width;
      double* const rate_sum = rate_sums + block * width;
      if (d_bias) std::fill_n(bias_sum, width, 0.0);
      if (d_rate) std::fill_n(rate_sum, width, 0.0);
      T in[chunk], e[chunk] = {}, g[chunk];
      for (Size i = begin; i < end; ++i)
        for (Size first = 0; first < width; first += chunk) {
          const Size n = std::min(chunk, width - first);
          const T* const from = x + i * ldx + first;
          T* const to = dx + i * lddx + first;
          for (Size j = 0; j < n; ++j) {
            in[j] = from[j] + (call.bias ? call.bias[first + j] : T(0));
            g[j] = dy[i * ldy + first + j] * call.factor;
          }
          if constexpr (map == Map::decay)
            for (Size j = 0; j < n; ++j) g[j] *= std::exp(call.rate[(first + j) / share]);
          if constexpr (needs_exp<map>) decreasing(simd, n, in, e);
          for (Size j = 0; d_rate && j < n; ++j)
            rate_sum[first + j] += static_cast<double>(g[j] * value<map>(in[j], e[j]));
          for (Size j = 0; j < n; ++j) to[j] = g[j] * slope<map>(in[j], e[j]);
          for (Size j = 0; d_bias && j < n; ++j) bias_sum[first + j] += static_cast<double>(to[j]);
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
void gate_forward(int threads, const Simd<T>& simd, Mixer::Gate gate, Size rows, Size width, const T* x, const T* z,
                  Size ldz, T* y) {
  const bool silu = gate == Mixer::Gate::silu;
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    T e[chunk];
    for (Size i = begin; i < end; ++i)
      for (Size first = 0; first < width; first += chunk) {
        const Size n = std::min(chunk, width - first), at = i * width + first;
        const T* const g = z + i * ldz + first;
        decreasing(simd, n, g, e);
        for (Size j = 0; j < n; ++j) y[at + j] = x[at + j] * sigmoid(g[j], e[j]) * (silu ? g[j] : T(1));
      }
  });
}

template <class T>
void gate_backward(int threads, const Simd<T>& simd, Mixer::Gate gate, Size rows, Size width, const T* x, const T* z,
                   Size ldz, const T* dy, T* dx, T* dz, Size lddz) {
  const bool silu = gate == Mixer::Gate::silu;
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    T e[chunk];
    for (Size i = begin; i < end; ++i)
      for (Size first = 0; first < width; first += chunk) {
        const Size n = std::min(chunk, width - first), at = i * width + first;
        const T* const g = z + i * ldz + first;
        T* const dg = dz + i * lddz + first;
        decreasing(simd, n, g, e);
        for (Size j = 0; j < n; ++j) {
          const T s = sigmoid(g[j], e[j]), d = dy[at + j];
          dg[j] = d * x[at + j] * (silu ? s * (1 + g[j] * (1 - s)) : s * (1 - s));
          dx[at + j] = d * s * (silu ? g[j] : T(1));
        }
      }
  });
}

template <class T>
void hidden_forward(int threads, const Simd<T>& simd, bool swiglu, Size rows, Size width, const T* h, T* a) {
  const T root_half = static_cast<T>(0.7071067811865476);
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    T e[chunk];
    for (Size i = begin; i < end; ++i) {
      const T* const row = h + i * width * (swiglu ? 2 : 1);
      T* const out = a + i * width;
      for (Size j = 0; !swiglu && j < width; ++j) out[j] = T(0.5) * row[j] * std::erfc(-row[j] * root_half);
      for (Size first = 0; swiglu && first < width; first += chunk) {
        const Size n = std::min(chunk, width - first);
        const T* const g = row + first;
        decreasing(simd, n, g, e);
        for (Size j = 0; j < n; ++j) out[first + j] = g[j] * sigmoid(g[j], e[j]) * g[width + j];
      }
    }
  });
}

template <class T>
void hidden_backward(int threads, const Simd<T>& simd, bool swiglu, Size rows, Size width, const T* h, const T* da,
                     T* dh) {
  const T root_half = static_cast<T>(0.7071067811865476), density = static_cast<T>(0.3989422804014327);
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    T e[chunk];
    for (Size i = begin; i < end; ++i) {
      const T* const row = h + i * width * (swiglu ? 2 : 1);
      T* const out = dh + i * width * (swiglu ? 2 : 1);
      const T* const d = da + i * width;
      for (Size j = 0; !swiglu && j < width; ++j) {
        const T x = row[j];
        out[j] = d[j] * (T(0.5) * std::erfc(-x * root_half) + x * density * std::exp(T(-0.5) * x * x));
      }
      for (Size first = 0; swiglu && first < width; first += chunk) {
        const Size n = std::min(chunk, width - first);
        const T* const g = row + first;
        decreasing(simd, n, g, e);
        for (Size j = 0; j < n; ++j) {
          const T s = sigmoid(g[j], e[j]);
          out[first + j] = d[first + j] * g[width + j] * s * (1 + g[j] * (1 - s));
          out[width + first + j] = d[first + j] * g[j] * s;
        }
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

template <class T>
void scatter_rows(int threads, Size rows, Size width, const std::int32_t* numbers, const T* x, T* y) {
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i) std::copy_n(x + i * width, width, y + numbers[i] * width);
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
  over_rows(threads, rows, [&](Size begin, Size end, Size) {
    for (Size i = begin; i < end; ++i) {
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
    }
  });
}

#define TTR_MODEL_OPS(T)                                                                                            \
  template void map_forward<T>(int, const Simd<T>&, const MapCall<T>&, Size, Size, const T*, Size, T*, Size);       \
  template void map_backward<T>(int, const Simd<T>&, const MapCall<T>&, Size, Size, const T*, Size, const T*, Size, \
                                T*, Size, T*, T*, double*);                                                         \
  template void gate_forward<T>(int, const Simd<T>&, Mixer::Gate, Size, Size, const T*, const T*, Size, T*);        \
  template void gate_backward<T>(int, const Simd<T>&, Mixer::Gate, Size, Size, const T*, const T*, Size, const T*,  \
                                 T*, T*, Size);                                                                     \
  template void hidden_forward<T>(int, const Simd<T>&, bool, Size, Size, const T*, T*);                             \
  template void hidden_backward<T>(int, const Simd<T>&, bool, Size, Size, const T*, const T*, T*);                  \
  template void copy_rows<T>(int, Size, Size, const T*, Size, T*, Size);                                            \
  template void add_rows<T>(int, Size, Size, const T*, T*);                                                         \
  template void shift_forward<T>(int, Size, Size, Size, const T*, T*);                                              \
  template void shift_backward<T>(int, Size, Size, Size, const T*, T*);                                             \
  template void scatter_rows<T>(int, Size, Size, const std::int32_t*, const T*, T*);                                \
  template void embed_forward<T>(int, Size, Size, const std::int32_t*, const T*, T*);                               \
  template void embed_backward<T>(int, Size, Size, const std::int32_t*, const T*, T*);                              \
  template void cross_entropy<T>(int, const Simd<T>&, Size, Size, T*, const std::int32_t*, T, double*, std::int32_t*);
TTR_MODEL_OPS(float)
TTR_MODEL_OPS(double)

}  // namespace ttr::model
