#include "regress_parts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include <fmt/format.h>
#include <unistd.h>

#include "atomic_file.h"
#include "random.h"
#include "ttr/recipe.h"
#include "ttr/status.h"
#include "ttr/stream.h"

namespace ttr::cli {

Buffer::Buffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 64), std::align_val_t{64}))),
      size_(bytes) {}

Buffer::Buffer(const Buffer& other) : Buffer(other.size_) {
  if (size_ > 0) std::memcpy(data(), other.data(), size_);
}

void Buffer::archive(Archive& a) {
  std::size_t size = size_;
  a(size);
  if (a.reading() && size > a.left()) a.refuse("holds less than its options say");
  if (a.reading() && size != size_) *this = Buffer(size);
  a.raw(data(), size);
}

namespace {

ttr::Plan stream_plan(const std::string& name, const StreamText& stream, int key_dim, int value_dim) {
  const Term memory = parse_recipe(stream.recipe).memory;
  if (value_dim == 1 && (memory.word == "layernorm" || memory.has("layernorm")))
    throw Error(fmt::format("the layer '{}' has a layer norm over the values of its answer, and there is one value, "
                            "whose norm is always zero; leave the layer norm out or predict several values",
                            name),
                "--layer");
  Options options;
  options.type = Type::f64;
  if (stream.as_layer) options.scale = 1;
  Shape shape;
  shape.key_dim = key_dim, shape.value_dim = value_dim;
  return ttr::plan(stream.text, shape, options);
}

constexpr std::size_t timed_rows = 64;  // at most, of a piece whose time is taken

std::size_t count_of(const std::vector<std::ptrdiff_t>& extents) {
  std::size_t count = 1;
  for (const std::ptrdiff_t extent : extents) count *= static_cast<std::size_t>(extent);
  return count;
}

bool of_row(const StreamInput& input) {
  using Source = StreamInput::Source;
  return input.source == Source::query || input.source == Source::key || input.source == Source::value;
}

// The same matrices in every run, on every machine.
std::vector<double> normal_numbers(std::size_t count) {
  SplitMix random(2025);
  std::vector<double> numbers(count);
  for (double& x : numbers) x = random.normal();
  return numbers;
}

}  // namespace

StreamInputs::StreamInputs(const ttr::Plan& plan, const std::string& name, const std::vector<StreamInput>& inputs)
    : key_dim_(plan.shape().key_dim), value_dim_(plan.shape().value_dim) {
  using Source = StreamInput::Source;
  const std::size_t K = static_cast<std::size_t>(key_dim_);
  for (const InputInfo& info : plan.inputs()) {
    const auto found =
        std::find_if(inputs.begin(), inputs.end(), [&](const StreamInput& input) { return input.name == info.name; });
    if (found == inputs.end()) {
      if (info.optional) continue;
      throw Error(
          fmt::format("the layer '{}' needs the input '{}' ({}) for every token, which a stream does not have; "
                      "write it as a constant: {}=0.5",
                      name, info.name, info.meaning, info.name),
          "--layer");
    }
    const std::vector<std::ptrdiff_t> extents = plan.extents(info.shape, 1), two = plan.extents(info.shape, 2);
    const std::size_t count = count_of(extents);
    Fed fed{*found, count, -1, 1, false, {}, {}};
    ConstTensor tensor;
    tensor.type = Type::f64, tensor.rank = static_cast<int>(extents.size());
    std::ptrdiff_t stride = 1;
    for (std::size_t a = extents.size(); a-- > 0; stride *= extents[a]) {
      tensor.extent[a] = extents[a], tensor.stride[a] = stride;
      if (two[a] != extents[a]) fed.time_axis = static_cast<int>(a), fed.per_time = extents[a];
    }
    const std::size_t width = found->source == Source::value ? static_cast<std::size_t>(value_dim_) : K;
    fed.as_it_is = of_row(*found) && !found->unit && found->number == 1 && found->shift == 0 && count == width;
    if (!fed.as_it_is) fed.numbers.assign(count, 0.0);
    if (found->source == Source::number) std::fill(fed.numbers.begin(), fed.numbers.end(), found->number);
    if (found->source == Source::random) fed.numbers = normal_numbers(count);
    if (found->source == Source::identity)
      for (std::size_t i = 0; i < count; ++i) fed.numbers[i] = i / K % K == i % K ? 1 : 0;
    if (found->source == Source::cosine) {  // [K, M]
      const std::size_t M = count / K;
      for (std::size_t k = 0; k < K; ++k)
        for (std::size_t m = 0; m < M; ++m)
          fed.numbers[k * M + m] = std::sqrt((m == 0 ? 1.0 : 2.0) / static_cast<double>(K)) *
                                   std::cos(std::numbers::pi / static_cast<double>(K) *
                                            (static_cast<double>(k) + 0.5) * static_cast<double>(m));
    }
    if (found->source == Source::scores || found->source == Source::shares) fed.map = normal_numbers(count * K);
    tensors_[info.name] = tensor;
    fed_.push_back(std::move(fed));
  }
}

