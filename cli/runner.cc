#include "runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ttr::cli {
namespace {

// Dense storage of the plan's type for one named tensor.
class Buffer {
 public:
  Buffer(Type type, std::vector<std::ptrdiff_t> extent) : type_(type), extent_(std::move(extent)) {
    std::size_t n = 1;
    for (std::ptrdiff_t e : extent_) n *= static_cast<std::size_t>(e);
    if (type_ == Type::f32) floats_.resize(n);
    else doubles_.resize(n);
  }
  void write(const Numbers& numbers) {
    if (type_ == Type::f32)
      std::transform(numbers.begin(), numbers.end(), floats_.begin(), [](double x) { return static_cast<float>(x); });
    else doubles_ = numbers;
  }
  Numbers read() const { return type_ == Type::f32 ? Numbers(floats_.begin(), floats_.end()) : doubles_; }
  Tensor tensor() {
    Tensor t;
    static double nothing = 0;  // tensors of zero tokens need an address that is not null
    t.data = type_ == Type::f32 ? static_cast<void*>(floats_.data()) : doubles_.data();
    if (!t.data) t.data = &nothing;
    t.type = type_, t.rank = static_cast<int>(extent_.size());
    std::ptrdiff_t stride = 1;
    for (std::size_t d = extent_.size(); d-- > 0;) {
      t.extent[d] = extent_[d], t.stride[d] = stride;
      stride *= extent_[d];
    }
    return t;
  }
  std::size_t size() const { return type_ == Type::f32 ? floats_.size() : doubles_.size(); }

 private:
  Type type_;
  std::vector<std::ptrdiff_t> extent_;
  std::vector<float> floats_;
  Numbers doubles_;
};

std::vector<std::ptrdiff_t> strides_of(const std::vector<std::ptrdiff_t>& extent) {
  std::vector<std::ptrdiff_t> stride(extent.size());
  std::ptrdiff_t step = 1;
  for (std::size_t d = extent.size(); d-- > 0;) stride[d] = step, step *= extent[d];
  return stride;
}

// The part of an array where one axis is cut to [begin, end).
Numbers slice(const Numbers& numbers, const std::vector<std::ptrdiff_t>& extent, std::size_t axis, std::int64_t begin,
              std::int64_t end) {
  std::size_t outer = 1, inner = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= static_cast<std::size_t>(extent[d]);
  for (std::size_t d = axis + 1; d < extent.size(); ++d) inner *= static_cast<std::size_t>(extent[d]);
  Numbers result;
  for (std::size_t o = 0; o < outer; ++o) {
    const auto from =
        numbers.begin() + static_cast<std::ptrdiff_t>(o * static_cast<std::size_t>(extent[axis]) * inner);
    result.insert(result.end(), from + begin * static_cast<std::ptrdiff_t>(inner),
                  from + end * static_cast<std::ptrdiff_t>(inner));
  }
  return result;
}

struct StateBuffer {
  std::vector<double> memory;  // doubles, for alignment
  State state() { return {memory.data(), memory.size() * sizeof(double)}; }
};

void write_state(const Plan& plan, State state, const NamedNumbers& parts) {
  for (const auto& [name, numbers] : parts) {
    const Tensor t = plan.state_tensor(state, name);
    if (!t) throw Error("the state of " + plan.name() + " has no part '" + name + "'");
    std::size_t n = 1;
    for (int d = 0; d < t.rank; ++d) n *= static_cast<std::size_t>(t.extent[static_cast<std::size_t>(d)]);
    if (n != numbers.size())
      throw Error("state " + name + " has " + std::to_string(n) + " numbers, not " + std::to_string(numbers.size()));
    for (std::size_t i = 0; i < n; ++i)
      if (t.type == Type::f32) static_cast<float*>(t.data)[i] = static_cast<float>(numbers[i]);
      else if (t.type == Type::i64) static_cast<std::int64_t*>(t.data)[i] = static_cast<std::int64_t>(numbers[i]);
      else static_cast<double*>(t.data)[i] = numbers[i];
  }
}

// The state's parts; histories are cut to the pairs they hold (of the first sequence).
NamedNumbers read_state(const Plan& plan, State state) {
  NamedNumbers parts;
  const std::int64_t kept = plan.tokens_kept(state);
  for (const StateInfo& info : plan.states()) {
    const Tensor t = plan.state_tensor(state, info.name);
    std::vector<std::ptrdiff_t> extent(t.extent.begin(), t.extent.begin() + t.rank);
    std::size_t n = 1;
    for (std::ptrdiff_t e : extent) n *= static_cast<std::size_t>(e);
    Numbers numbers(n);
    for (std::size_t i = 0; i < n; ++i)
      numbers[i] = t.type == Type::f32   ? static_cast<double>(static_cast<const float*>(t.data)[i])
                   : t.type == Type::i64 ? static_cast<double>(static_cast<const std::int64_t*>(t.data)[i])
                                         : static_cast<const double*>(t.data)[i];
    if (kept >= 0 && Axes(info.shape).find('N') == 1)
      numbers = slice(numbers, extent, 1, 0, std::min<std::int64_t>(kept, extent[1]));
    parts[info.name] = std::move(numbers);
  }
  return parts;
}

void expect_ok(const Plan& plan, Status status, const std::string& sentence) {
  if (status != Status::ok)
    throw Error(plan.name() + ": " + (sentence.empty() ? std::string(to_string(status)) : sentence));
}

// Initial states of plans that keep their pairs cannot be written from outside; they are always fresh.
StateBuffer fresh_state(const Plan& plan, std::int64_t capacity, const NamedNumbers& initial) {
  StateBuffer buffer;
  buffer.memory.assign(plan.footprint(capacity).state / sizeof(double) + 1, 0.0);
  expect_ok(plan, plan.reset(buffer.state()), "");
  write_state(plan, buffer.state(), initial);
  return buffer;
}

void fill_with_nan(std::vector<double>& memory) {
  std::memset(memory.data(), 0xff, memory.size() * sizeof(double));  // all bits set is NaN in float and double
}

// The other way round: `piece` takes its place in `whole`; arrays without a time axis are added up.
void put_tokens(const Plan& plan, Numbers& whole, const Numbers& piece, std::string_view shape, std::int64_t time,
                std::int64_t begin) {
  const std::size_t axis = Axes(shape).find_any("TP");
  if (axis == Axes::npos) {
    for (std::size_t i = 0; i < piece.size(); ++i) whole[i] += piece[i];
    return;
  }
  const std::vector<std::ptrdiff_t> extent = plan.extents(shape, time);
  const std::ptrdiff_t row = strides_of(extent)[axis], per_token = plan.extents(shape, 1)[axis];
  std::ptrdiff_t outer = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= extent[d];
  const std::ptrdiff_t run = static_cast<std::ptrdiff_t>(piece.size()) / outer;
  for (std::ptrdiff_t o = 0; o < outer; ++o)
    std::copy_n(piece.begin() + o * run, run, whole.begin() + o * extent[axis] * row + begin * per_token * row);
}

}  // namespace

