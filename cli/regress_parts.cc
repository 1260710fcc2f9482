#include "regress_parts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

#include "atomic_file.h"
#include "ttr/status.h"
#include "ttr/stream.h"

namespace ttr::cli {

Buffer::Buffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 64), std::align_val_t{64}))),
      size_(bytes) {}

void require_stream_inputs(const ttr::Plan& plan, const std::string& name) {
  for (const InputInfo& input : plan.inputs()) {
    if (input.name == "q" || input.name == "k" || input.name == "v" || input.optional) continue;
    throw Error(fmt::format("the layer '{}' needs the input '{}' ({}) for every token, which a stream does not have; "
                            "write it as a constant: {}=0.5",
                            name, input.name, input.meaning, input.name),
                "--layer");
  }
}

namespace {

ttr::Plan stream_plan(const std::string& name, const std::string& recipe, int key_dim, int value_dim) {
  Options options;
  options.type = Type::f64;
  Shape shape;
  shape.key_dim = key_dim, shape.value_dim = value_dim;
  ttr::Plan made = ttr::plan(recipe, shape, options);
  require_stream_inputs(made, name);
  return made;
}

}  // namespace

StreamLayer::StreamLayer(const std::string& text, int key_dim, int value_dim)
    : name_(text), recipe_(stream_recipe(text)), plan_(stream_plan(name_, recipe_, key_dim, value_dim)) {
  const Footprint bytes = plan_.footprint(capacity_, Form::step);
  state_ = Buffer(bytes.state), work_ = Buffer(bytes.workspace);
  if (const Status status = plan_.reset({state_.data(), state_.size()}); status != Status::ok)
    throw Error(fmt::format("the layer '{}' cannot start: {}", name_, to_string(status)), "--layer");
}

const ErrorVariance& StreamLayer::track_uncertainty(std::int64_t ahead) {
  return variance_.emplace(plan_, name_, ahead);
}

bool StreamLayer::enlarge() {
  if (capacity_ > std::numeric_limits<std::int64_t>::max() / 4) return false;
  const std::int64_t capacity = 2 * capacity_;
  const Footprint bytes = plan_.footprint(capacity, Form::step);
  Buffer state(bytes.state), work(bytes.workspace);
  if (plan_.grow({state_.data(), state_.size()}, {state.data(), state.size()}) != Status::ok) return false;
  state_ = std::move(state), work_ = std::move(work), capacity_ = capacity;
  return true;
}

void StreamLayer::run(const Block& block, double* predictions, Uncertainty* uncertainties) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Clock::duration aside{};  // not the layer's own time
  const int K = block.key_dim, V = block.value_dim;
  Inputs in;
  Outputs out;
  in["q"] = view(block.queries.data(), 1, 1, 1, K);
  in["k"] = view(block.keys.data(), 1, 1, 1, K);
  in["v"] = view(block.values.data(), 1, 1, 1, V);
  out["o"] = view(predictions, 1, 1, 1, V);
  if (variance_ && uncertainties) variance_->ask(out);
  ConstTensor &q = in["q"], &k = in["k"], &v = in["v"];
  Tensor& o = out["o"];
  for (std::size_t r = 0; r < block.rows; ++r) {
    double* prediction = predictions + r * static_cast<std::size_t>(V);
    if (uncertainties) uncertainties[r] = {};
    if (!block.has_pair[r] || lost_) {
      std::fill_n(prediction, V, lost_ ? std::numeric_limits<double>::quiet_NaN() : 0.0);
      continue;
    }
    q.data = block.queries.data() + r * static_cast<std::size_t>(K);
    k.data = block.keys.data() + r * static_cast<std::size_t>(K);
    v.data = block.values.data() + r * static_cast<std::size_t>(V);
    o.data = prediction;
    Status status;
    while ((status = plan_.step(in, {state_.data(), state_.size()}, out, {work_.data(), work_.size()})) ==
           Status::state_full)
      if (!enlarge()) break;
    if (status == Status::ok) {
      started_ = true;
      if (!variance_ || !uncertainties) continue;
      const auto before = Clock::now();
      uncertainties[r] = variance_->after_step({state_.data(), state_.size()}, static_cast<const double*>(k.data),
                                               static_cast<const double*>(q.data));
      aside += Clock::now() - before;
      continue;
    }
    // Numbers that grew beyond the layer's domain are a divergence, which is reported, not an error.
    if (status == Status::out_of_domain && started_) {
      lost_ = true;
      std::fill_n(prediction, V, std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    std::string reason =
        plan_.diagnose(in, {state_.data(), state_.size()}, out, {work_.data(), work_.size()}, Form::step);
    if (reason.empty()) reason = to_string(status);
    throw Error(fmt::format("the layer '{}' cannot go on: {}", name_, reason), "--layer");
  }
  seconds_ += std::chrono::duration<double>(Clock::now() - start - aside).count();
}

void Windows::add(double loss) {
  if (sums_.empty() || in_last_ == width_) {
    if (sums_.size() == most_) {
      // An odd one out at the end stays alone: it becomes a half-full window.
      const std::size_t pairs = (sums_.size() + 1) / 2;
      const bool odd = sums_.size() % 2 == 1;
      for (std::size_t i = 0; i < pairs; ++i)
        sums_[i] = sums_[2 * i] + (2 * i + 1 < sums_.size() ? sums_[2 * i + 1] : 0);
      sums_.resize(pairs);
      in_last_ = odd ? width_ : 2 * width_;
      width_ *= 2;
    }
    if (in_last_ == width_ || sums_.empty()) sums_.push_back(0), in_last_ = 0;
  }
  sums_.back() += loss;
  ++in_last_;
}

std::int64_t Windows::count(std::size_t window) const { return window + 1 < sums_.size() ? width_ : in_last_; }

double Windows::mean(std::size_t window) const { return sums_[window] / static_cast<double>(count(window)); }

double Windows::last_full() const {
  if (sums_.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t last = sums_.size() - 1;
  return mean(in_last_ == width_ || last == 0 ? last : last - 1);
}

Score::Score(std::string name_, std::int64_t window, std::size_t most)
    : name(std::move(name_)), windows(window, most), curve(1, 160) {}

void Score::add(std::int64_t row, const double* prediction, const double* actual, int values) {
  double loss = 0;
  for (int i = 0; i < values; ++i) {
    const double error = prediction[i] - actual[i];
    loss += error * error;
    if (!std::isfinite(prediction[i]) && diverged_at == 0) diverged_at = row;
  }
  squared_error += loss, ++rows;
  windows.add(loss / values), curve.add(loss / values);
}

void Spread::add(const double* values) {
  ++count_;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double before = values[i] - mean_[i];
    mean_[i] += before / static_cast<double>(count_);
    sum_ += before * (values[i] - mean_[i]);
  }
}

double Spread::r2(double squared_error) const {
  return sum_ > 0 ? 1 - squared_error / sum_ : std::numeric_limits<double>::quiet_NaN();
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return out;
}

bool print_out(std::string_view text) {
  try {
    Writer out(STDOUT_FILENO, "standard output");
    out.write(text);
    out.flush();
    return true;
  } catch (const ClosedPipe&) {
    return false;
  }
}

}  // namespace ttr::cli
