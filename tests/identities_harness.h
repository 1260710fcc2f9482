// Two layers that must be the same function, run as plans on the same numbers.
#pragma once

#include <cmath>
#include <random>
#include <string>

#include "cli/runner.h"

namespace ttr_identities {

using ttr::Form;
using ttr::Options;
using ttr::Type;
using ttr::cli::NamedNumbers;
using ttr::cli::Numbers;
using ttr::cli::relative_error;
using ttr::cli::Runner;

inline constexpr int T = 24, H = 2, K = 6, V = 5;

inline Numbers normals(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Numbers x(n);
  for (double& value : x) value = normal(random);
  return x;
}
inline Numbers uniforms(std::size_t n, unsigned seed, double low, double high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Numbers x(n);
  for (double& value : x) value = uniform(random);
  return x;
}
inline void normalise(Numbers& x, std::size_t width) {
  for (std::size_t base = 0; base < x.size(); base += width) {
    double square = 0;
    for (std::size_t i = 0; i < width; ++i) square += x[base + i] * x[base + i];
    for (std::size_t i = 0; i < width; ++i) x[base + i] /= std::sqrt(square);
  }
}

inline NamedNumbers pairs(int value_dim = V) {
  NamedNumbers in;
  in["q"] = normals(T * H * K, 1), in["k"] = normals(T * H * K, 2);
  in["v"] = normals(static_cast<std::size_t>(T * H * value_dim), 3);
  return in;
}

inline Numbers run(const std::string& text, const NamedNumbers& in, Form form = Form::best, int chunk = 0,
                   int time = T, int value_dim = V) {
  Options options;
  options.type = Type::f64, options.chunk = chunk, options.scale = 1.0;
  return Runner(ttr::plan(text, {1, H, 0, K, value_dim}, options), time).forward(in, {}, form).outputs.at("o");
}

}  // namespace ttr_identities
