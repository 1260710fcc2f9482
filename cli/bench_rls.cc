// `ttr bench rls-stability`: the least-squares solvers over long streams, in float, against a literal solution.
//
//   well   k ~ N(0, I)                               cond   k = Q diag(1 .. 1e-3) z: the covariance has condition 1e6
//   wind   k ~ N(0, I), but in 8 dimensions in the middle three fifths of the stream: what is not excited fades, and
//          then all of it returns
//
// Queries are drawn like the keys, values are v = W'k + noise. The error of a token is max |o - o*| over
// max(|o*|, rms of all o*). Every 97th token is compared, and all of the first 3 K of the stream and after each change;
// all outputs must be finite. Recovery: tokens from the return of the excitation until the error stays below the
// target.
//
// The first 3 K tokens, and the first 3 K after the return, have columns of their own: without a ridge, when there are
// about as many pairs as dimensions, the condition of a few random keys has no bound, and the answer is no better
// known than its inputs times that condition.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "bench.h"
#include "bench_reference.h"
#include "json.h"
#include "progress.h"
#include "regress_parts.h"
#include "standard_files.h"
#include "switching_process.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr int value_dim = 4, piece_tokens = 1000, stride_tokens = 97;
constexpr double target = 1e-5;

enum class Keys { well, cond, wind };
constexpr const char* key_names[] = {"well", "cond 1e6", "wind-up"};

class KeyStream {
 public:
  KeyStream(Keys keys, const StabilityOptions& options)
      : keys_(keys),
        K_(static_cast<std::size_t>(options.dim)),
        steps_(options.steps),
        random_(options.seed),
        basis_(K_ * K_),
        map_(K_ * value_dim) {
    for (double& x : map_) x = random_.normal() / std::sqrt(static_cast<double>(K_));
    for (double& x : basis_) x = random_.normal();
    for (int pass = 0; pass < 2; ++pass)  // rows by Gram-Schmidt, twice
      for (std::size_t i = 0; i < K_; ++i) {
        double* row = &basis_[i * K_];
        for (std::size_t j = 0; j < i; ++j) {
          double dot = 0;
          for (std::size_t c = 0; c < K_; ++c) dot += row[c] * basis_[j * K_ + c];
          for (std::size_t c = 0; c < K_; ++c) row[c] -= dot * basis_[j * K_ + c];
        }
        double square = 0;
        for (std::size_t c = 0; c < K_; ++c) square += row[c] * row[c];
        for (std::size_t c = 0; c < K_; ++c) row[c] /= std::sqrt(square);
      }
  }

  std::int64_t confined_from() const { return steps_ / 5; }
  std::int64_t confined_to() const { return steps_ / 5 * 4; }
  std::size_t confined_dims() const { return std::min<std::size_t>(8, std::max<std::size_t>(1, K_ / 2)); }

  /// The next token; all numbers are exact in float.
  void next(double* q, double* k, double* v) {
    draw(k), draw(q);
    for (int j = 0; j < value_dim; ++j) {
      double sum = 0.1 * random_.normal();
      for (std::size_t c = 0; c < K_; ++c) sum += map_[c * value_dim + static_cast<std::size_t>(j)] * k[c];
      v[j] = static_cast<float>(sum);
    }
    ++token_;
  }

 private:
  void draw(double* x) {
    const bool confined = keys_ == Keys::wind && token_ >= confined_from() && token_ < confined_to();
    const std::size_t dims = confined ? confined_dims() : K_;
    std::fill_n(x, K_, 0.0);
    for (std::size_t i = 0; i < dims; ++i) {
      const double spread = K_ > 1 ? static_cast<double>(i) / static_cast<double>(K_ - 1) : 0;
      const double z = random_.normal() * (keys_ == Keys::cond ? std::pow(10.0, -3 * spread) : 1.0);
      for (std::size_t c = 0; c < K_; ++c) x[c] += z * basis_[i * K_ + c];
    }
    for (std::size_t c = 0; c < K_; ++c) x[c] = static_cast<float>(x[c]);
  }

