// What a model may combine, the checks of a call, and the loop over sequences.
#include "families/network/arrangement/arrangement.h"

#include <algorithm>

#include "families/common/replay.h"
#include "families/network/arrangement/run.h"
#include "simd/denormals.h"

namespace ttr::families::arrangement {
namespace {

bool sound(const ArrangementModel& a) {
  if (a.heads < 1 || a.memory_key_heads < 1 || a.pair_heads < 1 || a.key_dim < 1) return false;
  if (a.heads % a.memory_key_heads != 0 || a.heads % a.pair_heads != 0) return false;
  if (a.persistent < 0 || a.prefix < 0 || !(a.norm_eps >= 0)) return false;
  if (neural::workspace_bytes<double>(a.memory, 1, Form::recurrent, 0, false) == 0) return false;
  if (a.kind == Arrangement::context) return a.memory.batch >= 1 && !a.memory.lazy && a.prefix == 0;
  return a.window >= 1 && (a.kind == Arrangement::gate || a.pair_heads == a.heads);
}

bool huber(neural::Loss loss) {
  using neural::Loss;
  return loss == Loss::huber || loss == Loss::huber_coordinate || loss == Loss::huber_sign;
}

/// What neural.h would miss only after a prefix or a retrieval.
template <class T>
bool has_memory(const ArrangementProblem<T>& p) {
  const NeuralModel& m = p.model.memory;
  if (p.model.kind != Arrangement::context && (!p.memory.k || !p.memory.v)) return false;
  if (p.model.kind != Arrangement::gate && !p.memory.q) return false;
  if (huber(m.loss) && !p.memory.threshold) return false;
  return (!m.momentum || p.memory.momentum) && (m.decay == neural::Decay::none || p.memory.decay);
}
template <class T>
bool has_state(const ArrangementProblem<T>& p) {
  const ArrangementModel& a = p.model;
  NeuralState<T> state = p.memory.state;
  bool all = true;
  each_array(a.memory, a.heads, a.heads, state, [&](T*& x, Size) {
    if (!x && (&x != &state.history_weight || p.memory.weight)) all = false;
  });
  const NeuralLayout layout(a.memory);
  for (std::size_t i = 0; i < static_cast<std::size_t>(layout.count); ++i)
    if (a.memory.row_norm && layout.part[i].matrix && !p.memory.norms[i]) return false;
  if (pair_rows(a) == 0) return all;
  if (!p.pairs.k || !p.pairs.v) return false;
  return all && (a.kind != Arrangement::context || (p.pairs.retrieved_k && p.pairs.retrieved_v));
}

template <class T>
bool has_inputs(const ArrangementProblem<T>& p) {
  const ArrangementModel& a = p.model;
  if (!has_memory(p)) return false;
  if (a.persistent > 0 && (!p.persistent_k || !p.persistent_v)) return false;
  if (a.prefix > 0 &&
      (!p.prefix.k || !p.prefix.v || (a.memory.momentum && !p.prefix.momentum) ||
       (a.memory.decay != neural::Decay::none && !p.prefix.decay) || (huber(a.memory.loss) && !p.prefix.threshold)))
    return false;
  switch (a.kind) {
    case Arrangement::gate:
      return p.q && p.k && p.v;
    case Arrangement::layer:
      return p.wq && p.wk && p.wv;
    case Arrangement::context:
      return p.q && p.k && p.v && p.wk && p.wv && p.uq && p.uk && p.uv;
  }
  return false;
}

template <class T>
Status check(const ArrangementProblem<T>& p, bool answers, Form form, int chunk, bool backward, Workspace work) {
  const ArrangementModel& a = p.model;
  if (form == Form::scan || form == Form::parallel) return Status::not_supported;
  const Size longest = longest_of(p.sequences);
  if (longest < 0 || !sound(a)) return Status::bad_shape;
  if (p.persistent_k && p.persistent_k.extent[0] < a.persistent) return Status::bad_shape;
  if (p.persistent_v && p.persistent_v.extent[0] < a.persistent) return Status::bad_shape;
  if (!p.sequences.empty()) {
    if (!p.memory.count || !has_state(p)) return Status::missing_input;
    for (std::size_t n = 0; n < p.sequences.size(); ++n)
      if (p.memory.count[n] < 0 || (p.memory.count[n] > 0 && p.memory.count[n] < a.prefix))
        return Status::out_of_domain;
  }
  if (longest > 0 && (!has_inputs(p) || (answers && !p.memory.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes<T>(a, longest, form, chunk, backward))
    return Status::small_workspace;
  return Status::ok;
}

template <class T, class Each>
Status each_sequence(const ArrangementProblem<T>& p, Each&& each) {
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    if (const Status status = each(n); status != Status::ok) return status;
  return Status::ok;
}

}  // namespace

std::ptrdiff_t pair_rows(const ArrangementModel& a) noexcept {
  return std::max<Size>(0, (a.kind == Arrangement::context ? Size{a.memory.batch} : a.window) - 1);
}

template <class T>
std::size_t workspace_bytes(const ArrangementModel& a, std::ptrdiff_t longest, Form form, int chunk,
                            bool backward) noexcept {
  if (!sound(a)) return 0;
  static constexpr Simd<T> none{};
  Arena arena;
  if (a.kind == Arrangement::context) Context<T>(none, a, longest, form, chunk, backward, arena);
  else Sliding<T>(none, a, longest, form, chunk, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const ArrangementProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check(p, static_cast<bool>(p.o), form, chunk, false, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  const Size longest = longest_of(p.sequences);
  Arena arena(work);
  if (p.model.kind == Arrangement::context) {
    Context<T> run(s, p.model, longest, form, chunk, false, arena);
    return each_sequence(p, [&](std::size_t n) { return run.forward(p, n); });
  }
  Sliding<T> run(s, p.model, longest, form, chunk, false, arena);
  return each_sequence(p, [&](std::size_t n) { return run.forward(p, n); });
}

template <class T>
Status backward(const ArrangementProblem<T>& p, const ArrangementGradient<T>& d, Form form, int chunk,
                const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check(p, static_cast<bool>(d.d_o), form, chunk, true, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  const Size longest = longest_of(p.sequences);
  Arena arena(work);
  if (p.model.kind == Arrangement::context) {
    Context<T> run(s, p.model, longest, form, chunk, true, arena);
    return each_sequence(p, [&](std::size_t n) { return run.backward(p, d, n); });
  }
  Sliding<T> run(s, p.model, longest, form, chunk, true, arena);
  return each_sequence(p, [&](std::size_t n) { return run.backward(p, d, n); });
}

#define TTR_INSTANTIATE(T)                                                                                         \
  template std::size_t workspace_bytes<T>(const ArrangementModel&, std::ptrdiff_t, Form, int, bool) noexcept;      \
  template Status forward(const ArrangementProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;            \
  template Status backward(const ArrangementProblem<T>&, const ArrangementGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::arrangement
