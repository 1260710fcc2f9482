#include "train_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

__extension__ using Integer = __int128;
constexpr double unit = 0x1p-90, inverse = 0x1p90;

// A sum that is too large, or of what is no number, is the largest there is: it becomes infinite again.
constexpr Integer most = Integer{1} << 126;

Integer to_integer(double x) {
  const double scaled = x * inverse;
  if (!(std::abs(scaled) < 0x1p120)) return most;
  return static_cast<Integer>(scaled);
}
double to_number(Integer x) {
  if (x >= most / 2 || x <= -(most / 2)) return HUGE_VAL;
  return static_cast<double>(x) * unit;
}
Integer read(const std::uint64_t* words) {
  Integer x;
  std::memcpy(&x, words, sizeof x);
  return x;
}
void add(std::uint64_t* words, Integer y) {
  const Integer sum = std::clamp(read(words), -most, most) + std::clamp(y, -most, most);
  const Integer held = std::clamp(sum, -most, most);
  std::memcpy(words, &held, sizeof held);
}

// Cuts tensors into `count` runs of about as many numbers: the end of each.
std::vector<std::size_t> runs_of(std::span<const model::Parameter> parameters, std::size_t total, int count) {
  std::vector<std::size_t> ends;
  std::size_t at = 0;
  for (int r = 1; r <= count; ++r) {
    const std::size_t goal = total * static_cast<std::size_t>(r) / static_cast<std::size_t>(count);
    while (at < parameters.size() && (r == count || parameters[at].offset + parameters[at].size / 2 < goal)) ++at;
    ends.push_back(at);
  }
  return ends;
}

model::Batch<float> rows_of(const model::Examples& examples, int first, int rows, int input_dim, int output_dim) {
  model::Batch<float> b = examples.batch();
  const std::size_t skip = static_cast<std::size_t>(first) * static_cast<std::size_t>(examples.time);
  b.batch = rows;
  if (b.tokens) b.tokens += skip;
  if (b.labels) b.labels += skip;
  if (b.counted) b.counted += skip;
  if (b.rows) b.rows += skip * static_cast<std::size_t>(input_dim);
  if (b.targets) b.targets += skip * static_cast<std::size_t>(output_dim);
  return b;
}

}  // namespace

SequenceRanks SequenceRanks::of(const Ranks& ranks, int size) {
  if (size < 1 || ranks.count() % size != 0)
    throw Error(
        fmt::format("--sequence-ranks is {} and there {} {} rank{}; ranks are divided into groups of so many, "
                    "each of which holds sequences together: take a divisor of {}, and start ttr with mpirun",
                    size, ranks.count() == 1 ? "is" : "are", ranks.count(), ranks.count() == 1 ? "" : "s",
                    ranks.count()),
        "--sequence-ranks");
  return {size, ranks.rank() % size, ranks.rank() / size, ranks.count() / size};
}

void SequenceRanks::check(int time) const {
  if (time >= size) return;
  throw Error(
      fmt::format("a sequence of {} token{} cannot be divided among {} ranks, each of which needs one; take a "
                  "smaller --sequence-ranks, or longer sequences",
                  time, time == 1 ? "" : "s", size),
      "--sequence-ranks");
}

model::Examples SequenceRanks::piece(const model::Examples& all, int first, int rows) const {
  check(all.time);
  model::Examples own;
  own.sequences = rows, own.time = end(all.time) - begin(all.time);
  const std::size_t sequences = static_cast<std::size_t>(all.sequences), time = static_cast<std::size_t>(all.time);
  const auto take = [&](const auto& from, auto& to) {
    const std::size_t numbers = from.size() / (sequences * time);  // numbers of a token
    for (int row = first; row < first + rows; ++row) {
      const auto at = from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * time * numbers);
      const auto width = static_cast<std::ptrdiff_t>(numbers);
      to.insert(to.end(), at + begin(all.time) * width, at + end(all.time) * width);
    }
  };
  take(all.tokens, own.tokens), take(all.labels, own.labels), take(all.rows, own.rows);
  take(all.targets, own.targets), take(all.counted, own.counted);
  return own;
}