void StreamInputs::fill(Fed& fed, const double* from, double* to) const {
  using Source = StreamInput::Source;
  const bool mapped = !fed.map.empty();
  const std::size_t width = static_cast<std::size_t>(fed.input.source == Source::value ? value_dim_ : key_dim_);
  double factor = mapped ? 1 : fed.input.number;
  if (fed.input.unit || mapped) {
    double square = 0;
    for (std::size_t i = 0; i < width; ++i) square += from[i] * from[i];
    if (square > 0) factor /= std::sqrt(square);
  }
  if (!mapped) {  // several pairs of a token are the row's own, several times
    for (std::size_t i = 0; i < fed.per_row; ++i) to[i] = factor * from[i % width] + fed.input.shift;
    return;
  }
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::size_t m = 0; m < fed.per_row; ++m) {
    to[m] = 0;
    for (std::size_t i = 0; i < width; ++i) to[m] += factor * fed.map[m * width + i] * from[i];
    top = std::max(top, to[m]);
  }
  if (fed.input.source != Source::shares) return;
  for (std::size_t m = 0; m < fed.per_row; ++m) sum += to[m] = std::exp(to[m] - top);
  for (std::size_t m = 0; m < fed.per_row; ++m) to[m] /= sum;
}

const Inputs& StreamInputs::rows(std::size_t count, const double* query, const double* key, const double* value) {
  using Source = StreamInput::Source;
  for (Fed& fed : fed_) {
    ConstTensor& tensor = tensors_[fed.input.name];
    if (fed.time_axis >= 0) tensor.extent[fed.time_axis] = static_cast<std::ptrdiff_t>(count) * fed.per_time;
    const bool is_value = fed.input.source == Source::value;
    const double* const from = fed.input.source == Source::query ? query : is_value ? value : key;
    if (fed.as_it_is) {
      tensor.data = from;
      continue;
    }
    const bool changes = of_row(fed.input) || !fed.map.empty();
    if (fed.time_axis >= 0 && fed.numbers.size() < count * fed.per_row) {
      const std::size_t had = fed.numbers.size();
      fed.numbers.resize(count * fed.per_row);
      for (std::size_t i = had; !changes && i < fed.numbers.size(); ++i)
        fed.numbers[i] = fed.numbers[i % fed.per_row];
    }
    tensor.data = fed.numbers.data();
    const std::size_t width = static_cast<std::size_t>(is_value ? value_dim_ : key_dim_);
    for (std::size_t r = 0; changes && r < count; ++r)
      fill(fed, from + r * width, fed.numbers.data() + r * fed.per_row);
  }
  return tensors_;
}

StreamLayer::StreamLayer(const std::string& text, int key_dim, int value_dim, std::optional<RidgeRule> rule)
    : name_(text),
      stream_(stream_layer(text)),
      rule_(rule ? *rule : ridge_rule(text, stream_, key_dim)),
      plan_(stream_plan(name_, stream_ = with_ridge_rule(stream_, rule_, key_dim), key_dim, value_dim)),
      inputs_(plan_, name_, stream_.inputs) {
  if (rule_ == RidgeRule::renewed) renewed_.emplace(stream_, plan_);
  state_ = Buffer(plan_.footprint(capacity_, Form::step).state);
  fixed_state_ = plan_.footprint(1, Form::step).state == plan_.footprint(1 << 20, Form::step).state &&
                 !plan_.kernel().starts_with("oracle");
  if (!stream_.as_layer) {
    const Recipe recipe = parse_recipe(stream_.recipe);
    const bool normed =
        std::any_of(recipe.extras.begin(), recipe.extras.end(), [](const Term& t) { return t.word == "keys"; });
    const bool plain = recipe.memory.word == "linear" && recipe.memory.arguments.empty() && !normed;
    solves_ = plain && recipe.solver.word == "exact";
    takes_weights_ =
        solves_ ||
        (plain && (recipe.solver.word == "kalman" || (recipe.solver.word == "sgd" && !recipe.solver.has("nlms"))));
  }
  if (const Status status = plan_.reset({state_.data(), state_.size()}); status != Status::ok)
    throw Error(fmt::format("the layer '{}' cannot start: {}", name_, to_string(status)), "--layer");
}