std::size_t count(const Plan& plan, std::string_view letters, std::int64_t time) {
  std::size_t n = 1;
  for (std::ptrdiff_t e : plan.extents(letters, time))
    if (__builtin_mul_overflow(n, static_cast<std::size_t>(e), &n) || n > std::size_t{1} << 59)
      throw Error("a tensor [" + std::string(letters) + "] of " + plan.name() + " for " + std::to_string(time) +
                  " tokens has more bytes than any machine; take smaller dimensions");
  return n;
}

Numbers tokens_of(const Plan& plan, const Numbers& numbers, std::string_view shape, std::int64_t time,
                  std::int64_t begin, std::int64_t end) {
  const Axes axes(shape);
  const std::size_t axis = axes.has('T') ? axes.find('T') : axes.find('P');
  // P may be a length of its own.
  if (!axes.has('T') && (!axes.has('P') || (begin == 0 && end == time))) return numbers;
  const std::ptrdiff_t per_token = plan.extents(shape, 1)[axis];
  return slice(numbers, plan.extents(shape, time), axis, begin * per_token, end * per_token);
}

Numbers row_of(const Plan& plan, const Numbers& numbers, std::string_view shape, std::int64_t time, int row) {
  const std::size_t axis = Axes(shape).find('B');
  if (axis == Axes::npos) return numbers;
  return slice(numbers, plan.extents(shape, time), axis, row, row + 1);
}

double relative_error(const Numbers& a, const Numbers& b, double floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = floor, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference == 0 ? 0 : largest == 0 ? difference : difference / largest;
}

double relative_error(const NamedNumbers& actual, const NamedNumbers& expected, double floor) {
  double error = 0;
  for (const auto& [name, numbers] : expected) {
    const auto found = actual.find(name);
    error = std::max(error, found == actual.end() ? std::numeric_limits<double>::infinity()
                                                  : relative_error(found->second, numbers, floor));
  }
  return error;
}

