// `ttr check --long`: a million tokens (or --tokens N) through every layer whose state has a fixed size, in float and in
// double, in pieces with the state carried over. Outputs must stay finite, and the float outputs near the double ones:
//
//   error at t = max |o_f32 - o_f64| / max |o_f64|   over the 100 tokens before t,  t = 1e3, 1e4, .. below N, and N
//
// Both types see the same numbers (exact in float), drawn as the table of inputs says and anew for every piece. What
// the errors mean, and why a layer is given settings, inputs or a bound of its own: docs/accuracy.md.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <optional>

#include "commands.h"
#include "json.h"
#include "progress.h"
#include "runner.h"
#include "standard_files.h"

namespace ttr::cli {
namespace {

constexpr std::int64_t piece_tokens = 8192, window = 100;
constexpr std::int64_t fewest = 1'000, most = 1'000'000'000;  // of --tokens
constexpr int K = 4, V = 4;
constexpr double default_bound = 1e-3;

// Where the errors are taken.
std::vector<std::int64_t> points_of(std::int64_t tokens) {
  std::vector<std::int64_t> points;
  for (std::int64_t t = fewest; t < tokens; t *= 10) points.push_back(t);
  points.push_back(tokens);
  return points;
}

// Settings that a long run needs.
struct Special {
  const char *layer, *settings;
};
constexpr Special specials[] = {
    {"gated-slot-attention", "slots=4"},  // as small as K and V
    {"abc", "slots=4"},
    {"titans", "depth=1"},  // a deep one unlearns random values until it is zero, or diverges
};

// Products of I + b a' (or of the residual of one key and the write of another) with unrelated keys grow without
// bound, in exact arithmetic too. These layers are run where they are stable: as a delta rule.
struct Tied {
  const char *layer, *input, *from;
  double factor;
};
constexpr Tied tied[] = {{"iplr", "b", "a", -0.5}, {"momentum-deltanet", "p", "k", 1.0}};

// Networks that learn and never forget: float and double are two training runs, which part after some hundred
// thousand steps. They must be finite to the end, and are compared after 100,000 tokens.
constexpr const char* learners[] = {"ttt-mlp", "lact"};
constexpr std::int64_t learners_part = 100'000;

// A sum of T numbers in which nothing is forgotten: every addition rounds to a relative 2^-24 of the sum so far, and
// sums that grow in proportion to t (normalisers) may round the same way for as long as their terms hardly vary. In
// the worst case that is 2^-24 T / 2 of the result.
double bound_of(const LayerInfo& info, std::int64_t tokens) {
  const bool plain_sum = info.recipe.starts_with("equal /") && info.recipe.find("/ gd(1)") != std::string::npos;
  const bool as_one = info.name == "abc" || info.name == "lightning-attention";  // a mean; a single head of slope 0
  return plain_sum || as_one ? std::max(default_bound, 0x1p-24 * static_cast<double>(tokens) / 2) : default_bound;
}

struct Subject {
  const LayerInfo* info;
  std::string text, label;
  double bound;
};

Plan plan_of(const std::string& text, Type type) {
  Options options;
  options.type = type;
  return plan(text, {1, 1, 0, K, V}, options);
}

bool has_fixed_state(const Plan& plan) {
  std::vector<double> state(plan.footprint(1).state / sizeof(double) + 1);
  return plan.kernel() != "operation" && plan.forms().front() == Form::step &&
         plan.tokens_kept({state.data(), state.size() * sizeof(double)}) < 0;
}

Subject subject_of(const LayerInfo& info, const std::string& settings, std::int64_t tokens) {
  Subject s{&info, info.name, info.name, bound_of(info, tokens)};
  std::string chosen = settings;
  if (chosen.empty() && info.name == "log-linear-attention")  // L levels hold 2^(L-1) tokens
    chosen = fmt::format("levels={}", std::bit_width(static_cast<std::uint64_t>(tokens - 1)) + 1);
  for (const Special& special : specials)
    if (chosen.empty() && info.name == special.layer) chosen = special.settings;
  if (!chosen.empty()) s.text += ":" + chosen, s.label += "(" + chosen + ")";
  return s;
}

// The layer itself, or else the first of its variants whose state has a fixed size.
std::optional<Subject> standard_subject(const LayerInfo& info, std::int64_t tokens) {
  if (info.recipe.empty()) return {};
  const Subject plain = subject_of(info, "", tokens);
  if (has_fixed_state(plan_of(plain.text, Type::f32))) return plain;
  for (const VariantInfo& variant : info.variants) {
    const Subject other = subject_of(info, variant.settings, tokens);
    if (variant.max_key_dim >= K && has_fixed_state(plan_of(other.text, Type::f32))) return other;
  }
  return {};
}

// LAYER or LAYER(settings), as in the other checks.
Subject wanted_subject(const std::string& text, std::int64_t tokens) {
  const std::size_t open = text.find('(');
  if (open != std::string::npos && text.back() != ')')
    throw Error("'" + text + "' has no closing parenthesis", "check " + text);
  const LayerInfo& info = find_layer(text.substr(0, open));
  if (info.recipe.empty())
    throw Error(info.name + " is an operation; --long is for layers that carry a state", "check " + text);
  if (open == std::string::npos) {
    if (const auto subject = standard_subject(info, tokens)) return *subject;
  } else {
    const Subject subject = subject_of(info, text.substr(open + 1, text.size() - open - 2), tokens);
    if (has_fixed_state(plan_of(subject.text, Type::f32))) return subject;
  }
  throw Error(text + " keeps its pairs; --long is for states of a fixed size", "check " + text);
}

// One plan in one form, with its state; `last` has the outputs of the windows.
template <class T>
class Stream {
 public:
  Stream(const std::string& text, Form form, const std::vector<std::int64_t>& points)
      : last(points.size()), plan_(plan_of(text, type_of<T>)), form_(form), points_(points) {
    const Footprint bytes = plan_.footprint(piece_tokens, form);
    state_.resize(bytes.state / sizeof(double) + 1), work_.resize(bytes.workspace / sizeof(double) + 1);
    if (plan_.reset(state()) != Status::ok) throw Error("the state of " + plan_.name() + " cannot be reset");
    for (const InputInfo& info : plan_.outputs()) outputs_[info.name].resize(count(plan_, info.shape, piece_tokens));
  }