StreamLayer::Need StreamLayer::need(const std::string& text, int key_dim, int value_dim) {
  using Source = StreamInput::Source;
  StreamText stream = stream_layer(text);
  const RidgeRule rule = ridge_rule(text, stream, key_dim);
  stream = with_ridge_rule(stream, rule, key_dim);
  const ttr::Plan plan = stream_plan(text, stream, key_dim, value_dim);
  const Footprint bytes = plan.footprint(256, Form::step);
  Need need{static_cast<double>(bytes.state), static_cast<double>(bytes.workspace), 0};
  need.work = std::max(need.work, static_cast<double>(plan.footprint(256, Form::recurrent).workspace));
  if (rule == RidgeRule::renewed)
    need.work = std::max(need.work, static_cast<double>(RenewedRidge(stream, plan).workspace(plan)));
  for (const InputInfo& info : plan.inputs()) {
    double numbers = 1;
    for (const std::ptrdiff_t extent : plan.extents(info.shape, 1)) numbers *= static_cast<double>(extent);
    for (const StreamInput& input : stream.inputs)
      if (input.name == info.name && (input.source == Source::scores || input.source == Source::shares))
        numbers *= 1 + static_cast<double>(key_dim);
    need.inputs += sizeof(double) * numbers;
  }
  return need;
}

std::string what_ran(const StreamText& stream, const std::string& kernel) {
  std::string text = stream.recipe, list;
  for (const StreamInput& input : stream.inputs)
    if (stream.as_layer) list += (list.empty() ? "" : ", ") + input.name + " = " + input.words;
  for (const std::string& change : stream.changes) list += (list.empty() ? "" : "; ") + change;
  if (stream.as_layer) text = stream.text + ": " + text;
  if (!list.empty()) text += " (" + list + ")";
  if (kernel.starts_with("oracle")) text += "; on the oracle, literally and slowly";
  return text;
}

const ErrorVariance& StreamLayer::track_uncertainty(std::int64_t ahead) {
  if (stream_.as_layer)
    throw Error(fmt::format("the layer '{}' runs with inputs of its own, which give no variance of its answers; rls, "
                            "window-rls, mesanet and kalman have one",
                            name_),
                "--interval");
  ahead_ = ahead;
  return variance_.emplace(plan_, name_, ahead, renewed_);
}

void StreamLayer::forget() {
  lost_ = plan_.reset({state_.data(), state_.size()}) != Status::ok;
  failure_.clear(), last_key_.clear();
  if (variance_) variance_.emplace(plan_, name_, ahead_, renewed_);
}

void StreamLayer::learn_again(const Block& block) {
  RowTimes aside;
  std::swap(times_, aside);
  spare_.resize(block.rows * static_cast<std::size_t>(block.value_dim));
  if (variance_) spare_uncertainties_.resize(block.rows);
  run(block, spare_.data(), variance_ ? spare_uncertainties_.data() : nullptr);
  std::swap(times_, aside);
}

void StreamLayer::archive(Archive& a) {
  RidgeRule rule = rule_;
  if (a.version() > 2) a(rule);
  // Until there was another, a ridge stayed up to 256 keys and faded beyond.
  else if (rule == RidgeRule::renewed) rule = older_ridge_rule(stream_, plan_.shape().key_dim);
  if (rule != rule_) {
    if (!can_follow(rule, stream_layer(name_)))
      a.refuse(fmt::format("holds a ridge of '{}' that follows no rule of this program's", name_));
    const bool tracks = variance_.has_value();
    const std::int64_t ahead = ahead_;
    *this = StreamLayer(name_, plan_.shape().key_dim, plan_.shape().value_dim, rule);
    if (tracks) track_uncertainty(ahead);
  }
  std::int64_t capacity = capacity_;
  a(capacity);
  if (a.reading() && capacity != capacity_) {
    if (capacity < 1 || capacity > (std::int64_t{1} << 40)) a.refuse("holds a state of impossible size");
    work_ = Buffer(), capacity_ = capacity, together_ = 0;
  }
  a(state_, before_, last_key_, last_value_, lost_, failure_, variance_);
  if (state_.size() != plan_.footprint(capacity_, Form::step).state ||
      (before_.size() > 0 && before_.size() != state_.size()))
    a.refuse(fmt::format("holds a state of '{}' of another size than this program's", name_));
}

