// The model: parameters, and sessions that run it (ttr/model.h).
//
//   r = E[tokens]  or  rows W_read + b ;  blocks ;  n = RMSNorm(r) ;  outputs = n W_head  (tied: n E')
//
// With labels, outputs are computed where there is one, in groups of rows, so that a large vocabulary costs memory for a
// group only. The mean of the loss is taken over what counts, in double, in the order of the tokens.
#include "ttr/model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "model/block.h"
#include "model/read_last.h"
#include "model/slstm.h"
#include "model/text.h"
#include "threads/pool.h"
#include "ttr/axes.h"

namespace ttr::model {
namespace {

// Rows whose outputs are computed at a time: a million outputs, where that is at least 256 rows.
Size label_group(Size classes) { return std::clamp<Size>((Size{1} << 20) / classes, 256, 1024); }

// Sequences that go through the model at a time: few, so that what backward reads is still in the caches; enough rows for
// the products and enough sequences for threads. It follows from the model and the batch alone, because it is the order in
// which gradients are added. A divisor of the batch: the plans are made for a number of sequences.
int sequences_at_a_time(const Config& c, int batch) {
  constexpr int rows = 1024, tasks = 8;
  int sequences = std::min(tasks, batch);
  while (batch % sequences != 0 || (sequences < batch && static_cast<Size>(sequences) * c.time < rows)) ++sequences;
  return sequences;
}

void check(const Config& c) {
  const auto refuse = [](const std::string& key, const std::string& why) { throw Error(key + " " + why, key); };
  if (c.width < 1) refuse("width", "is " + std::to_string(c.width) + "; it is at least 1");
  if (c.heads < 1) refuse("heads", "is " + std::to_string(c.heads) + "; it is at least 1");
  if (c.time < 1) refuse("time", "is " + std::to_string(c.time) + "; it is at least 1");
  if (c.key_dim == 0 && c.width % c.heads != 0)
    refuse("heads", "is " + std::to_string(c.heads) + ", which does not divide the width " + std::to_string(c.width) +
                        "; give key_dim and value_dim, or another number");
  if ((c.vocabulary > 0) == (c.input_dim > 0))
    refuse("vocabulary", "is " + std::to_string(c.vocabulary) + " and input_dim " + std::to_string(c.input_dim) +
                             "; one of them says what a token is, the other is 0");
  if (c.loss != "cross-entropy" && c.loss != "squared")
    refuse("loss", "is '" + c.loss + "'; it is cross-entropy or squared");
  if (c.mlp != "swiglu" && c.mlp != "gelu" && c.mlp != "none")
    refuse("mlp", "is '" + c.mlp + "'; it is swiglu, gelu or none");
  if (c.read_out != "each" && c.read_out != "last") refuse("read_out", "is '" + c.read_out + "'; it is each or last");
  if (c.output_dim == 0 && c.vocabulary == 0) refuse("output_dim", "is 0 without a vocabulary; say how many outputs");
  if (c.tied && c.vocabulary == 0) refuse("tied", "is yes without a vocabulary; there is no embedding to share");
  if (c.tied && c.output_dim != 0 && c.output_dim != c.vocabulary)
    refuse("tied", "is yes with output_dim " + std::to_string(c.output_dim) + "; a tied head has the vocabulary's " +
                       std::to_string(c.vocabulary));
  if (!(c.norm_eps > 0)) refuse("norm_eps", "is " + number_text(c.norm_eps) + "; it is above 0");
}

}  // namespace

template <class T>
struct TTR_HIDDEN Model<T>::Body {
  Config config;
  Registry registry;
  std::vector<Mixer> mixers;
  std::vector<Mlp> mlps;
  std::optional<ReadLast> read_last;
  int embedding = -1, read_in = -1, read_bias = -1, norm = -1, head = -1;
  int outputs = 0;
  Buffer<T> values;
};

template <class T>
Model<T>::Model(const Config& config, std::uint64_t seed) : body_(std::make_unique<Body>()) {
  check(config);
  Body& b = *body_;
  b.config = config;
  const int width = config.width;
  const double deep = 1 / std::sqrt(static_cast<double>(width));
  b.outputs = config.output_dim ? config.output_dim : config.vocabulary;
  if (config.vocabulary > 0) {
    b.embedding =
        b.registry.add("embedding", {config.vocabulary, width},
                       {Start::Kind::normal, config.embedding_scale > 0 ? config.embedding_scale : deep, 0}, true);
    b.registry.back().embedding = true;
  } else {
    b.read_in = b.registry.add("read_in", {config.input_dim, width},
                               {Start::Kind::normal, 1 / std::sqrt(static_cast<double>(config.input_dim)), 0}, true);
    b.read_bias = b.registry.add("read_bias", {width}, {Start::Kind::constant, 0, 0});
  }
  const std::vector<BlockText> stack = parse_stack(config.stack);
  const int count = static_cast<int>(stack.size());
  for (int i = 0; i < count; ++i) {
    b.mixers.push_back(make_mixer(stack[static_cast<std::size_t>(i)], config, i, count, b.registry));
    if (config.mlp == "none") continue;
    const bool swiglu = config.mlp == "swiglu";
    Mlp mlp;
    mlp.hidden = config.mlp_width ? config.mlp_width : ((swiglu ? 8 * width / 3 : 4 * width) + 15) / 16 * 16;
    const std::string prefix = "blocks." + std::to_string(i) + ".mlp.";
    mlp.norm = b.registry.add(prefix + "norm", {width}, {Start::Kind::constant, 1, 0});
    std::vector<int> columns;
    if (swiglu) columns = {mlp.hidden, mlp.hidden};
    mlp.in = b.registry.add(prefix + "in", {width, swiglu ? 2 * mlp.hidden : mlp.hidden},
                            {Start::Kind::normal, deep, 0}, true, columns);
    mlp.out = b.registry.add(prefix + "out", {mlp.hidden, width},
                             {Start::Kind::normal, 1 / std::sqrt(2.0 * count * mlp.hidden), 0}, true);
    b.mlps.push_back(mlp);
  }
  if (config.read_out == "last") b.read_last = make_read_last(config, b.registry);
  b.norm = b.registry.add("norm", {width}, {Start::Kind::constant, 1, 0});
  if (!config.tied) {
    b.head = b.registry.add("head", {width, b.outputs}, {Start::Kind::normal, deep, 0}, true);
    b.registry.back().embedding = config.vocabulary > 0;
  }
  b.values = Buffer<T>(static_cast<Size>(b.registry.total()));
  b.registry.draw(seed, b.values.data());
}

template <class T>
Model<T>::~Model() = default;
template <class T>
Model<T>::Model(Model&&) noexcept = default;
template <class T>
const Config& Model<T>::config() const noexcept {
  return body_->config;
}
template <class T>
std::span<const Parameter> Model<T>::parameters() const noexcept {
  return body_->registry.parameters();
}
template <class T>
std::span<T> Model<T>::values() noexcept {
  return {body_->values.data(), static_cast<std::size_t>(body_->values.size())};
}
template <class T>
std::span<const T> Model<T>::values() const noexcept {
  return {body_->values.data(), static_cast<std::size_t>(body_->values.size())};
}

template <class T>
std::string Model<T>::describe() const {
  std::string text;
  std::size_t all = 0;
  for (const Parameter& p : parameters()) {
    text += p.name + " [";
    for (std::size_t d = 0; d < p.extent.size(); ++d) text += (d ? ", " : "") + std::to_string(p.extent[d]);
    text += p.trained ? "]\n" : "], not trained\n";
    all += p.size;
  }
  return text + std::to_string(all) + " parameters\n";
}

template <class T>
std::int64_t Model<T>::state_numbers(int time) const {
  std::int64_t all = 0;
  for (const Mixer& mixer : body_->mixers) {
    if (mixer.slstm) {
      all += static_cast<std::int64_t>(4) * mixer.slstm->heads * mixer.slstm->dim +
             static_cast<std::int64_t>(body_->config.width) * std::max(0, mixer.slstm->taps - 1);
      continue;
    }
    const Plan made = plan(mixer.text, mixer.shape, mixer.options);
    std::int64_t pairs = time;  // that are kept, where a state has the letter N
    for (const Term& word : made.recipe().weights)
      if (word.word == "window" && !word.arguments.empty() && word.arguments[0].is_number())
        pairs = std::min(pairs, static_cast<std::int64_t>(word.arguments[0].number()));
    for (const StateInfo& part : made.states()) {
      if (part.shape == "B") continue;  // a count
      std::int64_t numbers = Axes(part.shape).has_any("N") ? pairs : 1;
      for (const std::ptrdiff_t n : made.extents(part.shape, time)) numbers *= n;
      all += numbers;
    }
    all += static_cast<std::int64_t>(mixer.convolved) * std::max(0, mixer.taps - 1);
    if (mixer.shift >= 0) all += body_->config.width;
  }
  return all;
}

template <class T>
struct TTR_HIDDEN Session<T>::Body {
  /// `carried` as in Shared; a session with it has no gradients and no losses.
  Body(const Model<T>& of, int batch, int time, int threads, int carried = 0, Pieces* pieces = nullptr)
      : model(of.body()),
        sequences(batch),
        at_a_time(carried ? batch : sequences_at_a_time(model.config, batch)),
        gradients(carried ? 0 : static_cast<Size>(model.registry.total())),
        shared(model.registry, model.values.data(), gradients.data(), at_a_time, batch / at_a_time, time, carried,
               threads, pieces) {
    const Config& c = model.config;
    if (pieces) refuse_pieces();
    const Size rows = shared.most_rows(), width = c.width, all = static_cast<Size>(batch) * time;
    if (threads > 1) threads::prepare(threads);
    for (std::size_t i = 0; i < model.mixers.size(); ++i) {
      const Mixer& mixer = model.mixers[i];
      if (mixer.slstm) mixers.push_back(std::make_unique<SlstmBlock<T>>(*mixer.slstm, c, shared));
      else mixers.push_back(std::make_unique<MixerBlock<T>>(mixer, c, shared));
      if (i < model.mlps.size()) mlps.push_back(std::make_unique<MlpBlock<T>>(shared, model.mlps[i], c));
    }
    if (model.read_last) read_last = std::make_unique<ReadLastBlock<T>>(*model.read_last, c, shared);
    norm = std::make_unique<Norm<T>>(shared, c.width, model.norm, c.norm_eps);
    r = Buffer<T>(rows * width), normed = Buffer<T>(rows * width);
    if (carried) {
      picked = Buffer<T>(batch * width), outputs = Buffer<T>(batch * model.outputs);
      for (int p = 0; p < static_cast<int>(model.registry.parameters().size()); ++p)
        if (model.registry[p].matrix && (p != model.embedding || model.head < 0))
          shared.reserve_product(p, p == model.embedding);
      shared.allocate();
      return;
    }
    dr = Buffer<T>(rows * width), d_normed = Buffer<T>(rows * width);
    if (c.loss == "squared") {
      outputs = Buffer<T>(all * model.outputs), d_outputs = Buffer<T>(rows * model.outputs);
    } else {
      const Size group = label_group(model.outputs);
      logits = Buffer<T>(group * model.outputs), picked = Buffer<T>(group * width),
      d_picked = Buffer<T>(group * width);
      places = Buffer<std::int32_t>(rows), labels = Buffer<std::int32_t>(rows), largest = Buffer<std::int32_t>(group);
    }
    losses = Buffer<double>(rows);
    predicted = Buffer<std::int32_t>(all);
    for (const Parameter& p : model.registry.parameters())
      if (p.matrix) shared.gemm.reserve_tn(p.extent[0], p.extent[1]);
    shared.reserve_sums(map_scratch(rows, width));
    shared.allocate();
  }