  Keys keys_;
  std::size_t K_;
  std::int64_t steps_, token_ = 0;
  Random random_;
  std::vector<double> basis_, map_;
};

struct Solver {
  std::string text;  // layer and settings, or a recipe
  LeastSquaresProblem problem;
  bool forgets = true;  // whether it has a gamma
};

std::vector<Solver> solvers(double gamma, int dim) {
  using Ridge = LeastSquaresProblem::Ridge;
  const double root = std::sqrt(static_cast<double>(dim));
  const int window = 4 * dim;
  std::vector<Solver> list = {
      {fmt::format("rls:ridge=0.001,decay={}", gamma), {Ridge::constant, gamma, 1e-3, 0, 1}},
      {fmt::format("rls:decay={}", gamma), {Ridge::none, gamma, 0, 0, 1}},
      {fmt::format("decay({}) / linear / exact(ridge=0.001, fading)", gamma), {Ridge::fading, gamma, 1e-3, 0, 1}},
      {fmt::format("mesanet:ridge=0.25,decay={}", gamma), {Ridge::constant, gamma, 0.25, 0, 1}},
      {"gated-kalmanet", {Ridge::frobenius, gamma, 0.02, 0, 1 / root}}};
  if (gamma == 1) {
    list.push_back({"kalman:process=0,noise=1", {Ridge::constant, 1, 1, 0, 1}, false});
    list.push_back({fmt::format("window-rls:window={},ridge=0.001", window),
                    {Ridge::constant, 1, 1e-3, static_cast<std::size_t>(window), 1},
                    false});
  }
  return list;
}

struct Row {
  Keys keys;
  std::optional<double> gamma;
  std::string solver, kernel;
  double start = 0, error = 0, confined = 0, returned = 0;
  std::int64_t recovery = 0, not_finite = 0, learning = 0;
  bool passed() const { return not_finite == 0 && error <= target && recovery <= learning; }
};

// A float plan of one head with its state, fed in pieces.
class FloatLayer {
 public:
  FloatLayer(const std::string& text, int dim, double gamma)
      : plan_(plan(text, {1, 1, 0, dim, value_dim}, {})), work_(plan_.footprint(piece_tokens).workspace) {
    state_ = Buffer(plan_.footprint(piece_tokens).state);
    if (plan_.reset({state_.data(), state_.size()}) != Status::ok)
      throw Error("the state of " + plan_.name() + " cannot be reset");
    gate_.assign(piece_tokens, static_cast<float>(std::log(gamma))), one_.assign(piece_tokens, 1.0f);
  }

  std::string kernel() const { return plan_.kernel(); }

  void run(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
           std::vector<float>& o, std::int64_t tokens) {
    Inputs in;
    Outputs out;
    const std::int64_t K = plan_.shape().key_dim;
    for (const InputInfo& info : plan_.inputs()) {
      if (info.name == "q") in["q"] = view(q.data(), 1, tokens, 1, K);
      else if (info.name == "k") in["k"] = view(k.data(), 1, tokens, 1, K);
      else if (info.name == "v") in["v"] = view(v.data(), 1, tokens, 1, value_dim);
      else if (info.name == "g" || info.name == "gk") in[info.name] = view(gate_.data(), 1, tokens, 1);
      else if (info.name == "beta" || info.name == "alpha") in[info.name] = view(one_.data(), 1, tokens, 1);
      else throw Error("rls-stability does not know the input " + info.name + " of " + plan_.name());
    }
    out["o"] = view(o.data(), 1, tokens, 1, value_dim);
    const State state{state_.data(), state_.size()};
    const Workspace work{work_.data(), work_.size()};
    const Status status = plan_.forward(in, state, out, work, Form::recurrent);
    if (status != Status::ok)
      throw Error(plan_.name() + ": " + plan_.diagnose(in, state, out, work, Form::recurrent));
  }

 private:
  Plan plan_;
  Buffer work_, state_;
  std::vector<float> gate_, one_;
};

