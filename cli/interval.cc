#include "interval.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The regularised incomplete beta function I_x(a, b) by its continued fraction (Lentz); 1 - x is given as well, since
/// one of the two is small. Good where x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x, double rest) {
  constexpr double tiny = 1e-300;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log(rest)) / a;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < tiny ? tiny : d);
  double value = d;
  for (int m = 1; m < 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    for (double term : {even, odd}) {
      d = 1 + term * d, c = 1 + term / c;
      d = 1 / (std::abs(d) < tiny ? tiny : d), c = std::abs(c) < tiny ? tiny : c;
      value *= d * c;
    }
    if (std::abs(d * c - 1) < 1e-16) break;
  }
  return front * value;
}

}  // namespace

double student_tail(double t, double degrees) {
  const double a = degrees / 2, b = 0.5, x = degrees / (degrees + t * t), rest = t * t / (degrees + t * t);
  return x < (a + 1) / (a + b + 2) ? beta_fraction(a, b, x, rest) : 1 - beta_fraction(b, a, rest, x);
}

namespace {

/// The density of |T|
double student_density(double t, double degrees) {
  return 2 *
         std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2) -
                  (degrees + 1) / 2 * std::log1p(t * t / degrees)) /
         std::sqrt(degrees * std::numbers::pi);
}

/// The t at which a tail is `wanted`. Newton on the logarithms of both: that of a tail is concave in log t for the
/// normal and for Student's t, so from above the steps come down to the root and cannot pass it; they end where rounding
/// turns them round. From below they overshoot, at most by `far` in log t, or a tail would underflow.
template <class Tail, class Density>
double solve_tail(double wanted, Tail tail, Density density) {
  constexpr double far = 0.5;
  double log_t = 0;
  bool above = false;
  for (int i = 0; i < 2000; ++i) {
    const double t = std::exp(log_t), p = tail(t);
    const double step = p * (std::log(p) - std::log(wanted)) / (t * density(t));
    if (above && step > -1e-15) break;
    above = step <= 0;
    log_t += std::min(step, far);
  }
  return std::exp(log_t);
}

}  // namespace

double student_quantile(double level, double degrees) {
  const double wanted = 1 - level;
  if (degrees < 1000)
    return solve_tail(
        wanted, [&](double t) { return student_tail(t, degrees); },
        [&](double t) { return student_density(t, degrees); });
  const double z = solve_tail(
      wanted, [](double t) { return std::erfc(t / std::numbers::sqrt2); },
      [](double t) { return std::sqrt(2 / std::numbers::pi) * std::exp(-t * t / 2); });
  // Around the normal; Abramowitz and Stegun 26.7.5. The next term is below 1e-12 of t at 1000 degrees and level 0.999.
  const double z2 = z * z, n = 1 / degrees;
  const double first = (z2 + 1) / 4, second = ((5 * z2 + 16) * z2 + 3) / 96;
  const double third = (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
  const double fourth = ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160;
  return z * (1 + n * (first + n * (second + n * (third + n * fourth))));
}

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(fmt::format("--interval needs the covariance of the layer, and '{}' has none: {}; rls, window-rls, "
                          "mesanet and kalman have one, and the recipes 'equal / linear / exact', with decay(a) or "
                          "window(W) for equal and a constant or fading ridge, and '... / linear / kalman'",
                          name, why),
              "--layer");
}

bool has_output(const Plan& plan, std::string_view name) {
  const auto outputs = plan.outputs();
  return std::any_of(outputs.begin(), outputs.end(), [&](const InputInfo& info) { return info.name == name; });
}

std::vector<double> numbers_for(std::size_t bytes) { return std::vector<double>(bytes / sizeof(double) + 1); }
std::size_t bytes_of(const std::vector<double>& numbers) { return numbers.size() * sizeof(double); }

void expect_ok(const std::string& name, Status status) {
  if (status != Status::ok)
    throw Error(fmt::format("the layer '{}' cannot go on: {}", name, to_string(status)), "--layer");
}

}  // namespace