bool StreamLayer::is_linear() const {
  if (stream_.as_layer) return false;
  const Recipe recipe = parse_recipe(stream_.recipe);
  const auto near = [](const Term& term) { return term.word == "near"; };
  return recipe.memory.word == "linear" && recipe.memory.arguments.empty() && recipe.extras.empty() &&
         std::none_of(recipe.weights.begin(), recipe.weights.end(), near);
}

std::vector<double> StreamLayer::map() {
  const std::size_t K = last_key_.size(), V = last_value_.size();
  if (lost_ || K == 0 || !is_linear()) return {};
  std::vector<double> answers(K * V), query(K);
  for (std::size_t k = 0; k < K; ++k) {
    Outputs out;
    out[plan_.outputs().front().name] = view(answers.data() + k * V, 1, 1, 1, static_cast<std::ptrdiff_t>(V));
    query[k] = 1;
    ask_again(query.data(), out, false);
    query[k] = 0;
  }
  return lost_ ? std::vector<double>() : answers;
}

bool StreamLayer::enlarge(Buffer& old) {
  if (capacity_ > std::numeric_limits<std::int64_t>::max() / 4) return false;
  const std::int64_t capacity = 2 * capacity_;
  Buffer state(plan_.footprint(capacity, Form::step).state);
  if (plan_.grow({old.data(), old.size()}, {state.data(), state.size()}) != Status::ok) return false;
  old = std::move(state), make_workspace(capacity), capacity_ = capacity, together_ = 0;
  return true;
}

void StreamLayer::make_workspace(std::int64_t capacity) {
  work_ =
      Buffer(std::max(plan_.footprint(capacity, Form::step).workspace, renewed_ ? renewed_->workspace(plan_) : 0));
}

Status StreamLayer::step(const Inputs& in, Outputs& out, Buffer& state) {
  if (work_.size() == 0) make_workspace(capacity_);
  Status status = Status::ok;
  if (renewed_) status = renewed_->begin_row(plan_, {state.data(), state.size()}, {work_.data(), work_.size()});
  if (status != Status::ok) return status;
  while ((status = plan_.step(in, {state.data(), state.size()}, out, {work_.data(), work_.size()})) ==
         Status::state_full)
    if (!enlarge(state)) break;
  return status;
}

Uncertainty StreamLayer::ask_again(const double* query, Outputs& out, bool uncertain) {
  if (again_.size() != before_.size()) again_ = Buffer(before_.size());
  std::memcpy(again_.data(), before_.data(), before_.size());
  const Inputs& in = inputs_.rows(1, query, last_key_.data(), last_value_.data());
  if (step(in, out, again_) != Status::ok) lost_ = true;
  if (!uncertain || lost_) return {};
  const ErrorVariance kept = *variance_;
  const std::vector<double> nothing(last_key_.size());  // the pair has been learned already
  const Uncertainty uncertainty = variance_->after_step({again_.data(), again_.size()}, nothing.data(), query);
  *variance_ = kept;
  return uncertainty;
}

bool StreamLayer::run_together(const Block& block, std::size_t first, std::size_t count, double* predictions) {
  const std::size_t K = static_cast<std::size_t>(block.key_dim), V = static_cast<std::size_t>(block.value_dim);
  if (count > together_) {
    const std::size_t room = plan_.footprint(static_cast<std::int64_t>(count), Form::recurrent).workspace;
    if (room > work_.size()) work_ = Buffer(room);
    together_ = count;
  }
  if (kept_.size() != state_.size()) kept_ = Buffer(state_.size());
  std::memcpy(kept_.data(), state_.data(), state_.size());
  const Inputs& in = inputs_.rows(count, block.queries.data() + first * K, block.keys.data() + first * K,
                                  block.values.data() + first * V);
  Outputs out;
  out[plan_.outputs().front().name] =
      view(predictions + first * V, 1, static_cast<std::ptrdiff_t>(count), 1, static_cast<std::ptrdiff_t>(V));
  if (plan_.forward(in, {state_.data(), state_.size()}, out, {work_.data(), work_.size()}, Form::recurrent) ==
      Status::ok)
    return true;
  std::memcpy(state_.data(), kept_.data(), state_.size());
  return false;
}

