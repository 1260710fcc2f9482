#include "interval.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "ttr/recipe.h"
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

/// P(|T| > t) of Student's t
double student_tail(double t, double degrees) {
  const double a = degrees / 2, b = 0.5, x = degrees / (degrees + t * t), rest = t * t / (degrees + t * t);
  return x < (a + 1) / (a + b + 2) ? beta_fraction(a, b, x, rest) : 1 - beta_fraction(b, a, rest, x);
}

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

/// The number of a term such as decay(0.98), if that is all it says.
double only_number(const Term& term, const std::string& name) {
  if (term.arguments.size() == 1 && term.arguments[0].key.empty() && term.arguments[0].is_number())
    return term.arguments[0].number();
  refuse(name, fmt::format("'{}' in its weights is not one constant", term.word));
}

double constant(const Term& term, const char* key, double otherwise, const std::string& name) {
  const Argument* argument = term.find(key);
  if (!argument) return otherwise;
  if (!argument->is_number()) refuse(name, fmt::format("its {} is not one constant", key));
  return argument->number();
}

double dot(std::size_t n, const double* a, const double* b) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
void axpy(std::size_t n, double factor, const double* from, double* to) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

}  // namespace

ErrorVariance::ErrorVariance(const Plan& plan, const std::string& name, std::int64_t ahead)
    : plan_(plan),
      name_(name),
      K_(static_cast<std::size_t>(plan.shape().key_dim)),
      ahead_(static_cast<double>(ahead)),
      x_(K_),
      k_(K_),
      y_(K_) {
  const Recipe& recipe = plan.recipe();
  if (recipe.memory.word != "linear")
    refuse(name, fmt::format("its memory is '{}', which is not linear in fixed features", recipe.memory.word));
  if (!recipe.memory.arguments.empty()) refuse(name, "its memory is linear in features, not in the keys themselves");
  for (const Term& extra : recipe.extras) {
    if (extra.word == "keys") norm_ = extra.has("unit") ? Norm::unit : Norm::rms;
    else if (extra.word != "squared") refuse(name, fmt::format("'{}' changes what it answers", extra.word));
  }
  read_solver(recipe);
  if (kind_ != Kind::filter) read_weights(recipe);
  fade_ = std::pow(forgetting_, ahead_);
  const auto states = plan_.states();
  for (const char* needed : kind_ == Kind::sums       ? std::vector{"H"}
                            : kind_ == Kind::triangle ? std::vector{"R", "basis"}
                                                      : std::vector{"P"})
    if (std::none_of(states.begin(), states.end(), [&](const StateInfo& s) { return s.name == needed; }))
      refuse(name, fmt::format("it runs in the kernel {}, which keeps pairs instead", plan_.kernel()));
  work_.resize(kind_ == Kind::sums ? K_ * K_ : K_);
}

void ErrorVariance::read_weights(const Recipe& recipe) {
  for (const Term& term : recipe.weights) {
    if (term.word == "decay") forgetting_ = only_number(term, name_);
    else if (term.word == "window") window_ = static_cast<std::int64_t>(only_number(term, name_));
    else if (term.word != "equal" || !term.arguments.empty())
      refuse(name_, fmt::format("'{}' weighs its pairs for each query or token anew", term.word));
  }
}

void ErrorVariance::read_solver(const Recipe& recipe) {
  const Term& solver = recipe.solver;
  if (solver.word == "kalman") {
    kind_ = Kind::filter;
    process_ = constant(solver, "process", 0, name_), noise_ = constant(solver, "noise", 1, name_);
    left_.assign(K_ * K_, 0.0);
    for (std::size_t i = 0; i < K_; ++i) left_[i * K_ + i] = 1;
    return;
  }
  if (solver.word != "exact") refuse(name_, fmt::format("its solver is '{}', which keeps none", solver.word));
  ridge_ = constant(solver, "ridge", 0, name_);
  if (solver.has("relative") || solver.has("frobenius")) refuse(name_, "its ridge changes with the data");
  kind_ = ridge_ > 0 && !solver.has("fading") ? Kind::sums : Kind::triangle;
  prior_ = ridge_;
}

void ErrorVariance::normalise(const double* from, double scale, std::vector<double>& to) const {
  double factor = scale;
  if (norm_ != Norm::raw) {
    const double square = dot(K_, from, from) / (norm_ == Norm::rms ? static_cast<double>(K_) : 1);
    factor = square == 0 ? 0 : scale / std::sqrt(square);
  }
  for (std::size_t i = 0; i < K_; ++i) to[i] = factor * from[i];
}

const double* ErrorVariance::part(State state, const char* name) const {
  return static_cast<const double*>(plan_.state_tensor(state, name).data);
}

Uncertainty ErrorVariance::after_step(State state, const double* key, const double* query) {
  normalise(query, plan_.scale(), x_);
  Uncertainty u;
  switch (kind_) {
    case Kind::sums:
      u = from_sums(state);
      break;
    case Kind::triangle:
      prior_ *= forgetting_;
      u = from_triangle(state);
      break;
    case Kind::filter:
      normalise(key, 1, k_);
      u = from_filter(state);
      break;
  }
  if (!(u.variance < infinity)) return {};
  u.share = std::clamp(u.share, 0.0, 1.0);
  return u;
}

