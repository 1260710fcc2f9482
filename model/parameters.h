// Which tensors of parameters there are, and how they begin.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ttr/model.h"
#include "ttr/random.h"

namespace ttr::model {

/// What a tensor is drawn from.
struct Start {
  enum class Kind {
    normal,      // a N(0, 1)
    constant,    // a
    identity,    // a where the last two indices agree, else 0
    log_spread,  // log of U(a, b): rates of decay of Mamba-2 and Gated DeltaNet
    log_count,   // log of 1 .. n along the last axis: rates of Mamba-1
    step,        // softplus^-1 of exp(U(log a, log b)): the bias of dt (Mamba)
    ramp,        // from a to b along the last axis
    share,       // logit of U(a, b)
    harmonic,    // 1 / (1 + index)
    identities,  // matrices side by side (columns): a I if square, else b N(0, 1)
    previous,    // a at the tap that meets the token before, else 0
  };
  Kind kind = Kind::normal;
  double a = 1, b = 1;
};

class Registry {
 public:
  int add(std::string name, std::vector<std::ptrdiff_t> extent, Start start, bool matrix = false,
          std::vector<int> columns = {}, bool trained = true) {
    Parameter p;
    p.name = std::move(name), p.extent = std::move(extent), p.matrix = matrix, p.trained = trained;
    p.columns = std::move(columns), p.size = 1;
    for (const std::ptrdiff_t n : p.extent) p.size *= static_cast<std::size_t>(n);
    p.offset = total_;
    total_ += (p.size + 15) / 16 * 16;  // so that every tensor begins on a cache line
    parameters_.push_back(std::move(p));
    starts_.push_back(start);
    return static_cast<int>(parameters_.size()) - 1;
  }
  Parameter& back() { return parameters_.back(); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& operator[](int i) const { return parameters_[static_cast<std::size_t>(i)]; }
  std::size_t total() const { return total_; }
  /// Every tensor from a stream of its own name: adding one leaves the others as they were.
  template <class T>
  void draw(std::uint64_t seed, T* values) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) fill(parameters_[i], starts_[i], seed, values);
  }

 private:
  template <class T>
  static void fill(const Parameter& p, const Start& start, std::uint64_t seed, T* values) {
    Random random(seed, p.name);
    const auto last = static_cast<std::size_t>(p.extent.back());
    const std::size_t rows = p.extent.size() > 1 ? static_cast<std::size_t>(p.extent[p.extent.size() - 2]) : 1;
    for (std::size_t i = 0; i < p.size; ++i) {
      const std::size_t column = i % last;
      double x = start.a;
      switch (start.kind) {
        case Start::Kind::normal:
          x = start.a * random.normal();
          break;
        case Start::Kind::constant:
          break;
        case Start::Kind::identity:
          x = i / last % rows == column ? start.a : 0;
          break;
        case Start::Kind::log_spread:
          x = std::log(random.uniform(start.a, start.b));
          break;
        case Start::Kind::log_count:
          x = std::log(static_cast<double>(column + 1));
          break;
        case Start::Kind::step: {
          const double dt = std::exp(random.uniform(std::log(start.a), std::log(start.b)));
          x = dt + std::log(-std::expm1(-dt));
          break;
        }
        case Start::Kind::ramp:
          x = last < 2 ? start.a
                       : start.a + (start.b - start.a) * static_cast<double>(column) / static_cast<double>(last - 1);
          break;
        case Start::Kind::share: {
          const double u = random.uniform(start.a, start.b);
          x = std::log(u / (1 - u));
          break;
        }
        case Start::Kind::harmonic:
          x = 1 / static_cast<double>(1 + column);
          break;
        case Start::Kind::identities: {
          std::size_t within = column, part = 0;
          while (part < p.columns.size() && within >= static_cast<std::size_t>(p.columns[part]))
            within -= static_cast<std::size_t>(p.columns[part++]);
          const std::size_t wide = part < p.columns.size() ? static_cast<std::size_t>(p.columns[part]) : last;
          x = wide != rows ? start.b * random.normal() : within == i / last ? start.a : 0;
          break;
        }
        case Start::Kind::previous:
          x = column + 2 == last ? start.a : 0;
          break;
      }
      values[p.offset + i] = static_cast<T>(x);
    }
  }

  std::vector<Parameter> parameters_;
  std::vector<Start> starts_;
  std::size_t total_ = 0;
};

}  // namespace ttr::model