ErrorVariance::ErrorVariance(const Plan& plan, const std::string& name, std::int64_t ahead,
                             const std::optional<RenewedRidge>& renewed)
    : plan_(plan), name_(name), ahead_(ahead), renewed_(renewed) {
  if (!has_output(plan_, "variance"))
    refuse(name, fmt::format("its kernel {} gives no variance of its answers", plan_.kernel()));
  const std::optional<Forgetting> forgetting = plan_.forgetting();
  if (!forgetting) refuse(name, "it weighs its pairs for each query or token anew");
  forgetting_ = *forgetting;
  if (renewed_) forgetting_.factor = renewed_->decay();
  const std::int64_t empty = std::max<std::int64_t>(ahead_ - 1, 1);
  const int K = plan_.shape().key_dim;
  work_ = numbers_for(std::max(plan_.footprint(empty).workspace, renewed_ ? renewed_->workspace(plan_) : 0));
  zeros_.assign(static_cast<std::size_t>(empty) * static_cast<std::size_t>(std::max(K, plan_.shape().value_dim)),
                0.0);
  if (has_output(plan_, "known")) return;
  Shape shape;
  shape.key_dim = shape.value_dim = K;
  Options options;
  options.type = Type::f64;
  Filter& filter = filter_.emplace(Filter{ttr::plan(plan_.recipe(), shape, options), {}, {}, {}, {}});
  const Footprint bytes = filter.plan.footprint(1, Form::step);
  filter.state = numbers_for(bytes.state), filter.work = numbers_for(bytes.workspace);
  filter.zeros.assign(static_cast<std::size_t>(K), 0.0), filter.answer = filter.zeros;
  const State state{filter.state.data(), bytes_of(filter.state)};
  expect_ok(name_, filter.plan.reset(state));
  auto* const mean = static_cast<double*>(filter.plan.state_tensor(state, "S").data);
  const auto* const covariance = static_cast<const double*>(filter.plan.state_tensor(state, "P").data);
  if (!mean || !covariance) refuse(name, "it does not say what it knows without its first guess");
  for (int i = 0; i < K; ++i) mean[i * (K + 1)] = std::sqrt(covariance[i * (K + 1)]);
}

void ErrorVariance::ask(Outputs& outputs) {
  if (window() == 0 || forgetting() != 1) return;  // a forecast will tell
  outputs["variance"] = view(&variance_, 1, 1, 1);
  outputs["known"] = view(&known_, 1, 1, 1);
}

// The layer's answer after `ahead` empty pairs, on a copy of its state.
void ErrorVariance::forecast(ConstState state, const double* query) {
  const int K = plan_.shape().key_dim, V = plan_.shape().value_dim;
  const auto* const from = static_cast<const double*>(state.data);
  copy_.assign(from, from + state.bytes / sizeof(double));
  const State copy{copy_.data(), bytes_of(copy_)};
  const Workspace work{work_.data(), bytes_of(work_)};
  const auto inputs = [&](std::int64_t pairs, const double* q) {
    Inputs in;
    in["q"] = view(q, 1, pairs, 1, K);
    in["k"] = view(std::as_const(zeros_).data(), 1, pairs, 1, K);
    in["v"] = view(std::as_const(zeros_).data(), 1, pairs, 1, V);
    return in;
  };
  for (std::int64_t m = 1; renewed_ && m <= ahead_; ++m) {
    expect_ok(name_, renewed_->begin_row(plan_, copy, work));
    if (m < ahead_) expect_ok(name_, plan_.step(inputs(1, zeros_.data()), copy, {}, work));
  }
  if (ahead_ > 1 && !renewed_) expect_ok(name_, plan_.forward(inputs(ahead_ - 1, zeros_.data()), copy, {}, work));
  Outputs out;
  out["variance"] = view(&variance_, 1, 1, 1);
  if (!filter_) out["known"] = view(&known_, 1, 1, 1);
  expect_ok(name_, plan_.step(inputs(1, query), copy, out, work));
}

// |M'x|^2
double ErrorVariance::left_of_prior(const double* key, const double* query) {
  Filter& f = *filter_;
  const int K = plan_.shape().key_dim;
  Inputs in;
  Outputs out;
  in["q"] = view(query, 1, 1, 1, K), in["k"] = view(key, 1, 1, 1, K);
  in["v"] = view(std::as_const(f.zeros).data(), 1, 1, 1, K);
  out["o"] = view(f.answer.data(), 1, 1, 1, K);
  expect_ok(name_, f.plan.step(in, {f.state.data(), bytes_of(f.state)}, out, {f.work.data(), bytes_of(f.work)}));
  return std::inner_product(f.answer.begin(), f.answer.end(), f.answer.begin(), 0.0);
}

Uncertainty ErrorVariance::after_step(ConstState state, const double* key, const double* query) {
  if (window() == 0 || forgetting() != 1) forecast(state, query);
  if (filter_) known_ = 1 - left_of_prior(key, query) / variance_;
  else if (known_ == 0) return {};
  if (!(variance_ < infinity)) return {};
  return {variance_, std::clamp(known_, 0.0, 1.0)};
}