  Measure timed(const Batch<T>& given, bool backward) {
    const auto begin = std::chrono::steady_clock::now();
    const Measure measure = run(given, backward);
    shared.watch.times.all += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return measure;
  }

  // Blocks that have no piece of their own to work on.
  void refuse_pieces() const {
    if (model.read_last)
      throw Error(
          "read_out is last: every token's answer is made from the last token, which one process alone has; "
          "sequences of this model cannot be divided among processes",
          "read_out");
    for (const Mixer& mixer : model.mixers)
      if (mixer.slstm)
        throw Error(
            "the block 'slstm' reads its own last answer at every token and keeps it to itself; sequences of "
            "this stack cannot be divided among processes",
            "stack");
  }

  void check(const Batch<T>&, bool judged, Size longest) const;
  void through(const std::int32_t* tokens, const T* given);  // from tokens or rows to `normed`
  Measure run(const Batch<T>&, bool backward);
  void round(const Batch<T>&, Size row, bool backward, Measure&);  // the sequences from `row` on
  void labelled(const std::int32_t* label, std::int32_t* best, bool backward, Measure&);
  void squared(const Batch<T>&, Size row, bool backward, Measure&);
  void head_forward(Size rows, const T* x, T* y);
  void head_backward(Size rows, const T* x, const T* dy, T* dx);