SharedSteps::SharedSteps(Ranks& ranks, const SequenceRanks& groups, model::Pieces* pieces, model::Model<float>& model,
                         const model::OptimiserConfig& how, int batch, int time, int threads, bool reproducible)
    : ranks_(ranks), pieces_of_time_(groups), model_(model), reproducible_(reproducible), threads_(threads) {
  const int rank = ranks.rank(), count = ranks.count();
  groups.check(time);
  if (batch < groups.groups)
    throw Error(fmt::format("--batch is {} and there are {} {}; every {} needs a sequence of its own: take fewer "
                            "ranks, or a larger batch",
                            batch, groups.groups, groups.size > 1 ? "groups of ranks" : "ranks",
                            groups.size > 1 ? "group" : "rank"),
                "--batch");
  first_ = static_cast<int>(std::int64_t{batch} * groups.group / groups.groups);
  rows_ = static_cast<int>(std::int64_t{batch} * (groups.group + 1) / groups.groups) - first_;
  const auto parameters = model.parameters();
  const std::size_t total = model.values().size();
  const std::vector<std::size_t> ends = runs_of(parameters, total, count);
  const auto offset = [&](std::size_t i) { return i < parameters.size() ? parameters[i].offset : total; };
  std::size_t from = 0;
  std::vector<model::Parameter> own;
  for (int r = 0; r < count; ++r) {
    const std::size_t to = ends[static_cast<std::size_t>(r)];
    pieces_.push_back(offset(to) - offset(from));
    std::size_t trained = 0;
    for (std::size_t i = from; i < to; ++i) {
      trained += parameters[i].trained;
      if (r != rank) continue;
      own.push_back(parameters[i]);
      own.back().offset -= offset(from);
    }
    if (r == rank) begin_ = offset(from), size_ = offset(to) - offset(from);
    trained_.push_back(trained);
    from = to;
  }
  // What is wrong with the configuration is said by an optimiser of all of them.
  if (count > 1 && !how.groups.empty()) static_cast<void>(model::Optimiser<float>(parameters, how));
  optimiser_ = std::make_unique<model::Optimiser<float>>(own, how, threads, true);
  const int at_once = reproducible ? 1 : rows_;
  session_ = pieces ? std::make_unique<model::Session<float>>(model, at_once, groups.most(time), threads, *pieces)
                    : std::make_unique<model::Session<float>>(model, at_once, time, threads);
  own_.resize(size_);
  if (reproducible) sums_.resize(2 * total), all_sums_.resize(2 * size_ * static_cast<std::size_t>(count));
  else all_.resize(size_ * static_cast<std::size_t>(count));
}

// Of some sequences: the measure is that of whole ones, the gradient that of this rank's piece.
model::Measure SharedSteps::gradient_of(const model::Examples& examples, int first, int rows) {
  const model::Config& config = model_.config();
  const int output = config.output_dim > 0 ? config.output_dim : config.vocabulary;
  if (pieces_of_time_.size == 1) return session_->gradient(rows_of(examples, first, rows, config.input_dim, output));
  piece_ = pieces_of_time_.piece(examples, first, rows);
  return session_->gradient(piece_.batch());
}