namespace {

void add(std::size_t n, const double* from, double* to) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

NoiseEstimate::NoiseEstimate(int values, double forgetting, std::int64_t window)
    : width_(static_cast<std::size_t>(values) + 2),
      forgetting_(forgetting),
      window_(window),
      sum_(width_),
      total_(width_) {}

void NoiseEstimate::fade(double* sums, std::int64_t steps) const {
  if (forgetting_ == 1) return;
  const double factor = std::pow(forgetting_, static_cast<double>(steps));
  for (std::size_t i = 0; i < width_; ++i) sums[i] *= i == 1 ? factor * factor : factor;
}

void NoiseEstimate::turn_over() {
  older_sums_.assign(static_cast<std::size_t>(newer_) * width_, 0.0);
  for (std::int64_t age = 0; age < newer_; ++age) {
    double* const to = older_sums_.data() + static_cast<std::size_t>(age) * width_;
    std::copy_n(newer_entries_.data() + static_cast<std::size_t>(newer_ - 1 - age) * width_, width_, to);
    fade(to, age);
    if (age > 0) cli::add(width_, to - width_, to);
  }
  older_ = newer_, newer_ = since_ = 0;
  newer_entries_.clear();
  std::fill(sum_.begin(), sum_.end(), 0.0);
}

void NoiseEstimate::add(double share, const double* squares) {
  fade(sum_.data(), 1);
  const std::size_t at = newer_entries_.size();
  newer_entries_.resize(at + width_);
  double* const entry = newer_entries_.data() + at;
  entry[0] = entry[1] = share;
  for (std::size_t v = 2; v < width_; ++v) entry[v] = share > 0 ? share * squares[v - 2] : 0;
  cli::add(width_, entry, sum_.data());
  ++newer_, ++since_;
  if (window_ == 0) {
    newer_entries_.clear();
    total_ = sum_;
    return;
  }
  if (newer_ + older_ > window_) {
    if (older_ == 0) turn_over();
    --older_;
  }
  std::fill(total_.begin(), total_.end(), 0.0);
  if (older_ > 0) {
    std::copy_n(older_sums_.data() + static_cast<std::size_t>(older_ - 1) * width_, width_, total_.data());
    fade(total_.data(), since_);
  }
  cli::add(width_, sum_.data(), total_.data());
}

double NoiseEstimate::degrees() const { return total_[1] > 0 ? total_[0] * total_[0] / total_[1] : 0; }

double NoiseEstimate::variance(int value) const { return total_[static_cast<std::size_t>(value) + 2] / total_[0]; }

double Coverage::Tally::share() const {
  return finite > 0 ? static_cast<double>(inside) / static_cast<double>(finite)
                    : std::numeric_limits<double>::quiet_NaN();
}
double Coverage::Tally::mean_width() const {
  return finite > 0 ? width / static_cast<double>(finite) : std::numeric_limits<double>::quiet_NaN();
}

double Coverage::Tally::mean_pinball() const {
  return finite > 0 ? pinball / static_cast<double>(finite) : std::numeric_limits<double>::quiet_NaN();
}

Coverage::Tally& Coverage::Tally::operator+=(const Tally& other) {
  inside += other.inside, finite += other.finite, none += other.none, width += other.width, pinball += other.pinball;
  return *this;
}

void Coverage::add(const double* prediction, const double* half, const double* actual) {
  for (std::size_t v = 0; v < values.size(); ++v) {
    Tally& tally = values[v];
    if (!std::isfinite(prediction[v]) || !std::isfinite(half[v])) {
      ++tally.none;
      continue;
    }
    ++tally.finite;
    tally.width += 2 * half[v];
    if (std::abs(actual[v] - prediction[v]) <= half[v]) ++tally.inside;
    // The loss of a quantile q of order u is u (y - q) above it and (1 - u)(q - y) below.
    const double over = actual[v] - (prediction[v] - half[v]), under = prediction[v] + half[v] - actual[v];
    tally.pinball += (std::max(tail * over, (tail - 1) * over) + std::max(tail * under, (tail - 1) * under)) / 2;
  }
}

Coverage::Tally Coverage::all() const {
  Tally sum;
  for (const Tally& tally : values) sum += tally;
  return sum;
}

Intervals::Intervals(double level, int values, double forgetting, std::int64_t window)
    : level_(level),
      noise_(values, forgetting, window),
      coverage_(values, level),
      squares_(static_cast<std::size_t>(values)) {}

void Intervals::widths(const double* deviation, double* half) const {
  const double degrees = noise_.degrees();
  const double t = degrees >= 1 - 1e-9 ? student_quantile(level_, degrees) : infinity;
  for (std::size_t v = 0; v < squares_.size(); ++v)
    half[v] = t < infinity && deviation[v] < infinity
                  ? t * std::sqrt(noise_.variance(static_cast<int>(v))) * deviation[v]
                  : infinity;
}

void Intervals::add(const double* prediction, const double* deviation, double share, const double* half,
                    const double* actual) {
  coverage_.add(prediction, half, actual);
  for (std::size_t v = 0; v < squares_.size(); ++v) {
    const double z = (actual[v] - prediction[v]) / deviation[v];
    squares_[v] = z * z;
    if (std::isnan(squares_[v])) share = 0;  // the layer has left the numbers
  }
  noise_.add(share, squares_.data());
}

std::string coverage_text(double share, double level, std::int64_t rows) {
  if (rows == 0) return "-";
  return fmt::format("{:.4f} \u00b1 {:.4f}", share, std::sqrt(level * (1 - level) / static_cast<double>(rows)));
}

void coverage_fields(Json& object, const Coverage::Tally& tally) {
  object.set("coverage", tally.share()).set("finite", tally.finite).set("infinite", tally.none);
  object.set("mean_width", tally.mean_width()).set("pinball_loss", tally.mean_pinball());
}

}  // namespace ttr::cli