class Comparison {
 public:
  Comparison(Keys keys, double gamma, const Solver& solver, const StabilityOptions& options)
      : options_(options),
        stream_(keys, options),
        layer_(solver.text, options.dim, gamma),
        reference_(solver.problem, static_cast<std::size_t>(options.dim), value_dim) {
    row_.keys = keys, row_.solver = solver.text, row_.kernel = layer_.kernel(), row_.learning = 3 * options.dim;
    if (solver.forgets) row_.gamma = gamma;
  }

  /// False if interrupted.
  bool run(Progress& progress, double done, double total) {
    const auto K = static_cast<std::size_t>(options_.dim);
    std::vector<double> q(K), k(K), v(value_dim), expected(value_dim);
    std::vector<float> qs(piece_tokens * K), ks(qs), vs(piece_tokens * value_dim), os(vs);
    std::vector<std::pair<std::size_t, std::vector<double>>> compared;  // token of the piece, the literal answer
    for (std::int64_t begin = 0; begin < options_.steps; begin += piece_tokens) {
      if (interrupted()) return false;
      progress.update(done + static_cast<double>(begin) / static_cast<double>(options_.steps), total, row_.solver);
      const std::int64_t tokens = std::min<std::int64_t>(piece_tokens, options_.steps - begin);
      compared.clear();
      for (std::int64_t i = 0; i < tokens; ++i) {
        const auto t = static_cast<std::size_t>(i);
        stream_.next(q.data(), k.data(), v.data());
        std::copy(q.begin(), q.end(), qs.begin() + i * options_.dim);
        std::copy(k.begin(), k.end(), ks.begin() + i * options_.dim);
        std::copy(v.begin(), v.end(), vs.begin() + i * value_dim);
        reference_.add(k.data(), v.data());
        if (!is_compared(begin + i)) continue;
        reference_.answer(q.data(), expected.data());
        compared.push_back({t, expected});
      }
      layer_.run(qs, ks, vs, os, tokens);
      row_.not_finite +=
          std::count_if(os.begin(), os.begin() + tokens * value_dim, [](float x) { return !std::isfinite(x); });
      for (const auto& [t, answer] : compared) {
        Point p{begin + static_cast<std::int64_t>(t), 0, 0};
        for (std::size_t j = 0; j < value_dim; ++j) {
          const double difference = std::abs(static_cast<double>(os[t * value_dim + j]) - answer[j]);
          p.difference = std::isfinite(difference) ? std::max(p.difference, difference) : INFINITY;
          p.size = std::max(p.size, std::abs(answer[j])), squares_ += answer[j] * answer[j];
        }
        points_.push_back(p);
      }
    }
    return true;
  }

  Row result() {
    const double rms = std::sqrt(squares_ / (static_cast<double>(points_.size()) * value_dim));
    std::int64_t last_bad = stream_.confined_to() - 1;
    for (const Point& p : points_) {
      const double error = p.difference == 0 ? 0 : p.difference / std::max(p.size, rms);
      const auto larger = [&](double& of) { of = std::max(of, error); };
      const bool wind = row_.keys == Keys::wind, confined = wind && in_confined(p.token),
                 returned = wind && p.token >= stream_.confined_to();
      if (p.token < row_.learning) larger(row_.start);
      else if (!returned || p.token >= stream_.confined_to() + row_.learning) larger(row_.error);
      if (confined) larger(row_.confined);
      if (returned) larger(row_.returned);
      if (returned && !(error <= target)) last_bad = p.token;
    }
    if (row_.keys == Keys::wind) row_.recovery = last_bad + 1 - stream_.confined_to();
    return row_;
  }

 private:
  struct Point {
    std::int64_t token;
    double difference, size;
  };

  bool in_confined(std::int64_t t) const { return t >= stream_.confined_from() && t < stream_.confined_to(); }
  bool is_compared(std::int64_t t) const {
    const auto just_after = [&](std::int64_t from) { return t >= from && t < from + row_.learning; };
    return t % stride_tokens == 0 || t == options_.steps - 1 || just_after(0) ||
           (row_.keys == Keys::wind && (just_after(stream_.confined_from()) || just_after(stream_.confined_to())));
  }

