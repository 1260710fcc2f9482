#include "ours.h"

#include <cstring>

#include "bench_gates.h"
#include "commands.h"

namespace ttr::peers {
namespace {

Plan plan_of(const OurCase& spec) {
  Options options;
  options.scale = spec.scale, options.threads = spec.threads;
  if (spec.half_pairs) options.state_type = Type::f16;
  return plan(spec.layer, spec.shape, options);
}

template <class AnyTensor, class T>
AnyTensor dense(T* data, const std::vector<std::ptrdiff_t>& extents) {
  AnyTensor t;
  t.data = data, t.type = Type::f32, t.rank = static_cast<int>(extents.size());
  std::ptrdiff_t stride = 1;
  for (std::size_t d = extents.size(); d-- > 0;) t.extent[d] = extents[d], t.stride[d] = stride, stride *= extents[d];
  return t;
}

void require(Status status, const OurCase& spec) {
  if (status != Status::ok) throw Error(spec.layer + ": " + std::string(to_string(status)));
}

}  // namespace

Ours::Ours(const OurCase& spec) : spec_(spec), plan_(plan_of(spec)) {
  const std::int64_t all = spec.before + spec.tokens;
  const auto made = [&](const InputInfo& info) {
    Array array;
    std::size_t count = 1;
    for (const std::ptrdiff_t extent : plan_.extents(info.shape, all)) count *= static_cast<std::size_t>(extent);
    array.numbers.assign(count, 0);
    if (info.shape.find('T') != std::string::npos) array.per_token = count / static_cast<std::size_t>(all);
    return array;
  };
  const cli::GateKind gates(spec.gates);
  std::uint64_t seed = 1000;
  for (const InputInfo& info : plan_.inputs()) {
    Array& array = inputs_[info.name] = made(info);
    std::vector<double> numbers = cli::random_input(plan_, info, all, seed++);
    gates.apply(plan_, info, all, numbers);
    const bool half = spec.half_pairs && (info.name == "k" || info.name == "v");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto x = static_cast<float>(numbers[i]);
      array.numbers[i] = half ? to_float(to_f16(x)) : x;
    }
  }
  for (const InputInfo& info : plan_.outputs()) outputs_[info.name] = made(info);

  const Form form = spec.decode ? Form::step : Form::best;
  const Footprint whole = plan_.footprint(all), bytes = plan_.footprint(all, form);
  fresh_ = cli::Buffer(whole.state), state_ = cli::Buffer(whole.state);
  work_ = cli::Buffer(std::max(whole.workspace, bytes.workspace));
  require(plan_.reset({fresh_.data(), fresh_.size()}), spec);
  keeps_pairs_ = plan_.tokens_kept({fresh_.data(), fresh_.size()}) >= 0;
  if (spec.before > 0) fill_before();
  std::memcpy(state_.data(), fresh_.data(), state_.size());
  const std::int64_t each = spec.decode ? 1 : spec.tokens;
  call_ = plan_.prepare(inputs_of(spec.before, each), outputs_of(spec.before, each), form);
  reads_.resize(plan_.inputs().size()), writes_.resize(plan_.outputs().size());
}

Inputs Ours::inputs_of(std::int64_t first, std::int64_t tokens) const {
  Inputs in;
  for (const InputInfo& info : plan_.inputs())
    in[info.name] = dense<ConstTensor>(input(info.name, first), plan_.extents(info.shape, tokens));
  return in;
}

Outputs Ours::outputs_of(std::int64_t first, std::int64_t tokens) {
  Outputs out;
  for (const InputInfo& info : plan_.outputs()) {
    Array& array = outputs_.at(info.name);
    out[info.name] = dense<Tensor>(array.numbers.data() + static_cast<std::size_t>(first) * array.per_token,
                                   plan_.extents(info.shape, tokens));
  }
  return out;
}

void Ours::fill_before() {
  require(plan_.forward(inputs_of(0, spec_.before), {fresh_.data(), fresh_.size()}, outputs_of(0, spec_.before),
                        {work_.data(), work_.size()}),
          spec_);
}

const float* Ours::input(const std::string& name, std::int64_t token) const {
  const Array& array = inputs_.at(name);
  return array.numbers.data() + static_cast<std::size_t>(token) * array.per_token;
}

float* Ours::input(const std::string& name, std::int64_t token) {
  return const_cast<float*>(std::as_const(*this).input(name, token));
}

std::size_t Ours::numbers_per_token(const std::string& name) const { return inputs_.at(name).per_token; }

std::span<const float> Ours::output(const std::string& name, std::int64_t token, std::int64_t tokens) const {
  const Array& array = outputs_.at(name);
  return std::span(array.numbers)
      .subspan(static_cast<std::size_t>(spec_.before + token) * array.per_token,
               static_cast<std::size_t>(tokens) * array.per_token);
}

void Ours::from_fresh() {
  if (!keeps_pairs_) return static_cast<void>(std::memcpy(state_.data(), fresh_.data(), state_.size()));
  // The lists stay where they are, and in the caches.
  const State state{state_.data(), state_.size()};
  require(plan_.rewind(state, plan_.tokens_kept(state) - spec_.before), spec_);
}

void Ours::run() {
  const std::int64_t each = spec_.decode ? 1 : spec_.tokens;
  for (std::int64_t token = spec_.before; token < spec_.before + spec_.tokens; token += each) {
    std::size_t i = 0;
    for (const InputInfo& info : plan_.inputs()) reads_[i++] = input(info.name, token);
    i = 0;
    for (const InputInfo& info : plan_.outputs()) {
      Array& array = outputs_.at(info.name);
      writes_[i++] = array.numbers.data() + static_cast<std::size_t>(token) * array.per_token;
    }
    require((*call_)(reads_, writes_, {state_.data(), state_.size()}, {work_.data(), work_.size()}), spec_);
  }
}

}  // namespace ttr::peers