  void run(const NamedNumbers& inputs, std::int64_t begin, std::int64_t length) {
    Inputs in;
    Outputs out;
    for (const InputInfo& info : plan_.inputs()) {
      std::vector<T>& to = inputs_[info.name];
      const Numbers& from = inputs.at(info.name);
      to.assign(from.begin(), from.end());
      in[info.name] = dense_tensor<ConstTensor>(plan_, to.data(), info.shape, length);
    }
    for (const InputInfo& info : plan_.outputs())
      out[info.name] = dense_tensor<Tensor>(plan_, outputs_.at(info.name).data(), info.shape, length);
    const Workspace workspace{work_.data(), work_.size() * sizeof(double)};
    if (const Status s = plan_.forward(in, state(), out, workspace, form_); s != Status::ok) {
      const std::string sentence = plan_.diagnose(in, state(), out, workspace, form_);
      throw Error(plan_.name() + ": " + (sentence.empty() ? std::string(to_string(s)) : sentence));
    }
    for (const InputInfo& info : plan_.outputs()) {
      const std::vector<T>& o = outputs_.at(info.name);
      const std::size_t per_token = count(plan_, info.shape, 1);
      for (std::int64_t t = 0; t < length; ++t) {
        const T* row = o.data() + static_cast<std::size_t>(t) * per_token;
        if (first_bad < 0 && !std::all_of(row, row + per_token, [](T x) { return std::isfinite(x); }))
          first_bad = begin + t;
        for (std::size_t i = 0; i < points_.size(); ++i)
          if (points_[i] - window <= begin + t && begin + t < points_[i])
            last[i][info.name].insert(last[i][info.name].end(), row, row + per_token);
      }
    }
  }

  const Plan& plan() const { return plan_; }
  std::vector<NamedNumbers> last;
  std::int64_t first_bad = -1;

