// A call of any plan with everything around it watched, for tests that loop over the table of layers. Nothing here
// knows a layer: inputs come from the table's ranges, initial states from tokens that went before.
//
// `run` expects that inputs, initial state and incoming gradients keep their bytes, that the memory between strided
// numbers and behind the workspace keeps its bytes, and fills workspace, outputs and gradients with NaN before the
// call.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/runner.h"
#include "ttr/half.h"
#include "ttr/ttr.h"

namespace ttr_layer_test {

using namespace ttr;
using cli::NamedNumbers;
using cli::Numbers;
using Extents = std::vector<std::ptrdiff_t>;

// How a tensor lies in memory. `backwards` has negative strides.
enum class Layout { dense, padded, first_axis_fastest, time_last, backwards };
inline constexpr Layout strided[] = {Layout::padded, Layout::first_axis_fastest, Layout::time_last,
                                     Layout::backwards};
inline constexpr const char* layout_names[] = {"dense", "padded", "first axis fastest", "time last", "backwards"};

// One tensor in memory of its own; what is not one of its numbers is NaN with a mark in it.
class Held {
 public:
  Held(Type type, const Extents& extent, std::string_view shape, Layout layout) : type_(type), extent_(extent) {
    const std::size_t rank = extent.size();
    std::vector<std::size_t> order(rank);  // axes from the slowest to the fastest
    for (std::size_t d = 0; d < rank; ++d) order[d] = layout == Layout::first_axis_fastest ? rank - 1 - d : d;
    if (layout == Layout::time_last) {
      const std::size_t time = Axes(shape).find_any("TP");
      if (time != Axes::npos)
        std::rotate(order.begin() + static_cast<std::ptrdiff_t>(time),
                    order.begin() + static_cast<std::ptrdiff_t>(time) + 1, order.end());
    }
    const bool gaps = layout == Layout::padded;
    stride_.resize(rank);
    std::ptrdiff_t step = gaps ? 2 : 1;
    for (std::size_t i = rank; i-- > 0;) {
      stride_[order[i]] = step;
      step = step * std::max<std::ptrdiff_t>(extent[order[i]], 1) + (gaps ? 3 : 0);
    }
    if (layout == Layout::backwards)
      for (std::size_t d = 0; d < rank; ++d) {
        start_ += stride_[d] * std::max<std::ptrdiff_t>(extent[d] - 1, 0);
        stride_[d] = -stride_[d];
      }
    bytes_.resize(static_cast<std::size_t>(step + 1) * size_of(type), std::byte(0xfe));  // NaN in both types
  }
  Held(Type type, const Extents& extent, std::string_view shape, Layout layout, const Numbers& numbers)
      : Held(type, extent, shape, layout) {
    visit([&](std::ptrdiff_t at, std::size_t i) {
      if (type_ == Type::f32) put(at, static_cast<float>(numbers.at(i)));
      else put(at, numbers.at(i));
    });
    before_ = bytes_;
  }

