// The oracle as a step of a pipeline: gathers the caller's strided tensors into dense double arrays, one sequence at
// a time, and scatters what comes back. The only code on a plan's path that allocates.
#include <new>

#include "families/families.h"
#include "plan/builder.h"
#include "plan/fresh_state.h"
#include "run/kernel_args.h"

namespace ttr::families {
namespace {

using oracle::Array;
using oracle::Arrays;

// Visits every element of one sequence of a value: axis B is fixed to the sequence's row, axis T runs over its tokens
// and P over its pairs. visit(offset, flat index) is called in row-major order.
template <class Visit>
void for_each(const Axes& axes, const std::array<std::ptrdiff_t, max_rank>& extent,
              const std::array<std::ptrdiff_t, max_rank>& stride, const Sequence& sequence, const Sequence& pairs,
              Visit&& visit) {
  std::array<std::ptrdiff_t, max_rank> low{}, high{}, at{};
  const std::size_t rank = axes.size();
  for (std::size_t i = 0; i < rank; ++i) {
    low[i] = axes[i] == 'B' ? sequence.row : axes[i] == 'T' ? sequence.begin : axes[i] == 'P' ? pairs.begin : 0;
    high[i] = axes[i] == 'B'   ? sequence.row + 1
              : axes[i] == 'T' ? sequence.end
              : axes[i] == 'P' ? pairs.end
                               : extent[i];
    if (high[i] <= low[i]) return;
  }
  at = low;
  for (std::size_t flat = 0;; ++flat) {
    std::ptrdiff_t offset = 0;
    for (std::size_t i = 0; i < rank; ++i) offset += at[i] * stride[i];
    visit(offset, flat);
    std::size_t i = rank;
    while (i > 0 && ++at[i - 1] == high[i - 1]) at[i - 1] = low[i - 1], --i;
    if (i == 0) return;
  }
}

// A value along the letters of a canonical input: axes it does not have (a gate that is the same for every token)
// have stride zero.
struct Along {
  Axes axes;
  std::array<std::ptrdiff_t, max_rank> extent{}, stride{}, gradient_stride{};
};
template <class T>
Along along(const Plan::Body& body, const Binding<T>& b, std::size_t canonical) {
  const int index = body.pipeline.canonical[canonical];
  const Axes& own = body.pipeline.values[static_cast<std::size_t>(index)].axes;
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  Along a;
  a.axes = Axes(body.pipeline.canonical_info[canonical].shape);
  const bool same_rank = a.axes.size() == own.size();
  for (std::size_t i = 0; i < a.axes.size(); ++i) {
    // The same axis may go by another letter: features for keys, heads for key heads.
    const std::size_t at = same_rank ? i : own.find(a.axes[i]);
    if (at == Axes::npos) {
      a.extent[i] = body.extent(a.axes[i], b.batch, b.time, b.pairs);
      continue;
    }
    a.extent[i] = bound.extent[at], a.stride[i] = bound.stride[at], a.gradient_stride[i] = bound.gradient_stride[at];
  }
  return a;
}

// The array of one sequence, without the batch axis.
template <class T>
Array gather(const Plan::Body& body, const Binding<T>& b, std::size_t canonical, std::size_t n) {
  const Sequence &sequence = b.sequences[n], &pairs = b.pair_sequences[n];
  const Along a = along(body, b, canonical);
  const T* const data = b.values[static_cast<std::size_t>(body.pipeline.canonical[canonical])].data;
  Array array;
  std::size_t count = 1;
  for (std::size_t i = 0; i < a.axes.size(); ++i) {
    const char axis = a.axes[i];
    if (axis == 'B') continue;
    array.extent.push_back(axis == 'T'   ? sequence.end - sequence.begin
                           : axis == 'P' ? pairs.end - pairs.begin
                                         : a.extent[i]);
    count *= static_cast<std::size_t>(array.extent.back());
  }
  array.data.resize(count);
  for_each(a.axes, a.extent, a.stride, sequence, pairs,
           [&](std::ptrdiff_t offset, std::size_t flat) { array.data[flat] = static_cast<double>(data[offset]); });
  return array;
}

template <class T>
Arrays gather_inputs(const Plan::Body& body, const Binding<T>& b, std::size_t n) {
  Arrays inputs;
  for (std::size_t i = 0; i < body.pipeline.canonical.size(); ++i) {
    const InputInfo& info = body.pipeline.canonical_info[i];
    if (info.optional && !b.values[static_cast<std::size_t>(body.pipeline.canonical[i])].data) continue;
    inputs[info.name] = gather(body, b, i, n);
  }
  return inputs;
}

// Sequence n's share of a state buffer, as arrays of `count` pairs.
Arrays read_state(const Plan::Body& body, ConstState state, std::size_t n, std::int64_t count) {
  if (body.pipeline.noncausal) return oracle::fresh_state(body.pipeline.design, body.pipeline.oracle_sizes);
  Arrays arrays;
  for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
    const StatePart& part = body.pipeline.states[i];
    if (!part.literal) continue;
    const StatePlace place = body.state_place(state, static_cast<int>(i));
    const std::size_t one = numbers(part),
                      stride = part.history ? one * static_cast<std::size_t>(place.capacity) : one;
    const double* from =
        reinterpret_cast<const double*>(static_cast<const std::byte*>(state.data) + place.offset) + n * stride;
    Array array;
    if (part.history) array.extent.push_back(count);
    array.extent.insert(array.extent.end(), part.extent.begin(), part.extent.end());
    array.data.assign(from, from + (part.history ? one * static_cast<std::size_t>(count) : one));
    arrays[part.info.name] = std::move(array);
  }
  return arrays;
}

// Pairs in the histories of `arrays`, or -1 if it has none.
std::int64_t pairs_in(const Plan::Body& body, const Arrays& arrays) {
  for (const StatePart& part : body.pipeline.states)
    if (part.history) return arrays.at(part.info.name).extent.front();
  return -1;
}

void write_state(const Plan::Body& body, const Arrays& arrays, const char* prefix, State state, std::size_t n) {
  for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
    const StatePart& part = body.pipeline.states[i];
    if (!part.literal) continue;
    const auto found = arrays.find(prefix + part.info.name);
    if (found == arrays.end()) continue;
    const StatePlace place = body.state_place(state, static_cast<int>(i));
    const std::size_t one = numbers(part),
                      stride = part.history ? one * static_cast<std::size_t>(place.capacity) : one;
    double* to = reinterpret_cast<double*>(static_cast<std::byte*>(state.data) + place.offset) + n * stride;
    std::copy(found->second.data.begin(), found->second.data.end(), to);
  }
}