Runner::Runner(Plan plan, std::int64_t time, std::int64_t capacity, std::int64_t pairs)
    : plan_(std::move(plan)), time_(time), capacity_(std::max({time, capacity, pairs})), pairs_(pairs) {}

std::vector<std::ptrdiff_t> Runner::extents(std::string_view shape, std::int64_t length) const {
  std::vector<std::ptrdiff_t> extent = plan_.extents(shape, length, pairs_);
  if (const std::size_t levels = Axes(shape).find('L'); levels != Axes::npos)
    extent[levels] = plan_.extents("L", time_)[0];
  return extent;
}

NamedNumbers Runner::forward_piece(const NamedNumbers& inputs, State state, std::int64_t length, Form form,
                                   bool& in_domain) const {
  std::map<std::string, Buffer> buffers;
  Inputs in;
  Outputs out;
  for (const InputInfo& info : plan_.inputs()) {
    if (info.optional && !inputs.contains(info.name)) continue;
    auto& buffer =
        buffers.emplace(info.name, Buffer(plan_.options().type, extents(info.shape, length))).first->second;
    const auto found = inputs.find(info.name);
    if (found == inputs.end()) throw Error("the input " + info.name + " of " + plan_.name() + " is missing");
    if (found->second.size() != buffer.size())
      throw Error("the input " + info.name + " of " + plan_.name() + " has " + std::to_string(found->second.size()) +
                  " numbers, not " + std::to_string(buffer.size()));
    buffer.write(found->second);
    in[info.name] = buffer.tensor();
  }
  for (const InputInfo& info : plan_.outputs()) {
    auto& buffer =
        buffers.emplace("-> " + info.name, Buffer(plan_.options().type, extents(info.shape, length))).first->second;
    out[info.name] = buffer.tensor();
  }
  const Form used = length == 1 && form == Form::step ? Form::step : form == Form::step ? Form::recurrent : form;
  const std::int64_t tokens = plan_.tokens_kept({}) >= 0 || pairs_ >= 0 ? capacity_ : length;
  std::vector<double> work(plan_.footprint(tokens, used).workspace / sizeof(double) + 1);
  fill_with_nan(work);
  const Workspace workspace{work.data(), work.size() * sizeof(double)};
  const Status status = plan_.forward(in, state, out, workspace, used);
  if (status == Status::out_of_domain && keeps_out_of_domain_) in_domain = false;
  else expect_ok(plan_, status, status == Status::ok ? "" : plan_.diagnose(in, state, out, workspace, used));
  NamedNumbers outputs;
  for (const InputInfo& info : plan_.outputs()) outputs[info.name] = buffers.at("-> " + info.name).read();
  return outputs;
}

Forward Runner::in_pieces(const NamedNumbers& inputs, const NamedNumbers& initial,
                          const std::vector<std::int64_t>& cuts, Form form) const {
  StateBuffer state = fresh_state(plan_, capacity_, initial);
  Forward result;
  std::vector<std::int64_t> ends = cuts;
  ends.push_back(time_);
  for (const InputInfo& info : plan_.outputs()) result.outputs[info.name].resize(count(plan_, info.shape, time_));
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    NamedNumbers piece;
    for (const InputInfo& info : plan_.inputs())
      if (const auto found = inputs.find(info.name); found != inputs.end())
        piece[info.name] = tokens_of(plan_, found->second, info.shape, time_, begin, end);
    const NamedNumbers outputs = forward_piece(piece, state.state(), end - begin, form, result.in_domain);
    for (const InputInfo& info : plan_.outputs())
      put_tokens(plan_, result.outputs[info.name], outputs.at(info.name), info.shape, time_, begin);
    begin = end;
  }
  result.state = read_state(plan_, state.state());
  return result;
}

Forward Runner::forward(const NamedNumbers& inputs, const NamedNumbers& initial, Form form) const {
  return in_pieces(inputs, initial, {}, form);
}

Forward Runner::step_by_step(const NamedNumbers& inputs, const NamedNumbers& initial) const {
  std::vector<std::int64_t> cuts;
  for (std::int64_t t = 1; t < time_; ++t) cuts.push_back(t);
  return in_pieces(inputs, initial, cuts, time_ > 0 ? Form::step : Form::recurrent);
}

