// Reverse-mode differentiation on a tape: every arithmetic operation on a Var appends a node with up to two parents
// and the partial derivatives by them; one sweep from the last node to the first accumulates all gradients.
//
//   Tape tape;                     // becomes the current tape of this thread until it is destroyed
//   Var x = tape.leaf(3.0), y = x * exp(x);
//   tape.seed(y, 1.0);
//   tape.sweep();
//   double dy_dx = tape.gradient(x);
//
// Constants (Vars made from a double) are not recorded. Comparisons look at values, so a branch or a pivot is
// decided by the numbers and the gradient is that of the branch taken.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ttr/status.h"

namespace ttr::oracle {

class Tape;

struct Var {
  double value = 0;
  std::uint32_t node = 0;  // 0: a constant
  Var() = default;
  Var(double v) : value(v) {}  // NOLINT: numbers are constants
  Var(double v, std::uint32_t n) : value(v), node(n) {}
};

class Tape {
  struct Node {
    std::uint32_t a, b;
    double da, db;
  };

 public:
  Tape() : previous_(current_) {
    nodes_.swap(spare_nodes_), adjoint_.swap(spare_adjoint_);  // memory of the last tape, if it was kept
    nodes_.clear(), adjoint_.clear();
    nodes_.push_back({0, 0, 0, 0});
    current_ = this;
  }
  ~Tape() {
    current_ = previous_;
    if (nodes_.capacity() <= most_kept) nodes_.swap(spare_nodes_), adjoint_.swap(spare_adjoint_);
  }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  static Tape& current() { return *current_; }

  Var leaf(double value) { return {value, append({0, 0, 0, 0})}; }
  Var unary(double value, const Var& a, double da) {
    if (!a.node) return value;
    return {value, append({a.node, 0, da, 0})};
  }
  Var binary(double value, const Var& a, double da, const Var& b, double db) {
    if (!a.node && !b.node) return value;
    return {value, append({a.node, b.node, da, db})};
  }

  void seed(const Var& x, double d) {
    if (adjoint_.size() < nodes_.size()) adjoint_.resize(nodes_.size(), 0.0);
    adjoint_[x.node] += d;
  }
  void sweep() {
    adjoint_.resize(nodes_.size(), 0.0);
    for (std::size_t n = nodes_.size(); n-- > 1;) {
      const double d = adjoint_[n];
      if (d == 0) continue;
      const Node& node = nodes_[n];
      // A zero partial stays out, so that 0 * inf in a branch without influence cannot make NaN.
      if (node.a && node.da != 0) adjoint_[node.a] += d * node.da;
      if (node.b && node.db != 0) adjoint_[node.b] += d * node.db;
    }
  }
  double gradient(const Var& x) const { return x.node && x.node < adjoint_.size() ? adjoint_[x.node] : 0.0; }

 private:
  std::uint32_t append(const Node& node) {
    if (nodes_.size() >= std::numeric_limits<std::uint32_t>::max())
      throw Error("the oracle's gradient of this call needs more than 4e9 operations; use fewer tokens per call");
    nodes_.push_back(node);
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  std::vector<Node> nodes_;
  std::vector<double> adjoint_;
  Tape* previous_;
  static inline thread_local Tape* current_ = nullptr;
  // Most calls need many short tapes: their memory is kept for the next one, unless it is much.
  static constexpr std::size_t most_kept = std::size_t{1} << 22;
  static inline thread_local std::vector<Node> spare_nodes_;
  static inline thread_local std::vector<double> spare_adjoint_;
};

inline double value_of(double x) { return x; }
inline double value_of(const Var& x) { return x.value; }

inline Var operator+(const Var& a, const Var& b) { return Tape::current().binary(a.value + b.value, a, 1, b, 1); }
inline Var operator-(const Var& a, const Var& b) { return Tape::current().binary(a.value - b.value, a, 1, b, -1); }
inline Var operator*(const Var& a, const Var& b) {
  return Tape::current().binary(a.value * b.value, a, b.value, b, a.value);
}
inline Var operator/(const Var& a, const Var& b) {
  const double q = a.value / b.value;
  return Tape::current().binary(q, a, 1 / b.value, b, -q / b.value);
}
inline Var operator-(const Var& a) { return Tape::current().unary(-a.value, a, -1); }
inline Var& operator+=(Var& a, const Var& b) { return a = a + b; }
inline Var& operator-=(Var& a, const Var& b) { return a = a - b; }
inline Var& operator*=(Var& a, const Var& b) { return a = a * b; }
inline Var& operator/=(Var& a, const Var& b) { return a = a / b; }

inline bool operator<(const Var& a, const Var& b) { return a.value < b.value; }
inline bool operator>(const Var& a, const Var& b) { return a.value > b.value; }
inline bool operator<=(const Var& a, const Var& b) { return a.value <= b.value; }
inline bool operator>=(const Var& a, const Var& b) { return a.value >= b.value; }

inline Var exp(const Var& x) {
  const double y = std::exp(x.value);
  return Tape::current().unary(y, x, y);
}
inline Var expm1(const Var& x) { return Tape::current().unary(std::expm1(x.value), x, std::exp(x.value)); }
inline Var log(const Var& x) { return Tape::current().unary(std::log(x.value), x, 1 / x.value); }
/// g / (sqrt(A + g^2) + eps), a gradient that AdaGrad divides. The chain rule would make its derivative by g, which is
/// eps / (|g| + eps)^2 where A = 0, of two terms that cancel.
inline Var over_root(const Var& g, const Var& A, double eps) {
  const double root = std::sqrt(A.value + g.value * g.value), divisor = root + eps, u = g.value / divisor;
  return Tape::current().binary(u, g, (A.value + eps * root) / (divisor * divisor * root), A,
                                -u / (2 * divisor * root));
}
inline double over_root(double g, double A, double eps) { return g / (std::sqrt(A + g * g) + eps); }
inline Var sqrt(const Var& x) {
  const double y = std::sqrt(x.value);
  return Tape::current().unary(y, x, 0.5 / y);
}
inline Var tanh(const Var& x) {
  const double e = std::exp(-2 * std::abs(x.value));  // 1 - tanh^2 loses its digits where tanh is near 1
  return Tape::current().unary(std::tanh(x.value), x, 4 * e / ((1 + e) * (1 + e)));
}
inline Var erfc(const Var& x) {
  return Tape::current().unary(std::erfc(x.value), x, -1.1283791670955126 * std::exp(-x.value * x.value));
}
inline Var sin(const Var& x) { return Tape::current().unary(std::sin(x.value), x, std::cos(x.value)); }
inline Var cos(const Var& x) { return Tape::current().unary(std::cos(x.value), x, -std::sin(x.value)); }
inline Var abs(const Var& x) { return x.value < 0 ? -x : x; }
/// x^p for a constant p and x >= 0.
inline Var pow(const Var& x, double p) {
  return Tape::current().unary(std::pow(x.value, p), x, p == 0 ? 0.0 : p * std::pow(x.value, p - 1));
}
inline Var max(const Var& a, const Var& b) { return a.value < b.value ? b : a; }
inline Var min(const Var& a, const Var& b) { return b.value < a.value ? b : a; }

}  // namespace ttr::oracle