model::Measure SharedSteps::gradient(const model::Examples& examples, double mine) {
  const std::size_t count = static_cast<std::size_t>(ranks_.count());
  const bool says = pieces_of_time_.part == 0;  // one of a group is enough
  struct Said {
    double loss, counted, correct, given;
    std::uint64_t sum[2];
  };
  Said said{0, 0, 0, mine, {0, 0}};
  double counted = 0;  // of this rank's sequences
  if (reproducible_) {
    std::fill(sums_.begin(), sums_.end(), 0);
    for (int row = first_; row < first_ + rows_; ++row) {
      const model::Measure m = gradient_of(examples, row, 1);
      const double weight = static_cast<double>(m.counted);
      if (says) {
        said.counted += weight, said.correct += static_cast<double>(m.correct);
        add(said.sum, to_integer(m.loss * weight));
      }
      const auto g = session_->gradients();
      for (std::size_t i = 0; i < g.size(); ++i)
        if (const double x = static_cast<double>(g[i]) * weight; x != 0) add(&sums_[2 * i], to_integer(x));
    }
  } else {
    const model::Measure m = gradient_of(examples, first_, rows_);
    counted = static_cast<double>(m.counted);
    if (says) said.loss = m.loss * counted, said.counted = counted, said.correct = static_cast<double>(m.correct);
  }
  std::vector<Said> all(count);
  ranks_.gather(&said, sizeof said, all.data());
  Said sum{0, 0, 0, 0, {0, 0}};
  given_.clear();
  for (const Said& one : all) {
    sum.loss += one.loss, sum.counted += one.counted, sum.correct += one.correct;
    add(sum.sum, read(one.sum));
    given_.push_back(one.given);
  }
  const double total = std::max(1.0, sum.counted);
  model::Measure measure;
  measure.loss = (reproducible_ ? to_number(read(sum.sum)) : sum.loss) / total;
  measure.counted = static_cast<std::int64_t>(sum.counted), measure.correct = static_cast<std::int64_t>(sum.correct);

  std::vector<std::size_t> bytes;
  for (const std::size_t piece : pieces_) bytes.push_back(piece * (reproducible_ ? 16 : sizeof(float)));
  if (reproducible_) {
    ranks_.exchange(sums_.data(), bytes, all_sums_.data());
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t r = 1; r < count; ++r) add(&all_sums_[2 * i], read(&all_sums_[2 * (r * size_ + i)]));
      own_[i] = static_cast<float>(to_number(read(&all_sums_[2 * i])) / total);
    }
  } else {
    const auto g = session_->gradients();
    const float weight = static_cast<float>(counted / total);
    for (float& x : g) x *= weight;
    ranks_.exchange(g.data(), bytes, all_.data());
    for (std::size_t i = 0; i < size_; ++i) {
      own_[i] = all_[i];
      for (std::size_t r = 1; r < count; ++r) own_[i] += all_[r * size_ + i];
    }
  }
  return measure;
}

double SharedSteps::step() {
  std::vector<double> squares = optimiser_->squares(own_), all;
  std::vector<std::size_t> bytes;
  std::size_t tensors = 0;
  for (const std::size_t one : trained_) bytes.push_back(one * sizeof(double)), tensors += one;
  all.resize(tensors);
  ranks_.gather_pieces(squares.data(), bytes, all.data());
  double sum = 0;
  for (const double one : all) sum += one;
  const double length = std::sqrt(sum);
  const std::span<float> values = model_.values();
  optimiser_->step(values.subspan(begin_, size_), own_, length);
  if (!std::isfinite(length) || ranks_.count() == 1) return length;
  std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin_), size_, own_.begin());
  bytes.clear();
  for (const std::size_t piece : pieces_) bytes.push_back(piece * sizeof(float));
  ranks_.gather_pieces(own_.data(), bytes, values.data());
  return length;
}

std::size_t SharedSteps::before(const std::vector<std::size_t>& sizes) const {
  std::size_t sum = 0;
  for (int r = 0; r < ranks_.rank(); ++r) sum += sizes[static_cast<std::size_t>(r)];
  return sum;
}

std::unique_ptr<model::Optimiser<float>> SharedSteps::whole() {
  auto all = std::make_unique<model::Optimiser<float>>(model_.parameters(), optimiser_->config(), threads_);
  const auto own = optimiser_->state();
  for (auto& part : all->state()) {
    std::span<const float> mine;
    for (const auto& one : own)
      if (one.name == part.name) mine = one.numbers;
    const std::size_t size = mine.size_bytes();
    std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks_.count()));
    ranks_.gather(&size, sizeof size, sizes.data());
    ranks_.gather_pieces(mine.data(), sizes, part.numbers.data());
  }
  all->set_steps_taken(optimiser_->steps_taken());
  return all;
}

void SharedSteps::load(const model::Checkpoint& saved) {
  model::Optimiser<float> all(model_.parameters(), optimiser_->config(), threads_);
  saved.load(all);
  const auto whole = all.state();
  const auto own = optimiser_->state();
  for (const auto& part : whole) {
    std::span<float> mine;
    for (const auto& one : own)
      if (one.name == part.name) mine = one.numbers;
    const std::size_t size = mine.size();
    std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks_.count()));
    ranks_.gather(&size, sizeof size, sizes.data());
    if (size > 0) std::copy_n(part.numbers.begin() + static_cast<std::ptrdiff_t>(before(sizes)), size, mine.begin());
  }
  optimiser_->set_steps_taken(all.steps_taken());
}

}  // namespace ttr::cli