NamedNumbers Runner::backward_piece(const NamedNumbers& inputs, ConstState initial, const NamedNumbers& d_outputs,
                                    ConstState d_final, State d_initial, std::int64_t length, Form form) const {
  const Type type = plan_.options().type;
  std::map<std::string, Buffer> buffers;
  Inputs in, d_out;
  Outputs d_in;
  for (const InputInfo& info : plan_.inputs()) {
    if (info.optional && !inputs.contains(info.name)) continue;
    auto& buffer = buffers.emplace(info.name, Buffer(type, extents(info.shape, length))).first->second;
    buffer.write(inputs.at(info.name));
    in[info.name] = buffer.tensor();
    auto& gradient = buffers.emplace("d " + info.name, Buffer(type, extents(info.shape, length))).first->second;
    d_in[info.name] = gradient.tensor();
  }
  for (const InputInfo& info : plan_.outputs())
    if (const auto found = d_outputs.find(info.name); found != d_outputs.end()) {
      auto& buffer = buffers.emplace("-> " + info.name, Buffer(type, extents(info.shape, length))).first->second;
      buffer.write(found->second);
      d_out[info.name] = buffer.tensor();
    }
  const std::int64_t tokens = plan_.tokens_kept({}) >= 0 || pairs_ >= 0 ? capacity_ : length;
  std::vector<double> work(plan_.footprint(tokens, form).backward / sizeof(double) + 1);
  fill_with_nan(work);
  const Status status =
      plan_.backward(in, initial, d_out, d_final, d_in, d_initial, {work.data(), work.size() * sizeof(double)}, form);
  expect_ok(plan_, status, "");
  NamedNumbers gradients;
  for (const InputInfo& info : plan_.inputs())
    if (const auto found = buffers.find("d " + info.name); found != buffers.end())
      gradients[info.name] = found->second.read();
  return gradients;
}

Backward Runner::backward(const NamedNumbers& inputs, const NamedNumbers& initial, const NamedNumbers& d_outputs,
                          const NamedNumbers& d_final, Form form) const {
  StateBuffer state = fresh_state(plan_, capacity_, initial), d_end = fresh_state(plan_, capacity_, {}),
              d_start = d_end;
  expect_ok(plan_, plan_.zero(d_end.state()), "");
  if (!d_final.empty()) write_state(plan_, d_end.state(), d_final);
  Backward result;
  result.inputs =
      backward_piece(inputs, state.state(), d_outputs, d_final.empty() ? ConstState{} : ConstState(d_end.state()),
                     d_start.state(), time_, form);
  if (plan_.tokens_kept(state.state()) < 0) result.state = read_state(plan_, d_start.state());
  return result;
}

NamedNumbers Runner::backward_in_pieces(const NamedNumbers& inputs, const NamedNumbers& d_outputs,
                                        const std::vector<std::int64_t>& cuts, Form form) const {
  std::vector<std::int64_t> ends = cuts;
  ends.push_back(time_);
  const auto part = [&](const NamedNumbers& numbers, auto infos, std::int64_t begin, std::int64_t end) {
    NamedNumbers result;
    for (const auto& info : infos)
      if (const auto found = numbers.find(info.name); found != numbers.end())
        result[info.name] = tokens_of(plan_, found->second, info.shape, time_, begin, end);
    return result;
  };
  std::vector<StateBuffer> starts = {fresh_state(plan_, capacity_, {})};
  std::int64_t begin = 0;
  bool in_domain = true;  // a state moves on where it is not
  for (const std::int64_t end : cuts) {
    starts.push_back(starts.back());
    forward_piece(part(inputs, plan_.inputs(), begin, end), starts.back().state(), end - begin, form, in_domain);
    begin = end;
  }
  NamedNumbers gradients;
  for (const InputInfo& info : plan_.inputs())
    if (const auto found = inputs.find(info.name); found != inputs.end())
      gradients[info.name].assign(found->second.size(), 0.0);
  StateBuffer d_end, d_start = starts.front();
  for (std::size_t i = ends.size(); i-- > 0;) {
    begin = i == 0 ? 0 : ends[i - 1];
    const NamedNumbers piece = backward_piece(part(inputs, plan_.inputs(), begin, ends[i]), starts[i].state(),
                                              part(d_outputs, plan_.outputs(), begin, ends[i]),
                                              d_end.memory.empty() ? ConstState{} : ConstState(d_end.state()),
                                              d_start.state(), ends[i] - begin, form);
    for (const InputInfo& info : plan_.inputs())
      if (const auto found = piece.find(info.name); found != piece.end())
        put_tokens(plan_, gradients[info.name], found->second, info.shape, time_, begin);
    d_end = d_start;
  }
  return gradients;
}

}  // namespace ttr::cli
