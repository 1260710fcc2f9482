// A regression stream whose target is linear in pieces: the key moves to another region, and another map holds there.
//
//   segment s = t / S:   k_t = c_s + N(0, I) ,   c_s of random direction, |c_s| = centre sqrt(d)
//                        v_t = W_s k_t + noise N(0, I) ,   W_s[i][j] ~ N(0, 1/d)
//
// Shapes: keys and values [L, d], centres [segments, d], maps [segments, d, d] (row i makes entry i of the value).
// After the pair (k_t, v_t), t = 0 .. L-2, a layer is asked with k_{t+1} for v_{t+1}; the loss is the mean over the d
// entries of the squared error. An answer of zero costs 1 + centre^2 + noise^2 = 3.2525; the noise alone 0.0025.
// Source: the task of arXiv 2510.01450 (test-time regression), reconstructed from its description; the authors'
// generator is not public, and centres, maps and noise are choices made here.
// Trap: the first query of a segment comes before any pair of it. No layer can answer that one; it is counted.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "switching_process.h"
#include "ttr/status.h"

namespace ttr::piecewise {

struct Spec {
  int dim = 32;       // d, of keys and of values
  int segment = 256;  // S, tokens per segment; the last one may be shorter
  int length = 1024;  // L
  double centre = 1.5;
  double noise = 0.05;

  int queries() const { return length - 1; }
  int segments() const { return (length + segment - 1) / segment; }
};

struct Sequence {
  std::vector<double> keys, values, centres, maps;
};

/// Sequence number `index` of the run with that `seed`; independent of all others. Throws Error.
inline Sequence sequence(const Spec& spec, std::uint64_t seed, std::uint64_t index) {
  if (spec.dim < 1) throw Error("the dimension is " + std::to_string(spec.dim) + "; it must be at least 1", "dim");
  if (spec.segment < 4)
    throw Error("a segment has " + std::to_string(spec.segment) +
                    " tokens; it needs at least 4, one for each quarter of the table",
                "segment");
  if (spec.length < 2 * spec.segment)
    throw Error("the sequence has " + std::to_string(spec.length) + " tokens; it needs two segments of " +
                    std::to_string(spec.segment) + " at least",
                "length");
  const std::size_t d = spec.dim, L = spec.length, n = spec.segments();
  cli::Random random(seed, index);
  Sequence out;
  out.keys.resize(L * d), out.values.resize(L * d), out.centres.resize(n * d), out.maps.resize(n * d * d);
  for (std::size_t t = 0; t < L; ++t) {
    const std::size_t s = t / spec.segment;
    double *c = &out.centres[s * d], *W = &out.maps[s * d * d], *k = &out.keys[t * d], *v = &out.values[t * d];
    if (t % spec.segment == 0) {
      double squares = 0;
      do {
        squares = 0;
        for (std::size_t i = 0; i < d; ++i) c[i] = random.normal(), squares += c[i] * c[i];
      } while (squares == 0);
      const double length = spec.centre * std::sqrt(static_cast<double>(d));
      for (std::size_t i = 0; i < d; ++i) c[i] *= length / std::sqrt(squares);
      for (std::size_t i = 0; i < d * d; ++i) W[i] = random.normal() / std::sqrt(static_cast<double>(d));
    }
    for (std::size_t i = 0; i < d; ++i) k[i] = c[i] + random.normal();
    for (std::size_t i = 0; i < d; ++i) {
      v[i] = spec.noise * random.normal();
      for (std::size_t j = 0; j < d; ++j) v[i] += W[i * d + j] * k[j];
    }
  }
  return out;
}

/// Losses [L-1] of answers [L-1, d]: number t belongs to token t+1.
inline std::vector<double> losses(const Spec& spec, const Sequence& data, const std::vector<double>& answers) {
  const std::size_t d = spec.dim, T = spec.queries();
  std::vector<double> out(T);
  for (std::size_t t = 0; t < T; ++t) {
    for (std::size_t i = 0; i < d; ++i) {
      const double error = answers[t * d + i] - data.values[(t + 1) * d + i];
      out[t] += error * error;
    }
    out[t] /= static_cast<double>(d);
  }
  return out;
}

/// Means of one sequence's losses.
struct Summary {
  double all = 0;                   // every query
  double first = 0;                 // queries of the first segment, all but its first token
  std::array<double, 4> quarter{};  // later segments, by the position in the segment: first quarter of S, ...
};

inline Summary summarise(const Spec& spec, const std::vector<double>& losses) {
  Summary out;
  std::array<int, 4> counts{};
  int first = 0;
  for (int t = 0; t < spec.queries(); ++t) {
    const int token = t + 1, position = token % spec.segment, quarter = 4 * position / spec.segment;
    out.all += losses[t];
    if (token < spec.segment) out.first += losses[t], ++first;
    else out.quarter[quarter] += losses[t], ++counts[quarter];
  }
  out.all /= spec.queries(), out.first /= first;
  for (int i = 0; i < 4; ++i) out.quarter[i] /= counts[i];
  return out;
}

/// Mean loss of the later segments at every position [S].
inline std::vector<double> by_position(const Spec& spec, const std::vector<double>& losses) {
  std::vector<double> out(spec.segment);
  std::vector<int> counts(spec.segment);
  for (int t = spec.segment - 1; t < spec.queries(); ++t)
    out[(t + 1) % spec.segment] += losses[t], ++counts[(t + 1) % spec.segment];
  for (int p = 0; p < spec.segment; ++p) out[p] /= counts[p];
  return out;
}

}  // namespace ttr::piecewise