std::int64_t count_of(const Plan::Body& body, ConstState state, std::size_t n) {
  return body.pipeline.history ? body.counts(state)[n] : 0;
}

oracle::Sizes sizes_of(const Plan::Body& body, const Sequence& sequence) {
  oracle::Sizes sizes = body.pipeline.oracle_sizes;
  sizes.time = sequence.end - sequence.begin;
  return sizes;
}

template <class T>
Status oracle_forward(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState initial,
                      State final) noexcept try {
  std::vector<Arrays> states;
  const Value& out_value = body.pipeline.values[static_cast<std::size_t>(step.result)];
  const Bound<T>& out = b.values[static_cast<std::size_t>(step.result)];
  for (std::size_t n = 0; n < b.sequences.size(); ++n) {
    const Sequence& sequence = b.sequences[n];
    Arrays state = read_state(body, initial, n, count_of(body, initial, n));
    const Arrays result =
        oracle::forward(body.pipeline.design, sizes_of(body, sequence), gather_inputs(body, b, n), state);
    if (const std::int64_t pairs = pairs_in(body, state); final.data && pairs >= 0)
      for (std::size_t i = 0; i < body.pipeline.states.size(); ++i)
        if (body.pipeline.states[i].history && body.state_place(final, static_cast<int>(i)).capacity < pairs)
          return Status::state_full;
    if (out.writable) {
      const Array& o = result.at("o");
      for_each(out_value.axes, out.extent, out.stride, sequence, sequence,
               [&](std::ptrdiff_t offset, std::size_t flat) { out.writable[offset] = static_cast<T>(o.data[flat]); });
    }
    states.push_back(std::move(state));
  }
  // Only now, when every sequence has an answer, is the caller's state changed.
  if (final.data)
    for (std::size_t n = 0; n < states.size(); ++n) {
      write_state(body, states[n], "", final, n);
      if (body.pipeline.history) body.counts(final)[n] = pairs_in(body, states[n]);
    }
  return Status::ok;
} catch (const std::bad_alloc&) {
  return Status::out_of_memory;
} catch (...) {  // the oracle throws where the problem has no answer
  return Status::out_of_domain;
}