namespace {

// What is said of a call with one sequence, token and head, to somebody who has rows: "key 3 is inf; ..", "the row has
// no answer in this precision; ..".
std::string failure_of_row(const Block& block, std::size_t r, const std::string& sentence) {
  const auto search = [&](const char* what, const std::vector<double>& numbers, std::size_t width) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(r * width),
               end = begin + static_cast<std::ptrdiff_t>(width);
    const auto found = std::find_if(begin, end, [](double x) { return !std::isfinite(x); });
    return found == end ? std::string()
                        : fmt::format("{} {} is {}; every number must be finite", what, found - begin + 1, *found);
  };
  const std::size_t K = static_cast<std::size_t>(block.key_dim), V = static_cast<std::size_t>(block.value_dim);
  for (const std::string& found :
       {search("key", block.queries, K), search("key", block.keys, K), search("value", block.values, V)})
    if (!found.empty()) return found;
  const std::size_t place = sentence.find(" of sequence "), verb = sentence.find(" has no answer");
  return place < verb && verb != sentence.npos ? "the row" + sentence.substr(verb) : sentence;
}

}  // namespace

void StreamLayer::run(const Block& block, double* predictions, Uncertainty* uncertainties) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  Clock::duration aside{};  // not the layer's own time
  std::size_t timed = 0;    // rows whose time is known
  const auto note_time = [&](std::size_t rows) {
    const auto now = Clock::now();
    times_.add(std::chrono::duration<double>(now - start - aside).count(), rows - timed);
    start = now, aside = {}, timed = rows;
  };
  const std::size_t K = static_cast<std::size_t>(block.key_dim), V = static_cast<std::size_t>(block.value_dim);
  Outputs out;
  const std::string answer = plan_.outputs().front().name;
  out[answer] = view(predictions, 1, 1, 1, static_cast<std::ptrdiff_t>(V));
  const bool uncertain = variance_ && uncertainties;
  if (uncertain) variance_->ask(out);
  Tensor& o = out[answer];
  const bool together = fixed_state_ && !uncertain && !renewed_;
  std::size_t alone_until = 0;  // rows of a call that failed are run one by one, so that it shows which one it is
  for (std::size_t r = 0; r < block.rows; ++r) {
    if (r - timed >= timed_rows) note_time(r);
    if (together && !lost_ && r >= alone_until && block.has_pair[r] && !block.asked_again(r)) {
      std::size_t end = r + 1;
      const std::size_t most = std::min(block.rows, timed + timed_rows);
      while (end < most && block.has_pair[end] && !block.asked_again(end)) ++end;
      if (end > r + 1 && run_together(block, r, end - r, predictions)) {
        for (; uncertainties && r < end; ++r) uncertainties[r] = {};
        r = end - 1;
        continue;
      }
      alone_until = end;
    }
    double* const prediction = predictions + r * V;
    const double *const query = block.queries.data() + r * K, *const key = block.keys.data() + r * K,
                        *const value = block.values.data() + r * V;
    if (uncertainties) uncertainties[r] = {};
    o.data = prediction;
    if (!lost_) {
      if (!block.has_pair[r]) {
        if (last_key_.empty()) std::fill_n(prediction, V, 0.0);
        else if (const Uncertainty u = ask_again(query, out, uncertain); uncertainties) uncertainties[r] = u;
      } else {
        if (block.asked_again(r)) {
          if (before_.size() != state_.size()) before_ = Buffer(state_.size());
          std::memcpy(before_.data(), state_.data(), state_.size());
          last_key_.assign(key, key + K), last_value_.assign(value, value + V);
        }
        const Inputs& in = inputs_.rows(1, query, key, value);
        const Status status = step(in, out, state_);
        if (status == Status::ok) {
          if (!uncertain) continue;
          const auto before = Clock::now();
          uncertainties[r] = variance_->after_step({state_.data(), state_.size()}, key, query);
          aside += Clock::now() - before;
          continue;
        }
        // It ends this layer, and it alone.
        lost_ = true;
        failure_ = plan_.diagnose(in, {state_.data(), state_.size()}, out, {work_.data(), work_.size()}, Form::step);
        failure_ = failure_.empty() ? std::string(to_string(status)) : failure_of_row(block, r, failure_);
      }
    }
    if (lost_) std::fill_n(prediction, V, std::numeric_limits<double>::quiet_NaN());
  }
  note_time(block.rows);
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with('s') ? "es" : "s");
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
