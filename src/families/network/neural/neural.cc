// What a model may combine, the checks of a call, and the loop over sequences and heads.
#include "families/network/neural/neural.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "families/common/replay.h"
#include "families/network/neural/head.h"
#include "simd/denormals.h"

namespace ttr::families::neural {
namespace {

using Size = std::ptrdiff_t;

bool sound(const NeuralModel& m) {
  if (m.key_dim < 1 || m.value_dim < 1 || m.depth < 1 || m.depth > max_depth) return false;
  if ((m.depth > 1 || m.gated) && m.width < 1) return false;
  if (m.gated && m.depth != 2) return false;
  if (m.skip != Skip::none && m.key_dim != m.value_dim) return false;
  if (m.skip == Skip::sum && m.norm == Norm::none) return false;
  if (m.batch < 0 || m.step_every < 1 || m.batch % m.step_every != 0 || m.window < 1) return false;
  const bool linear = m.orthogonalise == Orthogonalise::none && !m.row_norm;
  if (m.block && (m.batch == 0 || m.step_every != 1 || m.momentum || m.decay != Decay::none || m.lazy ||
                  m.read_before || !linear))
    return false;
  if (m.decayed_point && (m.batch != 1 || m.decay == Decay::none || m.lazy)) return false;
  const bool huber = m.loss == Loss::huber || m.loss == Loss::huber_coordinate || m.loss == Loss::huber_sign;
  if (m.window > 1 && (m.batch != 1 || m.lazy || huber)) return false;
  if (m.loss == Loss::power && !(m.power >= 1)) return false;
  if (m.q_norm != 0 && !(m.q_norm >= 2)) return false;
  if (m.mirror != Mirror::none && (m.q_norm != 0 || m.row_norm || !(m.radius > 0))) return false;
  const int matrices = m.depth + (m.gated ? 1 : 0);
  return m.rates == 1 || (m.rates == matrices && m.norm != Norm::learned);
}

template <class T>
Status check(const NeuralProblem<T>& p, bool queries, Form form, int chunk, bool backward, Workspace work) {
  const NeuralModel& m = p.model;
  if (form == Form::scan || form == Form::parallel) return Status::not_supported;
  const Size longest = longest_of(p.sequences);
  if (longest < 0 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0 || !sound(m))
    return Status::bad_shape;
  const NeuralLayout layout(m);
  if (!p.sequences.empty()) {
    if (!p.count || (keeps_pending(m) && !p.state.gate_sums)) return Status::missing_input;
    for (int i = 0; i < layout.count; ++i)
      if (!p.state.weights[i] || (keeps_start(m) && !p.state.start[i]) || (keeps_z(m) && !p.state.z[i]) ||
          (keeps_pending(m) && !p.state.pending[i]) || (m.row_norm && layout.part[i].matrix && !p.norms[i]))
        return Status::missing_input;
    if (m.window > 1 && (!p.state.history_k || !p.state.history_v || (p.weight && !p.state.history_weight)))
      return Status::missing_input;
    for (std::size_t n = 0; n < p.sequences.size(); ++n)
      if (p.count[n] < 0) return Status::out_of_domain;
  }
  if (longest > 0) {
    if (!p.k || !p.v || (queries && !p.q) || (m.momentum && !p.momentum) || (m.decay != Decay::none && !p.decay))
      return Status::missing_input;
    const bool huber = m.loss == Loss::huber || m.loss == Loss::huber_coordinate || m.loss == Loss::huber_sign;
    if (huber && !p.threshold) return Status::missing_input;
  }
  if (!work.data || work.bytes < workspace_bytes<T>(m, longest, form, chunk, backward))
    return Status::small_workspace;
  return Status::ok;
}

/// The pairs that the window of the next token can reach.
template <class T>
void keep_history(const NeuralProblem<T>& p, std::size_t n) {
  const NeuralModel& m = p.model;
  const Sequence& q = p.sequences[n];
  for (Size j = 0; j + 1 < m.window; ++j) {
    const Size all = static_cast<Size>(n) * (m.window - 1), slot = all + j, from = all + j + (q.end - q.begin);
    const Size t = q.end - (m.window - 1) + j;
    for (int h = 0; h < p.key_heads; ++h)
      for (int c = 0; c < m.key_dim; ++c)
        p.state.history_k[(slot * p.key_heads + h) * m.key_dim + c] =
            t >= q.begin ? p.k(q.row, t, h, c) : p.state.history_k[(from * p.key_heads + h) * m.key_dim + c];
    for (int h = 0; h < p.heads; ++h) {
      for (int c = 0; c < m.value_dim; ++c)
        p.state.history_v[(slot * p.heads + h) * m.value_dim + c] =
            t >= q.begin ? p.v(q.row, t, h, c) : p.state.history_v[(from * p.heads + h) * m.value_dim + c];
      if (p.state.history_weight)
        p.state.history_weight[slot * p.heads + h] = t < q.begin ? p.state.history_weight[from * p.heads + h]
                                                     : p.weight  ? p.weight(q.row, t, h)
                                                                 : T(1);
    }
  }
}

}  // namespace

template <class T>
std::size_t workspace_bytes(const NeuralModel& m, std::ptrdiff_t longest, Form form, int chunk,
                            bool backward) noexcept {
  if (!sound(m)) return 0;
  static constexpr Simd<T> none{};
  const Cutting cut(m, form, chunk);
  Arena arena;
  Head<T> head(none, m, cut, longest, backward, arena);
  if (backward) Past<T> past(head.kept_size(), cut.units(m, longest), arena);
  return arena.bytes();
}

template <class T>
Status forward(const NeuralProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check(p, static_cast<bool>(p.o), form, chunk, false, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> head(s, p.model, Cutting(p.model, form, chunk), longest_of(p.sequences), false, arena);
  for (std::size_t n = 0; n < p.sequences.size(); ++n) {
    if (p.sequences[n].end == p.sequences[n].begin) continue;  // a slot that pauses: its weights stay where they are
    for (int h = 0; h < p.heads; h += head.together()) head.forward(p, n, h, std::min(head.together(), p.heads - h));
    if (p.model.window > 1) keep_history(p, n);
    p.count[n] += p.sequences[n].end - p.sequences[n].begin;
  }
  return Status::ok;
}

template <class T>
Status backward(const NeuralProblem<T>& p, const NeuralGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  if (const Status status = check(p, static_cast<bool>(d.d_o), form, chunk, true, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  const Size longest = longest_of(p.sequences);
  const Cutting cut(p.model, form, chunk);
  Arena arena(work);
  Head<T> head(s, p.model, cut, longest, true, arena);
  Past<T> past(head.kept_size(), cut.units(p.model, longest), arena);
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    for (int h = 0; h < p.heads; ++h) head.backward(p, d, n, h, past);
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                               \
  template std::size_t workspace_bytes<T>(const NeuralModel&, std::ptrdiff_t, Form, int, bool) noexcept; \
  template Status forward(const NeuralProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;       \
  template Status backward(const NeuralProblem<T>&, const NeuralGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::neural