template <class T>
Status oracle_backward(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState initial,
                       ConstState d_final, State d_initial) noexcept try {
  const Value& out_value = body.pipeline.values[static_cast<std::size_t>(step.result)];
  const Bound<T>& out = b.values[static_cast<std::size_t>(step.result)];
  for (std::size_t n = 0; n < b.sequences.size(); ++n) {
    const Sequence& sequence = b.sequences[n];
    const oracle::Sizes sizes = sizes_of(body, sequence);
    const Arrays inputs = gather_inputs(body, b, n);
    const std::int64_t before = count_of(body, initial, n);
    const Arrays state = read_state(body, initial, n, before);

    Array d_o{{sizes.time, sizes.heads, sizes.value_dim}, {}};
    d_o.data.assign(static_cast<std::size_t>(sizes.time * sizes.heads * sizes.value_dim), 0.0);
    if (out.gradient_in)
      for_each(out_value.axes, out.extent, out.gradient_stride, sequence, sequence,
               [&](std::ptrdiff_t offset, std::size_t flat) {
                 d_o.data[flat] = static_cast<double>(out.gradient_in[offset]);
               });
    Arrays d_state;
    if (d_final.data && !body.pipeline.noncausal) {
      std::int64_t after = 0;
      if (body.pipeline.history) {  // how many pairs the final state holds
        Arrays end = state;
        oracle::forward(body.pipeline.design, sizes, inputs, end);
        after = pairs_in(body, end);
      }
      d_state = read_state(body, d_final, n, after);
    }
    const Arrays gradients = oracle::backward(body.pipeline.design, sizes, inputs, state, d_o, d_state);
    for (std::size_t i = 0; i < body.pipeline.canonical.size(); ++i) {
      const Bound<T>& bound = b.values[static_cast<std::size_t>(body.pipeline.canonical[i])];
      const auto found = gradients.find(body.pipeline.canonical_info[i].name);
      if (!bound.gradient || found == gradients.end()) continue;
      const Along a = along(body, b, i);
      for_each(a.axes, a.extent, a.gradient_stride, sequence, b.pair_sequences[n],
               [&](std::ptrdiff_t offset, std::size_t flat) {
                 bound.gradient[offset] += static_cast<T>(found->second.data[flat]);
               });
    }
    if (d_initial.data) {
      write_state(body, gradients, "state.", d_initial, n);
      if (body.pipeline.history) body.counts(d_initial)[n] = before;
    }
  }
  return Status::ok;
} catch (const std::bad_alloc&) {
  return Status::out_of_memory;
} catch (...) {
  return Status::out_of_domain;
}

template <class T>
struct LiteralCalls {
  static std::size_t workspace(const Plan::Body&, const Step&, std::int64_t, Form, bool) { return 0; }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace) noexcept {
    return oracle_forward(o.body(), o.step(), o.binding(), state, o.keep() ? state : State{});
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena) noexcept {
    return oracle_backward(o.body(), o.step(), o.binding(), call.state, call.d_final, call.d_initial);
  }
};

bool claim(const Design&, bool) { return true; }

int build(Builder& b, double scale) {
  Pipeline& p = b.pipeline();
  for (const InputInfo& info : p.canonical_info) p.canonical.push_back(b.canonical(info.name));
  oracle::Sizes& sizes = p.oracle_sizes;
  sizes.heads = b.shape().heads, sizes.key_heads = b.shape().key_heads;
  sizes.key_dim = b.shape().key_dim, sizes.value_dim = b.shape().value_dim;
  if (const int k = b.canonical("k"); k >= 0) {  // a layer may have mapped its keys to features of another width
    sizes.key_dim = b.width(k);
    if (b.axes(k).has('H')) sizes.key_heads = b.shape().heads;
  }
  sizes.causal = b.options().causal;
  const bool in_kernel = p.design.keeps_pairs();  // the scale of near(..) and kernel(..) sits inside the kernel
  sizes.scale = in_kernel ? 1 : scale;
  sizes.kernel_scale = in_kernel ? b.options().scale.value_or(0) : 0;
  oracle::check_features(p.design, sizes);
  p.fresh = std::make_shared<const FreshState>(p.design, sizes);
  std::vector<StatePart> states;
  for (const oracle::StateShape& shape : oracle::state_shapes(p.design)) {
    const std::vector<std::int64_t> extent = oracle::fresh_extents(p.design, sizes, shape);
    StatePart part{{shape.name, "B " + shape.letters, shape.meaning}, {}, Type::f64};
    part.literal = true, part.fresh_name = shape.name;
    part.history = !extent.empty() && extent.front() == 0;
    p.history |= part.history;
    part.extent.assign(extent.begin() + (part.history ? 1 : 0), extent.end());
    states.push_back(std::move(part));
  }
  Step step;
  step.kernel = &literal_family, step.scale = scale, step.operands = p.canonical;
  return b.add(std::move(step), "BTHV", std::move(states));
}

}  // namespace

const Family literal_family = {.name = "oracle",
                               .forms = token_by_token,
                               .why_absent = "the literal solver goes token by token",
                               .traits = {.literal = true},
                               .claim = claim,
                               .build = build,
                               .f32 = calls_of<LiteralCalls, float>(),
                               .f64 = calls_of<LiteralCalls, double>()};

}  // namespace ttr::families