  const StabilityOptions& options_;
  KeyStream stream_;
  FloatLayer layer_;
  LeastSquaresReference reference_;
  Row row_;
  std::vector<Point> points_;
  double squares_ = 0;
};

Json json_of(const Row& row) {
  Json j = Json::object();
  j.set("keys", key_names[static_cast<int>(row.keys)]).set("gamma", row.gamma ? Json(*row.gamma) : Json());
  j.set("layer", row.solver).set("kernel", row.kernel).set("dtype", "f32");
  j.set("start_error", row.start).set("max_error", row.error);
  const bool wind = row.keys == Keys::wind;
  j.set("confined_error", wind ? Json(row.confined) : Json());
  j.set("returned_error", wind ? Json(row.returned) : Json());
  j.set("recovery_steps", wind ? Json(row.recovery) : Json());
  return j.set("not_finite", row.not_finite).set("passed", row.passed());
}

std::string error_text(double error) { return fmt::format("{:.1e}", error); }

void print(const std::vector<Row>& rows) {
  TextTable table({"solver (float plan)", "kernel", "keys", "gamma", "start", "max error", "confined", "returned",
                   "recovery", "Inf/NaN", ""});
  for (const Row& row : rows) {
    const bool wind = row.keys == Keys::wind;
    table.row({row.solver, row.kernel, key_names[static_cast<int>(row.keys)],
               row.gamma ? fmt::format("{}", *row.gamma) : "-", error_text(row.start), error_text(row.error),
               wind ? error_text(row.confined) : "-", wind ? error_text(row.returned) : "-",
               wind ? fmt::format("{}", row.recovery) : "-", fmt::format("{}", row.not_finite),
               row.passed() ? "ok" : "FAILED"});
  }
  fmt::print("{}", table.text());
}

}  // namespace

int run_bench_stability(const StabilityOptions& options) {
  if (options.steps < 1000 || options.steps > 100'000'000)
    throw Error(fmt::format("--steps is {}; it can be 1000 to 100000000", options.steps), "command line");
  if (options.dim < 2 || options.dim > 256)
    throw Error(fmt::format("--dim is {}; it can be 2 to 256", options.dim), "command line");
  InterruptGuard guard;
  struct Job {
    Keys keys;
    double gamma;
    Solver solver;
  };
  std::vector<Job> jobs;
  for (const Keys keys : {Keys::well, Keys::cond, Keys::wind})
    for (const double gamma : {0.99, 0.999, 1.0})
      for (const Solver& solver : solvers(gamma, options.dim)) jobs.push_back({keys, gamma, solver});
  std::vector<Row> rows;
  Progress progress("bench rls-stability", true);
  for (const Job& job : jobs) {
    Comparison comparison(job.keys, job.gamma, job.solver, options);
    if (!comparison.run(progress, static_cast<double>(rows.size()), static_cast<double>(jobs.size()))) break;
    rows.push_back(comparison.result());
  }
  progress.finish();
  const bool all = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.passed(); });
  if (options.json) {
    Json list = Json::array();
    for (const Row& row : rows) list.push(json_of(row));
    Json j = Json::object();
    j.set("steps", options.steps).set("d_key", options.dim).set("d_value", value_dim);
    j.set("seed", static_cast<std::int64_t>(options.seed)).set("target", target).set("rows", list);
    fmt::print("{}\n", j.dump());
  } else {
    print(rows);
    fmt::print(
        "{} tokens, K = {}, V = {}, seed {}; errors against a literal solution, target {:.0e}; start: the first {} "
        "tokens\n",
        options.steps, options.dim, value_dim, options.seed, target, 3 * options.dim);
  }
  if (rows.size() < jobs.size()) {
    tell("ttr: interrupted after {} of {} rows; those above are complete\n", rows.size(), jobs.size());
    return 128 + interrupted();
  }
  return all ? 0 : 1;
}

}  // namespace ttr::cli
