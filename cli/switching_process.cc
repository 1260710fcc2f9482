#include "switching_process.h"

#include <bit>
#include <cmath>
#include <string>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::uint64_t splitmix64(std::uint64_t& x) {
  std::uint64_t z = (x += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// In place: the lower triangle of `a` [n, n] becomes its Cholesky factor, the upper one zero.
void cholesky(std::vector<double>& a, int n) {
  for (int j = 0; j < n; ++j) {
    double d = a[j * n + j];
    for (int p = 0; p < j; ++p) d -= a[j * n + p] * a[j * n + p];
    const double root = std::sqrt(d);
    a[j * n + j] = root;
    for (int i = j + 1; i < n; ++i) {
      double s = a[i * n + j];
      for (int p = 0; p < j; ++p) s -= a[i * n + p] * a[j * n + p];
      a[i * n + j] = s / root;
      a[j * n + i] = 0;
    }
  }
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t x = seed;
  x = splitmix64(x) ^ (stream * 0xd1342543de82ef95u);
  for (auto& word : s_) word = splitmix64(x);
}

std::uint64_t Random::bits() {
  const std::uint64_t result = std::rotl(s_[0] + s_[3], 23) + s_[0], t = s_[1] << 17;
  s_[2] ^= s_[0], s_[3] ^= s_[1], s_[1] ^= s_[2], s_[0] ^= s_[3], s_[2] ^= t;
  s_[3] = std::rotl(s_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double x, y, r;
  do {
    x = 2 * uniform() - 1, y = 2 * uniform() - 1;
    r = x * x + y * y;
  } while (r >= 1 || r == 0);
  const double f = std::sqrt(-2 * std::log(r) / r);
  spare_ = y * f, has_spare_ = true;
  return x * f;
}

Covariance parse_covariance(std::string_view name) {
  for (Covariance c : {Covariance::equicorrelation, Covariance::toeplitz, Covariance::wishart, Covariance::identity})
    if (name == to_string(c)) return c;
  throw Error(
      "there is no covariance '" + std::string(name) + "'; choose equicorrelation, toeplitz, wishart or identity",
      "--covariance");
}

std::string_view to_string(Covariance c) {
  switch (c) {
    case Covariance::equicorrelation:
      return "equicorrelation";
    case Covariance::toeplitz:
      return "toeplitz";
    case Covariance::wishart:
      return "wishart";
    case Covariance::identity:
      return "identity";
  }
  return "";
}

RuleOrder parse_rule_order(std::string_view name) {
  for (RuleOrder order : {RuleOrder::paper, RuleOrder::slides})
    if (name == to_string(order)) return order;
  throw Error("there is no order '" + std::string(name) + "'; choose paper (0.9 first) or slides (0.999 first)",
              "--order");
}

std::string_view to_string(RuleOrder order) { return order == RuleOrder::paper ? "paper" : "slides"; }

std::vector<double> covariance_factor(Covariance kind, int dim, Random& random) {
  const int n = dim;
  std::vector<double> sigma(static_cast<std::size_t>(n) * n);
  if (kind == Covariance::wishart) {
    const int freedom = 2 * n;
    std::vector<double> x(static_cast<std::size_t>(n) * freedom);
    for (double& e : x) e = random.normal();
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        for (int f = 0; f < freedom; ++f) sigma[i * n + j] += x[i * freedom + f] * x[j * freedom + f];
    std::vector<double> deviation(n);
    for (int i = 0; i < n; ++i) deviation[i] = std::sqrt(sigma[i * n + i]);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) sigma[i * n + j] = i == j ? 1 : sigma[i * n + j] / (deviation[i] * deviation[j]);
  } else {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        const double off = kind == Covariance::equicorrelation ? 0.5
                           : kind == Covariance::toeplitz      ? std::pow(0.9, std::abs(i - j))
                                                               : 0.0;
        sigma[i * n + j] = i == j ? 1 : off;
      }
  }
  cholesky(sigma, n);
  return sigma;
}

SwitchingSequence switching_sequence(const SwitchingSpec& spec, std::uint64_t seed, int index) {
  const int T = spec.time, D = spec.dim;
  Random random(seed, static_cast<std::uint64_t>(index) + 1);
  const std::vector<double> factor = covariance_factor(spec.covariance, D, random);
  std::vector<double> white(D), key(D);
  auto correlated = [&](int i) {
    double s = 0;
    for (int j = 0; j <= i; ++j) s += factor[i * D + j] * white[j];
    return s;
  };
  for (double& e : white) e = random.normal();
  // 1 - 0.81 and not 1 - 0.9 * 0.9, which rounds differently: the paper's streams keep their bits.
  const double spread = std::sqrt(1 - (spec.order == RuleOrder::paper ? 0.81 : 0.998001));
  for (int i = 0; i < D; ++i) key[i] = 0.02 / spread * correlated(i);

  SwitchingSequence out;
  out.keys.reserve(static_cast<std::size_t>(T + 1) * D);
  out.values.reserve(static_cast<std::size_t>(T + 1) * D);
  for (int t = 0; t <= T; ++t) {
    out.keys.insert(out.keys.end(), key.begin(), key.end());
    const double a = t < T / 4 ? spec.first_rule() : spec.second_rule();
    for (double& e : white) e = random.normal();
    double norm = 0;
    for (int i = 0; i < D; ++i) {
      key[i] = a * key[i] + 0.02 * correlated(i);
      norm += key[i] * key[i];
    }
    norm = std::sqrt(norm);
    for (int i = 0; i < D; ++i) out.values.push_back(norm > 0 ? key[i] / norm : 0);
  }
  return out;
}

}  // namespace ttr::cli
