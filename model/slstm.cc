// slstm.h: parameters, the recurrence and its gradient, the block.
#include "model/slstm.h"

#include <cmath>
#include <limits>

#include "model/text.h"
#include "threads/pool.h"

namespace ttr::model {

Slstm make_slstm(const BlockText& block, const Config& config, int index, int count, Registry& registry) {
  Slstm s;
  const auto setting = [&](const char* key, const std::string& otherwise) {
    const auto found = block.settings.find(key);
    return found == block.settings.end() ? otherwise : found->second;
  };
  for (const auto& [key, value] : block.settings)
    if (key != "heads" && key != "value_dim" && key != "conv" && key != "out")
      throw Error("'slstm' has no setting '" + key + "'; it has heads, value_dim, conv and out", "stack");
  const int width = config.width;
  s.heads = whole_number("heads", setting("heads", std::to_string(config.heads)), 1, 1 << 16);
  const int dim = config.value_dim ? config.value_dim : std::max(1, width / s.heads);
  s.dim = whole_number("value_dim", setting("value_dim", std::to_string(dim)), 1, 1 << 16);
  s.taps = whole_number("conv", setting("conv", "4"), 0, 64);
  const int inner = s.heads * s.dim;
  const bool projects = yes_or_no("out", setting("out", "yes"));
  if (!projects && inner != width)
    throw Error("'slstm' with out=no has " + std::to_string(s.heads) + " heads of " + std::to_string(s.dim) +
                    ", which is not the width " + std::to_string(width) + "; use out=yes or another number of heads",
                "stack");
  const std::string prefix = "blocks." + std::to_string(index) + ".mixer.";
  const double deep = 1 / std::sqrt(static_cast<double>(width)), own = 1 / std::sqrt(static_cast<double>(s.dim));
  using Kind = Start::Kind;
  s.norm = registry.add(prefix + "norm", {width}, {Kind::constant, 1, 0});
  if (s.taps > 0)
    s.taps_weight =
        registry.add(prefix + "taps", {width, s.taps}, {Kind::normal, 1 / std::sqrt(static_cast<double>(s.taps)), 0});
  s.gates = registry.add(prefix + "gates", {width, 2 * inner}, {Kind::normal, deep, 0}, true);
  s.cells = registry.add(prefix + "cells", {width, 2 * inner}, {Kind::normal, deep, 0}, true);
  s.gate_bias =
      registry.add(prefix + "gate_bias", {s.heads, 2, s.dim}, {Kind::ramp, 3, 6});  // a constant of i changes nothing
  s.cell_bias = registry.add(prefix + "cell_bias", {s.heads, 2, s.dim}, {Kind::constant, 0, 0});
  s.gate_recurrence = registry.add(prefix + "gate_recurrence", {s.heads, s.dim, 2 * s.dim}, {Kind::normal, own, 0});
  s.cell_recurrence = registry.add(prefix + "cell_recurrence", {s.heads, s.dim, 2 * s.dim}, {Kind::normal, own, 0});
  s.out_norm = registry.add(prefix + "out_norm", {s.dim}, {Kind::constant, 1, 0});
  if (projects)
    s.out = registry.add(prefix + "out", {inner, width}, {Kind::normal, 1 / std::sqrt(2.0 * count * inner), 0}, true);
  return s;
}

template <class T>
void slstm_reset(Size batch, Size heads, Size dim, T* state) {
  const Size inner = heads * dim;
  for (Size b = 0; b < batch; ++b) {
    T* const own = state + b * 4 * inner;
    std::fill_n(own, 3 * inner, T(0));
    std::fill_n(own + 3 * inner, inner, -std::numeric_limits<T>::infinity());
  }
}

template <class T>
void slstm_forward(int threads, const Simd<T>& simd, Size batch, Size time, Size heads, Size dim,
                   const T* gate_recurrence, const T* cell_recurrence, const SlstmTrace<T>& trace, T* state,
                   T* work) {
  const Size inner = heads * dim;
  threads::for_each(threads, static_cast<int>(batch * heads), [&](int task, int) {
    const Size b = task / heads, head = task % heads;
    T *const h = state + b * 4 * inner + head * dim, *const c = h + inner, *const n = c + inner, *const m = n + inner;
    const T *const gate_R = gate_recurrence + head * 2 * dim * dim, *const cell_R =
                                                                        cell_recurrence + head * 2 * dim * dim;
    T *const mixed = work + task * 6 * dim, *const low = mixed + 2 * dim, *const shares = low + 2 * dim;
    for (Size t = 0; t < time; ++t) {
      const Size row = b * time + t, at = row * inner + head * dim;
      T *const i = trace.gates + row * 2 * inner + head * 2 * dim, *const f = i + dim;
      T *const z = trace.cells + row * 2 * inner + head * 2 * dim, *const o = z + dim;
      simd.vec_mat(dim, 2 * dim, h, gate_R, 2 * dim, mixed);
      for (Size j = 0; j < 2 * dim; ++j) i[j] += mixed[j];
      simd.vec_mat(dim, 2 * dim, h, cell_R, 2 * dim, mixed);
      for (Size j = 0; j < 2 * dim; ++j) z[j] += mixed[j];
      for (Size j = 0; j < dim; ++j) low[j] = -std::abs(f[j]), low[dim + j] = -std::abs(o[j]);
      simd.exp(2 * dim, low, low);
      for (Size j = 0; j < dim; ++j) {
        const T e = low[j], log_f = std::min(f[j], T(0)) - std::log1p(e);
        trace.slope[at + j] = (f[j] < 0 ? T(1) : e) / (1 + e);
        const T before = log_f + m[j];
        m[j] = std::max(before, i[j]);
        shares[j] = i[j] - m[j], shares[dim + j] = before - m[j];
      }
      simd.exp(2 * dim, shares, shares);
      for (Size j = 0; j < dim; ++j) {
        i[j] = shares[j], f[j] = shares[dim + j];
        z[j] = std::tanh(z[j]);
        o[j] = (o[j] < 0 ? low[dim + j] : T(1)) / (1 + low[dim + j]);
        trace.c[at + j] = c[j] = f[j] * c[j] + i[j] * z[j];
        trace.n[at + j] = n[j] = f[j] * n[j] + i[j];
        trace.h[at + j] = h[j] = o[j] * c[j] / n[j];
      }
    }
  });
}

template <class T>
void slstm_backward(int threads, const Simd<T>& simd, Size batch, Size time, Size heads, Size dim,
                    const T* gate_recurrence, const T* cell_recurrence, const SlstmTrace<T>& trace, const T* dh,
                    T* d_gates, T* d_cells, T* work) {
  const Size inner = heads * dim;
  threads::for_each(threads, static_cast<int>(batch * heads), [&](int task, int) {
    const Size b = task / heads, head = task % heads;
    const T *const gate_R = gate_recurrence + head * 2 * dim * dim, *const cell_R =
                                                                        cell_recurrence + head * 2 * dim * dim;
    T *const dc = work + task * 6 * dim, *const dn = dc + dim, *const later = dn + dim, *const more = later + dim;
    std::fill_n(dc, 4 * dim, T(0));
    for (Size t = time - 1; t >= 0; --t) {
      const Size row = b * time + t, at = row * inner + head * dim, gate = row * 2 * inner + head * 2 * dim;
      const T *const i = trace.gates + gate, *const f = i + dim, *const z = trace.cells + gate, *const o = z + dim;
      T *const di = d_gates + gate, *const df = di + dim, *const dz = d_cells + gate, *const d_o = dz + dim;
      for (Size j = 0; j < dim; ++j) {
        const T c = trace.c[at + j], n = trace.n[at + j], d = dh[at + j] + later[j] + more[j];
        const T c_before = t > 0 ? trace.c[at - inner + j] : T(0), n_before = t > 0 ? trace.n[at - inner + j] : T(0);
        d_o[j] = d * c / n * o[j] * (1 - o[j]);
        dc[j] += d * o[j] / n;
        dn[j] -= d * o[j] * c / (n * n);
        di[j] = (dc[j] * z[j] + dn[j]) * i[j];
        df[j] = (dc[j] * c_before + dn[j] * n_before) * f[j] * trace.slope[at + j];
        dz[j] = dc[j] * i[j] * (1 - z[j] * z[j]);
        dc[j] *= f[j], dn[j] *= f[j];
      }
      simd.mat_vec(dim, 2 * dim, gate_R, 2 * dim, di, later);
      simd.mat_vec(dim, 2 * dim, cell_R, 2 * dim, dz, more);
    }
  });
}

template <class T>
SlstmBlock<T>::SlstmBlock(const Slstm& slstm, const Config& config, Shared<T>& shared)
    : slstm_(slstm),
      shared_(shared),
      width_(config.width),
      inner_(static_cast<Size>(slstm.heads) * slstm.dim),
      norm_(shared, config.width, slstm.norm, config.norm_eps),
      out_norm_("rms-norm", {.heads = slstm.heads, .key_dim = slstm.dim, .value_dim = slstm.dim},
                {.settings = {{"eps", number_text(config.norm_eps)}}}, shared) {
  const Size rows = shared.most_rows(), inner = inner_;
  if (slstm.taps > 0)
    convolution_ = std::make_unique<Call<T>>(
        "short-convolution", Shape{.heads = 1, .key_dim = config.width, .value_dim = config.width},
        Options{.settings = {{"width", std::to_string(slstm.taps)}, {"activation", "silu"}, {"bias", "none"}}},
        shared);
  for (Buffer<T>* one : {&input_, &normed_}) *one = Buffer<T>(rows * width_);
  if (convolution_) convolved_ = Buffer<T>(rows * width_);
  for (Buffer<T>* one : {&gates_, &cells_}) *one = Buffer<T>(rows * 2 * inner);
  for (Buffer<T>* one : {&slope_, &c_, &n_, &h_, &before_, &finished_}) *one = Buffer<T>(rows * inner);
  state_ = Buffer<T>(shared.batch * 4 * inner);
  slstm_reset(shared.batch, slstm.heads, slstm.dim, state_.data());
  work_ = Buffer<T>(shared.batch * 6 * inner);
  shared.reserve(Shared<T>::out_gradient, rows * inner), shared.reserve(Shared<T>::answer_gradient, rows * inner);
  shared.reserve(Shared<T>::levels, rows * 2 * inner), shared.reserve(Shared<T>::levels + 1, rows * 2 * inner);
  shared.reserve(Shared<T>::levels + 2, rows * width_), shared.reserve(Shared<T>::levels + 3, rows * width_);
  shared.reserve(Shared<T>::normed_gradient, rows * width_);
  shared.reserve_sums(map_scratch(rows, 2 * inner));
  shared.gemm.reserve(width_, 2 * inner), shared.gemm.reserve(2 * inner, width_);
  shared.gemm.reserve(width_, inner), shared.gemm.reserve(inner, width_);
  shared.gemm.reserve(slstm.dim, 2 * slstm.dim);
}

template <class T>
void SlstmBlock<T>::reset() {
  slstm_reset(shared_.batch, slstm_.heads, slstm_.dim, state_.data());
  if (convolution_) convolution_->reset();
}
template <class T>
std::size_t SlstmBlock<T>::state_bytes() const {
  return static_cast<std::size_t>(state_.size()) * sizeof(T) + (convolution_ ? convolution_->state_bytes() : 0);
}

template <class T>
void SlstmBlock<T>::forward(T* r) {
  const Size rows = shared_.rows(), inner = inner_, heads = slstm_.heads, dim = slstm_.dim;
  Gemm<T>& gemm = shared_.gemm;
  copy_rows(shared_.threads, rows, width_, r, width_, input_.data(), width_);
  norm_.forward(input_.data(), normed_.data());
  if (convolution_) {
    Inputs in;
    in["x"] = view(normed_.data(), shared_.batch, shared_.now, 1, width_);
    in["w"] = view(shared_.value(slstm_.taps_weight), 1, width_, slstm_.taps);
    Outputs out;
    out["y"] = view(convolved_.data(), shared_.batch, shared_.now, 1, width_);
    convolution_->forward(in, out);
  }
  gemm.nn(rows, 2 * inner, width_, convolved(), width_, shared_.value(slstm_.gates), 2 * inner, 0, gates_.data(),
          2 * inner);
  gemm.nn(rows, 2 * inner, width_, normed_.data(), width_, shared_.value(slstm_.cells), 2 * inner, 0, cells_.data(),
          2 * inner);
  const auto add_bias = [&](int bias, Buffer<T>& to) {
    const MapCall<T> call{Map::none, 1, shared_.value(bias), nullptr, 1};
    map_forward(shared_.threads, gemm.simd(), call, rows, 2 * inner, to.data(), 2 * inner, to.data(), 2 * inner);
  };
  add_bias(slstm_.gate_bias, gates_), add_bias(slstm_.cell_bias, cells_);
  if (!shared_.carried) slstm_reset(shared_.batch, heads, dim, state_.data());
  slstm_forward(shared_.threads, gemm.simd(), shared_.batch, shared_.now, heads, dim,
                shared_.value(slstm_.gate_recurrence), shared_.value(slstm_.cell_recurrence), trace(), state_.data(),
                work_.data());
  Inputs in;
  in["x"] = view(h_.data(), shared_.batch, shared_.now, heads, dim);
  in["w"] = view(shared_.value(slstm_.out_norm), dim);
  Outputs out;
  out["y"] = view(finished_.data(), shared_.batch, shared_.now, heads, dim);
  out_norm_.forward(in, out);
  if (slstm_.out < 0) return add_rows(shared_.threads, rows, width_, finished_.data(), r);
  gemm.nn(rows, width_, inner, finished_.data(), inner, shared_.value(slstm_.out), width_, 1, r, width_);
}

template <class T>
void SlstmBlock<T>::backward(T* dr) {
  const Size rows = shared_.rows(), inner = inner_, heads = slstm_.heads, dim = slstm_.dim, batch = shared_.batch;
  Gemm<T>& gemm = shared_.gemm;
  const T* d_finished = dr;
  if (slstm_.out >= 0) {
    T* const d = shared_.scratch(Shared<T>::out_gradient);
    gemm.tn(inner, width_, rows, finished_.data(), inner, dr, width_, 0, shared_.gradient(slstm_.out), width_);
    gemm.nt(rows, inner, width_, dr, width_, shared_.value(slstm_.out), width_, 0, d, inner);
    d_finished = d;
  }
  T* const dh = shared_.scratch(Shared<T>::answer_gradient);
  {
    Inputs in, d_out;
    in["x"] = view(h_.data(), batch, shared_.now, heads, dim);
    in["w"] = view(shared_.value(slstm_.out_norm), dim);
    d_out["y"] = view(d_finished, batch, shared_.now, heads, dim);
    Outputs d_in;
    d_in["x"] = view(dh, batch, shared_.now, heads, dim);
    d_in["w"] = view(shared_.gradient(slstm_.out_norm), dim);
    out_norm_.backward(in, d_out, d_in);
  }
  T *const d_gates = shared_.scratch(Shared<T>::levels), *const d_cells = shared_.scratch(Shared<T>::levels + 1);
  slstm_backward(shared_.threads, gemm.simd(), batch, shared_.now, heads, dim, shared_.value(slstm_.gate_recurrence),
                 shared_.value(slstm_.cell_recurrence), trace(), dh, d_gates, d_cells, work_.data());
  for (Size b = 0; b < batch; ++b) {  // h at the token before
    T* const own = before_.data() + b * shared_.now * inner;
    std::fill_n(own, inner, T(0));
    std::copy_n(h_.data() + b * shared_.now * inner, (shared_.now - 1) * inner, own + inner);
  }
  const auto weights = [&](const T* x, const T* d, int weight, int bias, int recurrence, T* dx) {
    gemm.tn(width_, 2 * inner, rows, x, width_, d, 2 * inner, 0, shared_.gradient(weight), 2 * inner);
    gemm.nt(rows, width_, 2 * inner, d, 2 * inner, shared_.value(weight), 2 * inner, 0, dx, width_);
    for (Size head = 0; head < heads; ++head)
      gemm.tn(dim, 2 * dim, rows, before_.data() + head * dim, inner, d + head * 2 * dim, 2 * inner, 0,
              shared_.gradient(recurrence) + head * 2 * dim * dim, 2 * dim);
    T* const same = const_cast<T*>(d);  // the map is the identity
    map_backward<T>(shared_.threads, gemm.simd(), {}, rows, 2 * inner, same, 2 * inner, d, 2 * inner, same, 2 * inner,
                    shared_.gradient(bias), nullptr, shared_.sums.data());
  };
  T* const dn = shared_.scratch(Shared<T>::normed_gradient);
  T* const d_convolved = shared_.scratch(Shared<T>::levels + 2);
  weights(normed_.data(), d_cells, slstm_.cells, slstm_.cell_bias, slstm_.cell_recurrence, dn);
  weights(convolved(), d_gates, slstm_.gates, slstm_.gate_bias, slstm_.gate_recurrence, d_convolved);
  const T* d_more = d_convolved;
  if (convolution_) {
    T* const dx = shared_.scratch(Shared<T>::levels + 3);
    Inputs in, d_out;
    in["x"] = view(normed_.data(), batch, shared_.now, 1, width_);
    in["w"] = view(shared_.value(slstm_.taps_weight), 1, width_, slstm_.taps);
    d_out["y"] = view(d_convolved, batch, shared_.now, 1, width_);
    Outputs d_in;
    d_in["x"] = view(dx, batch, shared_.now, 1, width_);
    d_in["w"] = view(shared_.gradient(slstm_.taps_weight), 1, width_, slstm_.taps);
    convolution_->backward(in, d_out, d_in);
    d_more = dx;
  }
  add_rows(shared_.threads, rows, width_, d_more, dn);
  norm_.backward(input_.data(), dn, dr);
}

template void slstm_reset<float>(Size, Size, Size, float*);
template void slstm_reset<double>(Size, Size, Size, double*);
template void slstm_forward<float>(int, const Simd<float>&, Size, Size, Size, Size, const float*, const float*,
                                   const SlstmTrace<float>&, float*, float*);
template void slstm_forward<double>(int, const Simd<double>&, Size, Size, Size, Size, const double*, const double*,
                                    const SlstmTrace<double>&, double*, double*);
template void slstm_backward<float>(int, const Simd<float>&, Size, Size, Size, Size, const float*, const float*,
                                    const SlstmTrace<float>&, const float*, float*, float*, float*);
template void slstm_backward<double>(int, const Simd<double>&, Size, Size, Size, Size, const double*, const double*,
                                     const SlstmTrace<double>&, const double*, double*, double*, double*);
template class SlstmBlock<float>;
template class SlstmBlock<double>;

}  // namespace ttr::model