// Cholesky in rows, A = U'U.
Uncertainty ErrorVariance::from_sums(State state) {
  const double* h = part(state, "H");
  double* const u = work_.data();
  for (std::size_t i = 0; i < K_; ++i) {
    for (std::size_t j = i; j < K_; ++j) u[i * K_ + j] = fade_ * h[i * K_ + j];
    u[i * K_ + i] += ridge_;
  }
  y_ = x_;
  double leverage = 0;
  for (std::size_t i = 0; i < K_; ++i) {
    double* const row = u + i * K_;
    if (!(row[i] > 0)) return {};  // lost in rounding: nothing is known there
    const double inverse = 1 / std::sqrt(row[i]);
    for (std::size_t j = i; j < K_; ++j) row[j] *= inverse;
    for (std::size_t r = i + 1; r < K_; ++r) axpy(K_ - r, -row[r], row + r, u + r * K_ + r);
    y_[i] /= row[i];
    leverage += y_[i] * y_[i];
    axpy(K_ - i - 1, -y_[i], row + i + 1, y_.data() + i + 1);
  }
  for (std::size_t i = K_; i-- > 0;)
    y_[i] = (y_[i] - dot(K_ - i - 1, u + i * K_ + i + 1, y_.data() + i + 1)) / u[i * K_ + i];
  return {1 + leverage, 1 - ridge_ * dot(K_, y_.data(), y_.data()) / (1 + leverage)};
}

Uncertainty ErrorVariance::from_triangle(State state) {
  const double *const r = part(state, "R"), *const basis = part(state, "basis");
  std::size_t rank = 0;
  while (rank < K_ && std::any_of(basis + rank * K_, basis + (rank + 1) * K_, [](double b) { return b != 0; }))
    ++rank;
  // Coordinates in the span of the keys, twice for the rounding of the first time; what is left is outside of it.
  double* const outside = work_.data();
  std::copy_n(x_.data(), K_, outside);
  std::fill(y_.begin(), y_.end(), 0.0);
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < rank; ++i) {
      const double along = dot(K_, basis + i * K_, outside);
      y_[i] += along;
      axpy(K_, -along, basis + i * K_, outside);
    }
  // The kernel's own threshold for a new direction (families/solve/givens/givens.h).
  const double cut = 100 * std::numeric_limits<double>::epsilon();
  if (!(dot(K_, outside, outside) <= cut * cut * dot(K_, x_.data(), x_.data()))) return {};
  double leverage = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const double pivot = r[i * K_ + i];
    y_[i] = pivot == 0 ? 0 : y_[i] / pivot;
    leverage += y_[i] * y_[i];
    axpy(rank - i - 1, -y_[i], r + i * K_ + i + 1, y_.data() + i + 1);
  }
  const double c = 1 + leverage / fade_;
  if (ridge_ == 0) return {c, 1};
  for (std::size_t i = rank; i-- > 0;) {
    const double pivot = r[i * K_ + i];
    const double sum = y_[i] - dot(rank - i - 1, r + i * K_ + i + 1, y_.data() + i + 1);
    y_[i] = pivot == 0 ? 0 : sum / pivot;
  }
  return {c, 1 - prior_ / fade_ * dot(rank, y_.data(), y_.data()) / c};
}

Uncertainty ErrorVariance::from_filter(State state) {
  const double* p = part(state, "P");
  double* const row = work_.data();
  // M <- (I - gain k') M with gain = P k / noise, where P is the covariance after the step.
  std::fill_n(row, K_, 0.0);
  for (std::size_t i = 0; i < K_; ++i) axpy(K_, k_[i], left_.data() + i * K_, row);
  for (std::size_t i = 0; i < K_; ++i) axpy(K_, -dot(K_, p + i * K_, k_.data()) / noise_, row, left_.data() + i * K_);
  std::fill_n(row, K_, 0.0);
  double square = 0;
  for (std::size_t i = 0; i < K_; ++i) {
    square += x_[i] * dot(K_, p + i * K_, x_.data());
    axpy(K_, x_[i], left_.data() + i * K_, row);
  }
  const double c = noise_ + square + ahead_ * process_ * dot(K_, x_.data(), x_.data());
  return {c, 1 - dot(K_, row, row) / c};
}

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
    if (age > 0) axpy(width_, 1, to - width_, to);
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
  axpy(width_, 1, entry, sum_.data());
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
  axpy(width_, 1, sum_.data(), total_.data());
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

Coverage::Tally& Coverage::Tally::operator+=(const Tally& other) {
  inside += other.inside, finite += other.finite, none += other.none, width += other.width;
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
      coverage_(values),
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
  object.set("mean_width", tally.mean_width());
}

}  // namespace ttr::cli