  Tensor tensor() {
    Tensor t;
    t.data = bytes_.data() + start_ * static_cast<std::ptrdiff_t>(size_of(type_));
    t.type = type_, t.rank = static_cast<int>(extent_.size());
    for (std::size_t d = 0; d < extent_.size(); ++d) t.extent[d] = extent_[d], t.stride[d] = stride_[d];
    return t;
  }
  Numbers numbers() const {
    Numbers result;
    visit([&](std::ptrdiff_t at, std::size_t) {
      result.push_back(type_ == Type::f32 ? static_cast<double>(get<float>(at)) : get<double>(at));
    });
    return result;
  }
  bool unchanged() const { return bytes_ == before_; }
  bool gaps_unchanged() const {
    std::vector<std::byte> rest = bytes_;
    visit([&](std::ptrdiff_t at, std::size_t) {
      std::memset(rest.data() + at * static_cast<std::ptrdiff_t>(size_of(type_)), 0xfe, size_of(type_));
    });
    return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte(0xfe); });
  }

 private:
  template <class T>
  T get(std::ptrdiff_t at) const {
    T x;
    std::memcpy(&x, bytes_.data() + at * static_cast<std::ptrdiff_t>(sizeof(T)), sizeof(T));
    return x;
  }
  template <class T>
  void put(std::ptrdiff_t at, T x) {
    std::memcpy(bytes_.data() + at * static_cast<std::ptrdiff_t>(sizeof(T)), &x, sizeof(T));
  }
  template <class Visit>
  void visit(Visit&& call) const {
    if (std::find(extent_.begin(), extent_.end(), 0) != extent_.end()) return;
    Extents at(extent_.size(), 0);
    for (std::size_t flat = 0;; ++flat) {
      std::ptrdiff_t offset = start_;
      for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * stride_[d];
      call(offset, flat);
      std::size_t d = at.size();
      while (d > 0 && ++at[d - 1] == extent_[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }

  Type type_;
  Extents extent_, stride_;
  std::ptrdiff_t start_ = 0;
  std::vector<std::byte> bytes_, before_;
};

using StateMemory = std::vector<double>;
inline State state_of(StateMemory& memory) { return {memory.data(), memory.size() * sizeof(double)}; }

inline std::size_t numbers_in(const Tensor& t) {
  std::size_t n = 1;
  for (int d = 0; d < t.rank; ++d) n *= static_cast<std::size_t>(t.extent[static_cast<std::size_t>(d)]);
  return n;
}
inline double number_at(const Tensor& t, std::size_t i) {
  return t.type == Type::f32    ? static_cast<double>(static_cast<const float*>(t.data)[i])
         : t.type == Type::i64  ? static_cast<double>(static_cast<const std::int64_t*>(t.data)[i])
         : t.type == Type::i8   ? static_cast<double>(static_cast<const std::int8_t*>(t.data)[i])
         : t.type == Type::bf16 ? static_cast<double>(to_float(static_cast<const bf16*>(t.data)[i]))
                                : static_cast<const double*>(t.data)[i];
}
inline void set_number(const Tensor& t, std::size_t i, double x) {
  if (t.type == Type::f32) static_cast<float*>(t.data)[i] = static_cast<float>(x);
  else if (t.type == Type::i64) static_cast<std::int64_t*>(t.data)[i] = static_cast<std::int64_t>(x);
  else if (t.type == Type::i8) static_cast<std::int8_t*>(t.data)[i] = static_cast<std::int8_t>(x);
  else if (t.type == Type::bf16) static_cast<bf16*>(t.data)[i] = to_bf16(static_cast<float>(x));
  else static_cast<double*>(t.data)[i] = x;
}
inline NamedNumbers parts_of(const Plan& plan, StateMemory& memory) {
  NamedNumbers parts;
  for (const StateInfo& info : plan.states()) {
    const Tensor t = plan.state_tensor(state_of(memory), info.name);
    for (std::size_t i = 0; i < numbers_in(t); ++i) parts[info.name].push_back(number_at(t, i));
  }
  return parts;
}

// One call: data for `time` tokens in all, after a state that other tokens have left.
struct Problem {
  Plan plan;
  std::int64_t time;
  std::vector<std::int64_t> cu;  // empty: a batch
  NamedNumbers inputs, d_outputs;
  StateMemory initial, d_final;

  Extents extents(const std::string& shape) const {
    Extents e = plan.extents(shape, time);
    if (!cu.empty() && shape.starts_with("B")) e[0] = 1;
    return e;
  }
  // Numbers of sequence `n` in a tensor of the call; parameters are no sequence's.
  bool in_sequence(const std::string& shape, std::size_t flat, int n) const {
    const Extents e = extents(shape);
    std::size_t inner = 1;
    for (std::size_t d = 1; d < e.size(); ++d) inner *= static_cast<std::size_t>(e[d]);
    if (cu.empty()) return flat / inner == static_cast<std::size_t>(n);
    const std::int64_t per_token = plan.extents(shape, 1)[1];
    inner /= static_cast<std::size_t>(e[1]);
    const std::int64_t token = static_cast<std::int64_t>(flat / inner) / per_token;
    return cu[static_cast<std::size_t>(n)] <= token && token < cu[static_cast<std::size_t>(n) + 1];
  }
};

struct Result {
  Status forward = Status::ok, backward = Status::ok;
  NamedNumbers outputs, state, d_inputs, d_state;
  // All of them as one set, and what is relative to the size of gradients.
  NamedNumbers values() const {
    NamedNumbers all = outputs;
    for (const auto& [name, x] : state) all["final state " + name] = x;
    return all;
  }
  NamedNumbers gradients() const {
    NamedNumbers all;
    for (const auto& [name, x] : d_inputs) all["gradient of " + name] = x;
    for (const auto& [name, x] : d_state) all["gradient of initial state " + name] = x;
    return all;
  }
};

struct Guarded {  // a workspace full of NaN, and a fence behind it
  std::vector<std::byte> memory;
  std::size_t bytes;
  explicit Guarded(std::size_t n) : memory(n + 128, std::byte(0xff)), bytes(n) {}
  Workspace workspace() {
    return {memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64, bytes};
  }
  bool fence_stands() {
    const auto* end = static_cast<const std::byte*>(workspace().data) + bytes;
    return std::all_of(end, static_cast<const std::byte*>(memory.data() + memory.size()),
                       [](std::byte b) { return b == std::byte(0xff); });
  }
};

/// saving: forward leaves what backward would have to find again.
inline Result run(const Problem& p, Form form, Layout layout = Layout::dense, bool saving = false) {
  const Type type = p.plan.options().type;
  const std::string where = std::string(to_string(form)) + ", " + layout_names[static_cast<int>(layout)];
  std::map<std::string, Held> read, written;
  Inputs in, d_out;
  Outputs out, d_in;
  for (const InputInfo& info : p.plan.inputs()) {
    const Extents e = p.extents(info.shape);
    in[info.name] =
        read.emplace(info.name, Held(type, e, info.shape, layout, p.inputs.at(info.name))).first->second.tensor();
    d_in[info.name] = written.emplace("d " + info.name, Held(type, e, info.shape, layout)).first->second.tensor();
  }
  in.cu_seqlens = p.cu;
  for (const InputInfo& info : p.plan.outputs()) {
    const Extents e = p.extents(info.shape);
    if (info.differentiable)
      d_out[info.name] = read.emplace("d " + info.name, Held(type, e, info.shape, layout, p.d_outputs.at(info.name)))
                             .first->second.tensor();
    out[info.name] = written.emplace(info.name, Held(type, e, info.shape, layout)).first->second.tensor();
  }
  // A state that keeps its pairs needs scratch for those of the past as well.
  const Footprint bytes = p.plan.footprint(p.time + (p.plan.tokens_kept({}) >= 0 ? 64 : 0), form);

  Result r;
  StateMemory state = p.initial;
  Guarded work(bytes.workspace), d_work(bytes.backward);
  Guarded room(saving ? bytes.saved : 0);
  const Saved saved = saving ? Saved{room.workspace().data, room.bytes} : Saved{};
  r.forward = p.plan.forward(in, state_of(state), out, work.workspace(), form, saved);
  EXPECT_TRUE(work.fence_stands()) << "forward writes behind its workspace: " << where;

  StateMemory initial = p.initial, d_final = p.d_final, d_initial(p.initial.size());
  std::memset(d_initial.data(), 0xff, d_initial.size() * sizeof(double));
  r.backward = p.plan.backward(in, state_of(initial), d_out, state_of(d_final), d_in, state_of(d_initial),
                               d_work.workspace(), form, Gradients::write, saved);
  EXPECT_TRUE(room.fence_stands()) << "forward leaves more than it said: " << where;
  EXPECT_TRUE(d_work.fence_stands()) << "backward writes behind its workspace: " << where;
  EXPECT_EQ(0, std::memcmp(initial.data(), p.initial.data(), initial.size() * sizeof(double)))
      << "backward changes the initial state: " << where;
  EXPECT_EQ(0, std::memcmp(d_final.data(), p.d_final.data(), d_final.size() * sizeof(double)))
      << "backward changes the gradient of the final state: " << where;
  for (const auto& [name, held] : read) EXPECT_TRUE(held.unchanged()) << "changes " << name << ": " << where;
  for (const auto& [name, held] : written)
    EXPECT_TRUE(held.gaps_unchanged()) << "writes between the numbers of " << name << ": " << where;

  for (const InputInfo& info : p.plan.outputs()) r.outputs[info.name] = written.at(info.name).numbers();
  for (const InputInfo& info : p.plan.inputs())
    if (info.differentiable) r.d_inputs[info.name] = written.at("d " + info.name).numbers();
  r.state = parts_of(p.plan, state);
  r.d_state = parts_of(p.plan, d_initial);
  return r;
}

inline void expect_ok(const Result& r, Form form) {
  EXPECT_EQ(r.forward, Status::ok) << "forward, " << to_string(form) << ": " << to_string(r.forward);
  EXPECT_EQ(r.backward, Status::ok) << "backward, " << to_string(form) << ": " << to_string(r.backward);
}

// A layer of the table, with settings or without.
struct Subject {
  const LayerInfo* info;
  std::string text;
};
inline std::vector<Subject> subjects(int key_dim) {
  std::vector<Subject> all;
  for (const LayerInfo& info : layers()) {
    all.push_back({&info, info.name});
    for (const VariantInfo& variant : info.variants)
      if (variant.max_key_dim >= key_dim) all.push_back({&info, info.name + ":" + variant.settings});
  }
  return all;
}

inline constexpr int K = 5, V = 3;

inline Plan plan_of(const Subject& subject, int batch, Type type, const std::string& target = {}) {
  Options options;
  options.type = type, options.chunk = 4, options.target = target;
  return plan(subject.text, {batch, 2, subject.info->grouped ? 1 : 2, K, subject.info->square ? K : V}, options);
}

inline Numbers normals(std::size_t n, std::uint64_t seed) {
  InputInfo info;
  info.shape = "T";
  return cli::random_input(plan("nlms", {}), info, static_cast<std::int64_t>(n), seed);
}

// Data of a call whose tensors have `batch` rows of `time` tokens (packed: one row).
inline NamedNumbers inputs_of(const Plan& plan, std::int64_t time, bool packed, std::uint64_t seed) {
  NamedNumbers inputs;
  for (std::size_t i = 0; i < plan.inputs().size(); ++i) {
    const InputInfo& info = plan.inputs()[i];
    const bool parameter = !info.shape.starts_with("B");
    Numbers numbers = cli::random_input(plan, info, time, (parameter ? 0 : seed * 1000) + i);
    if (packed && !parameter) numbers.resize(numbers.size() / static_cast<std::size_t>(plan.shape().batch));
    inputs[info.name] = std::move(numbers);
  }
  return inputs;
}

// A problem without its initial state.
inline Problem bare(const Plan& plan, std::int64_t time, std::vector<std::int64_t> cu, std::int64_t capacity,
                    std::uint64_t seed) {
  Problem p{plan, time, std::move(cu), {}, {}, {}, {}};
  p.inputs = inputs_of(plan, time, !p.cu.empty(), seed);
  for (std::size_t i = 0; i < plan.outputs().size(); ++i) {
    if (!plan.outputs()[i].differentiable) continue;
    std::size_t n = 1;
    for (const std::ptrdiff_t e : p.extents(plan.outputs()[i].shape)) n *= static_cast<std::size_t>(e);
    p.d_outputs[plan.outputs()[i].name] = normals(n, seed * 1000 + 500 + i);
  }
  p.initial.assign(plan.footprint(capacity).state / sizeof(double) + 1, 0.0);
  EXPECT_EQ(plan.reset(state_of(p.initial)), Status::ok);
  p.d_final.assign(p.initial.size(), 0.0);
  EXPECT_EQ(plan.zero(state_of(p.d_final)), Status::ok);
  for (std::size_t i = 0; i < plan.states().size(); ++i) {
    const StateInfo& info = plan.states()[i];
    if (!info.differentiable) continue;
    const Tensor t = plan.state_tensor(state_of(p.d_final), info.name);
    const Numbers numbers = normals(numbers_in(t), seed * 1000 + 600 + i);
    const std::size_t side = static_cast<std::size_t>(t.extent[static_cast<std::size_t>(t.rank - 1)]);
    const bool square = info.shape.ends_with("K K");  // of a symmetric matrix
    for (std::size_t j = 0; j < numbers.size(); ++j) {
      const std::size_t row = j / side % side, column = j % side;
      const std::size_t mirror = j - row * side - column + column * side + row;
      set_number(t, j, square ? numbers[std::min(j, mirror)] : numbers[j]);
    }
  }
  return p;
}

// A plan that is not causal has no state and no steps: a call is a whole.
inline bool has_steps(const Plan& plan) { return plan.forms().front() == Form::step; }

// Moves the initial state of `p` on by the tokens of another problem of the same plan.
inline void advance(Problem& p, const Problem& tokens) {
  if (!has_steps(p.plan)) return;
  std::map<std::string, Held> held;
  Inputs in;
  for (const InputInfo& info : p.plan.inputs())
    in[info.name] = held.emplace(info.name, Held(p.plan.options().type, tokens.extents(info.shape), info.shape,
                                                 Layout::dense, tokens.inputs.at(info.name)))
                        .first->second.tensor();
  in.cu_seqlens = tokens.cu;
  Guarded work(p.plan.footprint(tokens.time, Form::recurrent).workspace);
  ASSERT_EQ(p.plan.forward(in, state_of(p.initial), {}, work.workspace(), Form::recurrent), Status::ok);
}

// `batch` rows of `time` tokens after `earlier` ones.
inline Problem batch_problem(const Plan& plan, std::int64_t time, std::int64_t earlier, std::uint64_t seed = 1) {
  Problem p = bare(plan, time, {}, time + earlier, seed);
  if (earlier > 0) advance(p, bare(plan, earlier, {}, 1, seed + 1));
  return p;
}

inline std::vector<Form> forms_of(const Plan& plan, std::int64_t time) {
  std::vector<Form> forms(plan.forms().begin(), plan.forms().end());
  if (time != 1) std::erase(forms, Form::step);
  forms.push_back(Form::best);
  return forms;
}

inline ::testing::AssertionResult same_bits(const NamedNumbers& a, const NamedNumbers& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " tensors, not " << b.size();
  for (const auto& [name, x] : a) {
    const auto found = b.find(name);
    if (found == b.end()) return ::testing::AssertionFailure() << "no " << name;
    const Numbers& y = found->second;
    if (x.size() != y.size())
      return ::testing::AssertionFailure() << name << " has " << x.size() << " numbers, not " << y.size();
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::memcmp(&x[i], &y[i], sizeof(double)) != 0)
        return ::testing::AssertionFailure() << name << "[" << i << "] is " << x[i] << ", not " << y[i];
  }
  return ::testing::AssertionSuccess();
}

// As in `ttr check`: sums in another order, relative to the largest; small gradients relative to a tenth of the
// others.
inline double gradient_floor(const NamedNumbers& gradients) {
  double largest = 0;
  for (const auto& [name, numbers] : gradients)
    for (const double x : numbers) largest = std::max(largest, std::abs(x));
  return std::max(0.1 * largest, 1e-2);
}
inline void expect_near(const Result& actual, const Result& expected, double tolerance, double gradient_tolerance,
                        const std::string& what) {
  const auto compare = [&](const NamedNumbers& a, const NamedNumbers& b, double floor, double bound) {
    for (const auto& [name, numbers] : b)
      EXPECT_LE(cli::relative_error(a.at(name), numbers, floor), bound) << name << ", " << what;
  };
  compare(actual.values(), expected.values(), 0, tolerance);
  compare(actual.gradients(), expected.gradients(), gradient_floor(expected.gradients()), gradient_tolerance);
}
inline double form_tolerance(Type type) { return type == Type::f64 ? 1e-12 : 5e-6; }
inline double form_gradient_tolerance(Type type) { return type == Type::f64 ? 1e-11 : 1e-4; }

}  // namespace ttr_layer_test