 private:
  State state() { return {state_.data(), state_.size() * sizeof(double)}; }
  Plan plan_;
  Form form_;
  std::vector<std::int64_t> points_;
  std::vector<double> state_, work_;
  std::map<std::string, std::vector<T>> inputs_, outputs_;
};

struct Line {
  std::string layer;
  Form form;
  std::vector<double> error;  // at each of the points
  double bound = 0;
  bool passed = false;
  std::string note;
};

std::string short_number(std::int64_t n) {  // 1e5, 2048
  std::string digits = std::to_string(n);
  if (digits.find_first_not_of('0', 1) == std::string::npos)
    return fmt::format("{}e{}", digits[0], digits.size() - 1);
  return digits;
}

class Lines {
 public:
  Lines(const CheckOptions& options, const std::vector<std::int64_t>& points) : options_(options), points_(points) {}
  void add(const Line& line) {
    ++(line.passed ? passed_ : failed_);
    if (options_.json) {
      Json errors = Json::array(), at = Json::array();
      for (std::size_t i = 0; i < points_.size(); ++i) errors.push(line.error[i]), at.push(points_[i]);
      Json j = Json::object();
      j.set("layer", line.layer)
          .set("case", fmt::format("T{}-H1-K{}-V{}", options_.tokens, K, V))
          .set("check", "long");
      j.set("form", to_string(line.form)).set("dtype", "f32").set("error", line.error.back());
      j.set("tolerance", line.bound).set("passed", line.passed).set("tokens", at).set("errors", errors);
      if (!line.note.empty()) j.set("note", line.note);
      list_.push(j);
      return;
    }
    if (options_.quiet && line.passed) return;
    if (!header_) {
      fmt::print("{:<36} {:<9} ", "float against double after", "");
      for (const std::int64_t t : points_) fmt::print(" {:>8}", short_number(t));
      fmt::print("  {:>7}\n", "bound");
    }
    header_ = true;
    fmt::print("{:<36} {:<9} ", line.layer, to_string(line.form));
    for (const double error : line.error) fmt::print(" {:>8.1e}", error);
    fmt::print("  {:>7.0e}  {}{}{}\n", line.bound, line.passed ? "ok" : "FAILED", line.note.empty() ? "" : "  ",
               line.note);
    std::fflush(stdout);
  }
  int finish() {
    if (options_.json) fmt::print("{}\n", list_.dump());
    else fmt::print("{} passed, {} failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  const CheckOptions& options_;
  std::vector<std::int64_t> points_;
  Json list_ = Json::array();
  bool header_ = false;
  std::size_t passed_ = 0, failed_ = 0;
};

struct Pair {  // the same form in both types
  Form form;
  Stream<float> single;
  Stream<double> twice;
};

// False if interrupted.
bool check_one(const Subject& subject, const std::vector<std::int64_t>& points, Lines& lines, Progress& progress,
               double done, double total) {
  const std::int64_t tokens = points.back();
  const Plan plan = plan_of(subject.text, Type::f64);
  std::vector<Pair> pairs;
  for (const Form form : {Form::recurrent, Form::chunk})
    if (std::find(plan.forms().begin(), plan.forms().end(), form) != plan.forms().end())
      pairs.push_back({form, Stream<float>(subject.text, form, points), Stream<double>(subject.text, form, points)});
  for (std::int64_t begin = 0, piece = 1; begin < tokens; begin += piece_tokens, ++piece) {
    if (interrupted()) return false;
    progress.update(done + static_cast<double>(begin) / static_cast<double>(tokens), total, subject.label);
    const std::int64_t length = std::min(piece_tokens, tokens - begin);
    NamedNumbers inputs;
    for (std::size_t i = 0; i < plan.inputs().size(); ++i) {
      const InputInfo& info = plan.inputs()[i];
      const bool parameter = !info.shape.starts_with("B");  // the same for all tokens
      inputs[info.name] =
          random_input(plan, info, length, static_cast<std::uint64_t>(parameter ? 0 : piece) * 100 + i);
    }
    for (const Tied& tie : tied)
      if (subject.info->name == tie.layer) {
        const Numbers& from = inputs.at(tie.from);
        std::transform(from.begin(), from.end(), inputs.at(tie.input).begin(),
                       [&](double x) { return tie.factor * x; });
      }
    for (Pair& pair : pairs) pair.single.run(inputs, begin, length), pair.twice.run(inputs, begin, length);
  }
  const bool learner = std::find(std::begin(learners), std::end(learners), subject.info->name) != std::end(learners);
  std::size_t compared = points.size() - 1;
  while (learner && points[compared] > learners_part) --compared;
  for (const Pair& pair : pairs) {
    Line line{subject.label, pair.form, {}, subject.bound, false, {}};
    for (std::size_t i = 0; i < points.size(); ++i)
      line.error.push_back(relative_error(pair.single.last[i], pair.twice.last[i]));
    if (pair.single.first_bad >= 0) line.note = fmt::format("not finite in float at token {}", pair.single.first_bad);
    if (pair.twice.first_bad >= 0) line.note = fmt::format("not finite in double at token {}", pair.twice.first_bad);
    line.passed = line.note.empty() && line.error[compared] <= line.bound;
    if (compared + 1 < points.size() && line.note.empty())
      line.note = fmt::format("compared at {}: a network that never forgets", short_number(points[compared]));
    lines.add(line);
  }
  return true;
}

}  // namespace

int run_check_long(const CheckOptions& options) {
  if (options.tokens < fewest || options.tokens > most)
    throw Error(fmt::format("--tokens is {}; it can be {} to {}", options.tokens, fewest, most), "command line");
  InterruptGuard guard;
  std::vector<Subject> subjects;
  for (const std::string& text : options.what) subjects.push_back(wanted_subject(text, options.tokens));
  if (options.what.empty())
    for (const LayerInfo& info : layers())
      if (const auto subject = standard_subject(info, options.tokens)) subjects.push_back(*subject);
  if (options.list) {
    for (const Subject& subject : subjects) fmt::print("{}\n", subject.info->name);
    return 0;
  }
  const std::vector<std::int64_t> points = points_of(options.tokens);
  Lines lines(options, points);
  // On a terminal the lines themselves show the progress.
  Progress progress("check --long", options.json || options.quiet || isatty(STDOUT_FILENO) == 0);
  for (std::size_t i = 0; i < subjects.size(); ++i)
    if (!check_one(subjects[i], points, lines, progress, static_cast<double>(i),
                   static_cast<double>(subjects.size()))) {
      progress.finish();
      tell("ttr: interrupted; the lines above are complete\n");
      lines.finish();
      return 128 + interrupted();
    }
  progress.finish();
  return lines.finish();
}

}  // namespace ttr::cli