  const typename Model<T>::Body& model;
  int sequences, at_a_time;
  Buffer<T> gradients;
  Shared<T> shared;
  std::vector<std::unique_ptr<TokenMixer<T>>> mixers;
  std::vector<std::unique_ptr<MlpBlock<T>>> mlps;
  std::unique_ptr<ReadLastBlock<T>> read_last;
  std::unique_ptr<Norm<T>> norm;
  Buffer<T> r, normed, dr, d_normed, outputs, d_outputs, logits, picked, d_picked;
  Buffer<std::int32_t> places, labels, largest, predicted;
  double logit_bound = 0;  // of the last call without gradients
  Buffer<double> losses;
};

template <class T>
void Session<T>::Body::check(const Batch<T>& batch, bool judged, Size longest) const {
  const Config& c = model.config;
  const auto refuse = [](const std::string& why) { throw Error(why, "batch"); };
  if (batch.batch != sequences)
    refuse("the batch has " + std::to_string(batch.batch) + " sequences; the session was made for " +
           std::to_string(sequences));
  if (batch.time < 1 || batch.time > longest)
    refuse("the batch has " + std::to_string(batch.time) + " tokens per sequence; the session was made for 1 to " +
           std::to_string(longest));
  if (c.vocabulary > 0 ? !batch.tokens : !batch.rows)
    refuse(c.vocabulary > 0 ? "the batch has no tokens" : "the batch has no rows");
  if (judged && (c.loss == "squared" ? !batch.targets : !batch.labels))
    refuse(c.loss == "squared" ? "the batch has no targets for the squared loss" : "the batch has no labels");
  const Size rows = static_cast<Size>(sequences) * batch.time;
  const auto in_range = [&](const std::int32_t* numbers, int limit, bool negative, const char* what) {
    for (Size i = 0; i < rows; ++i)
      if (numbers[i] >= limit || (!negative && numbers[i] < 0))
        refuse(std::string(what) + " " + std::to_string(numbers[i]) + " at position " +
               std::to_string(i % batch.time) + " of sequence " + std::to_string(i / batch.time) + " is not below " +
               std::to_string(limit));
  };
  if (c.vocabulary > 0) in_range(batch.tokens, c.vocabulary, false, "the token");
  if (judged && c.loss != "squared") in_range(batch.labels, model.outputs, true, "the label");
}

template <class T>
void Session<T>::Body::head_forward(Size rows, const T* x, T* y) {
  const Size width = model.config.width, out = model.outputs;
  if (model.head >= 0) shared.product(model.head, rows, x, width, nullptr, 0, y, out);
  else shared.product_input(model.embedding, rows, x, width, false, y, out);
}

template <class T>
void Session<T>::Body::head_backward(Size rows, const T* x, const T* dy, T* dx) {
  const Size width = model.config.width, out = model.outputs;
  if (model.head >= 0) {
    shared.product_weight(model.head, rows, x, width, dy, out, true);
    shared.product_input(model.head, rows, dy, out, false, dx, width);
  } else {
    shared.product_weight(model.embedding, rows, dy, out, x, width, true);
    shared.product(model.embedding, rows, dy, out, nullptr, 0, dx, width);
  }
}

// measure.counted is that of the whole batch.
template <class T>
void Session<T>::Body::labelled(const std::int32_t* label, std::int32_t* best, bool backward, Measure& measure) {
  const Size rows = shared.rows(), width = model.config.width, classes = model.outputs;
  Size count = 0;
  std::fill_n(best, rows, -1);
  for (Size i = 0; i < rows; ++i)
    if (label[i] >= 0) places.data()[count] = static_cast<std::int32_t>(i), labels.data()[count++] = label[i];
  if (backward && count < rows) std::fill_n(d_normed.data(), rows * width, T(0));
  const T weight = measure.counted ? 1 / static_cast<T>(measure.counted) : T(0);
  const Size most = label_group(classes);
  for (Size begin = 0; begin < count; begin += most) {
    const Size group = std::min(most, count - begin);
    const std::int32_t* const at = places.data() + begin;
    embed_forward(shared.threads, group, width, at, normed.data(), picked.data());
    head_forward(group, picked.data(), logits.data());
    cross_entropy(shared.threads, shared.gemm.simd(), group, classes, logits.data(), labels.data() + begin, weight,
                  losses.data() + begin, largest.data());
    for (Size i = 0; i < group; ++i) {
      best[at[i]] = largest.data()[i];
      measure.correct += largest.data()[i] == labels.data()[begin + i];
    }
    if (!backward) continue;
    head_backward(group, picked.data(), logits.data(), d_picked.data());
    scatter_rows(shared.threads, group, width, at, d_picked.data(), d_normed.data());
  }
  for (Size i = 0; i < count; ++i) measure.loss += losses.data()[i] / static_cast<double>(measure.counted);
}

template <class T>
void Session<T>::Body::squared(const Batch<T>& batch, Size row, bool backward, Measure& measure) {
  const Size rows = shared.rows(), out = model.outputs;
  T* const y = outputs.data() + row * out;
  head_forward(rows, normed.data(), y);
  const double weight = measure.counted ? 1 / (static_cast<double>(measure.counted) * static_cast<double>(out)) : 0;
  for (Size i = 0; i < rows; ++i) {
    const bool counts = !batch.counted || batch.counted[row + i];
    double sum = 0;
    for (Size j = i * out; j < (i + 1) * out; ++j) {
      const T error = counts ? y[j] - batch.targets[row * out + j] : T(0);
      sum += static_cast<double>(error) * static_cast<double>(error);
      d_outputs.data()[j] = error * static_cast<T>(2 * weight);
    }
    measure.loss += weight * sum;
  }
  if (backward) head_backward(rows, normed.data(), d_outputs.data(), d_normed.data());
}

template <class T>
void Session<T>::Body::through(const std::int32_t* tokens, const T* given) {
  const Config& c = model.config;
  const Size rows = shared.rows(), width = c.width;
  if (model.embedding >= 0) {
    embed_forward(shared.threads, rows, width, tokens, shared.value(model.embedding), r.data());
  } else {
    MapCall<T> add{Map::none, 1, shared.value(model.read_bias), nullptr, 1};
    shared.product(model.read_in, rows, given, c.input_dim, nullptr, 0, r.data(), width);
    map_forward(shared.threads, shared.gemm.simd(), add, rows, width, r.data(), width, r.data(), width);
  }
  for (std::size_t i = 0; i < mixers.size(); ++i) {
    mixers[i]->forward(r.data());
    if (i < mlps.size()) mlps[i]->forward(r.data());
  }
  if (read_last) read_last->forward(r.data());
  norm->forward(r.data(), normed.data());
}

template <class T>
void Session<T>::Body::round(const Batch<T>& batch, Size row, bool backward, Measure& measure) {
  const Config& c = model.config;
  const Size rows = shared.rows(), width = c.width;
  const std::int32_t* const tokens = batch.tokens ? batch.tokens + row : nullptr;
  const T* const given = batch.rows ? batch.rows + row * c.input_dim : nullptr;
  through(tokens, given);
  {
    const Stopwatch::Part part(&shared.watch, &Times::head);
    if (c.loss == "squared") squared(batch, row, backward, measure);
    else labelled(batch.labels + row, predicted.data() + row, backward, measure);
  }
  if (!backward) return;
  std::fill_n(dr.data(), rows * width, T(0));
  norm->backward(r.data(), d_normed.data(), dr.data());
  if (read_last) read_last->backward(dr.data());
  for (std::size_t i = mixers.size(); i-- > 0;) {
    if (i < mlps.size()) mlps[i]->backward(dr.data());
    mixers[i]->backward(dr.data());
  }
  if (model.embedding >= 0) {
    embed_backward(shared.threads, rows, width, tokens, dr.data(), shared.total(model.embedding));
  } else {
    shared.product_weight(model.read_in, rows, given, c.input_dim, dr.data(), width);
    map_backward<T>(shared.threads, shared.gemm.simd(), {}, rows, width, r.data(), width, dr.data(), width, dr.data(),
                    width, shared.gradient(model.read_bias), nullptr, shared.sums.data());
  }
}

template <class T>
Measure Session<T>::Body::run(const Batch<T>& batch, bool backward) {
  check(batch, true, shared.time);
  shared.now = batch.time;
  shared.begin();
  const Size all = static_cast<Size>(sequences) * batch.time;
  Measure measure;
  if (!backward) logit_bound = 0;
  for (Size i = 0; i < all; ++i)
    measure.counted +=
        batch.labels && model.config.loss != "squared" ? batch.labels[i] >= 0 : !batch.counted || batch.counted[i];
  if (shared.pieces) {
    double counted = static_cast<double>(measure.counted);
    shared.pieces->sum({&counted, 1});
    measure.counted = static_cast<std::int64_t>(counted);
  }
  for (const int table : {model.head, model.embedding})  // rounds, groups of labels and tokens add to them
    if (backward && table >= 0) {
      shared.adds(table);
      std::fill_n(shared.total(table), model.registry[table].size, T(0));
    }
  for (Size row = 0; row < all; row += shared.rows()) {
    round(batch, row, backward, measure);
    if (!backward)
      for (const auto& mixer : mixers) logit_bound = std::max(logit_bound, mixer->logit_bound());
    shared.end_round(backward);
  }
  if (shared.pieces) {
    double sums[] = {measure.loss, static_cast<double>(measure.correct)};
    shared.pieces->sum(sums);
    measure.loss = sums[0], measure.correct = static_cast<std::int64_t>(sums[1]);
  }
  return measure;
}

namespace {
void check_sizes(int batch, int time, int threads) {
  if (batch < 1 || time < 1)
    throw Error("a session needs at least one sequence of one token; it was asked for " + std::to_string(batch) +
                    " of " + std::to_string(time),
                "batch");
  if (threads < 0 || threads > threads::most)
    throw Error("threads is " + std::to_string(threads) + "; it is 0 (all cores) to " + std::to_string(threads::most),
                "threads");
}
}  // namespace

template <class T>
Session<T>::Session(const Model<T>& model, int batch, int time, int threads)
    : Session(model, batch, time, threads, nullptr) {}
template <class T>
Session<T>::Session(const Model<T>& model, int batch, int time, int threads, Pieces& pieces)
    : Session(model, batch, time, threads, &pieces) {}
template <class T>
Session<T>::Session(const Model<T>& model, int batch, int time, int threads, Pieces* pieces) {
  check_sizes(batch, time, threads);
  const Config& c = model.config();
  const double widest = std::max({c.width, c.vocabulary, c.input_dim, c.output_dim, 1});
  if (static_cast<double>(batch) * time * widest > 0x1p56)
    throw Error("a session of " + std::to_string(batch) + " sequences of " + std::to_string(time) +
                    " tokens has more bytes than any machine; take fewer",
                "batch");
  if (time > model.config().time)
    throw Error("a session of " + std::to_string(time) + " tokens is longer than the model's time " +
                    std::to_string(model.config().time) + "; raise Config::time",
                "time");
  body_ = std::make_unique<Body>(model, batch, time, threads == 0 ? threads::available() : threads, 0, pieces);
}
template <class T>
Session<T>::~Session() = default;
template <class T>
Session<T>::Session(Session&&) noexcept = default;
template <class T>
Measure Session<T>::forward(const Batch<T>& batch) {
  return body_->timed(batch, false);
}
template <class T>
Measure Session<T>::gradient(const Batch<T>& batch) {
  return body_->timed(batch, true);
}
template <class T>
std::span<T> Session<T>::gradients() noexcept {
  return {body_->gradients.data(), static_cast<std::size_t>(body_->gradients.size())};
}
template <class T>
std::span<const std::int32_t> Session<T>::predicted() const noexcept {
  return {body_->predicted.data(), static_cast<std::size_t>(body_->sequences * body_->shared.now)};
}
template <class T>
double Session<T>::logit_bound() const {
  return body_->logit_bound;
}
template <class T>
std::span<const T> Session<T>::outputs() const noexcept {
  if (body_->outputs.size() == 0) return {};
  return {body_->outputs.data(),
          static_cast<std::size_t>(body_->sequences * body_->shared.now * body_->model.outputs)};
}
template <class T>
const Times& Session<T>::times() const noexcept {
  return body_->shared.watch.times;
}

// A session that carries its states, in pieces of a prompt.
template <class T>
struct TTR_HIDDEN Decoder<T>::Body {
  Body(const Model<T>& model, int batch, int most, int threads)
      : session(model, batch, std::min(piece, most), threads, most),
        tokens(session.shared.most_rows()),
        rows(session.shared.most_rows() * model.config().input_dim),
        capacity(most) {
    if (model.config().read_out == "last")
      throw Error("read_out is last: such a model answers for a whole sequence and has no next token", "read_out");
    for (const auto& mixer : session.mixers) {
      grows = grows || mixer->grows();
      const std::string why = mixer->why_not_token_by_token();
      if (!why.empty()) throw Error(why, "stack");
    }
  }
  static constexpr int piece = 256;  // tokens that go through the blocks together
  typename Session<T>::Body session;
  Buffer<std::int32_t> tokens;  // of a piece
  Buffer<T> rows;
  std::int64_t capacity, seen = 0;
  bool grows = false;
};

template <class T>
Decoder<T>::Decoder(const Model<T>& model, int batch, int capacity, int threads) {
  check_sizes(batch, capacity, threads);
  body_ = std::make_unique<Body>(model, batch, capacity, threads == 0 ? threads::available() : threads);
}
template <class T>
Decoder<T>::~Decoder() = default;
template <class T>
Decoder<T>::Decoder(Decoder&&) noexcept = default;

template <class T>
void Decoder<T>::reset() {
  body_->seen = 0;
  for (const auto& mixer : body_->session.mixers) mixer->reset();
}
template <class T>
std::int64_t Decoder<T>::tokens() const noexcept {
  return body_->seen;
}
template <class T>
bool Decoder<T>::grows() const noexcept {
  return body_->grows;
}
template <class T>
std::size_t Decoder<T>::state_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto& mixer : body_->session.mixers) bytes += mixer->state_bytes();
  return bytes;
}

template <class T>
std::span<const T> Decoder<T>::advance(const Batch<T>& batch) {
  Body& b = *body_;
  typename Session<T>::Body& s = b.session;
  if (batch.time < 1)
    throw Error("a call has at least one token per sequence; this one has " + std::to_string(batch.time), "batch");
  if (b.grows && b.seen + batch.time > b.capacity)
    throw Error("the decoder was made for " + std::to_string(b.capacity) + " tokens and has seen " +
                    std::to_string(b.seen) + "; a layer of this model keeps them all: give it a larger capacity",
                "batch");
  const Size width = s.model.config.width, longest = s.shared.time, input = s.model.config.input_dim;
  s.check(batch, false, batch.time);
  s.shared.begin();
  for (Size begin = 0; begin < batch.time; begin += longest) {
    const Size now = std::min(longest, batch.time - begin);
    for (Size i = 0; i < s.shared.batch; ++i)
      if (input)
        std::copy_n(batch.rows + (i * batch.time + begin) * input, now * input, b.rows.data() + i * now * input);
      else std::copy_n(batch.tokens + i * batch.time + begin, now, b.tokens.data() + i * now);
    s.shared.now = now;
    s.through(b.tokens.data(), b.rows.data());
    b.seen += now;
  }
  for (Size i = 0; i < s.shared.batch; ++i)
    std::copy_n(s.normed.data() + ((i + 1) * s.shared.now - 1) * width, width, s.picked.data() + i * width);
  s.head_forward(s.shared.batch, s.picked.data(), s.outputs.data());
  return {s.outputs.data(), static_cast<std::size_t>(s.outputs.size())};
}

template class Model<float>;
template class Model<double>;
template class Session<float>;
template class Session<double>;
template class Decoder<float>;
template class Decoder<double>;

}  // namespace ttr::model
