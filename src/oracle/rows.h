// The weighted pairs that one query sees, as rows of a regression problem.
#pragma once

#include <cmath>
#include <vector>

#include "oracle/weights.h"

namespace ttr::oracle {

/// The weighted pairs of one query as rows of a regression problem.
template <class S>
struct Rows {
  std::vector<Vec<S>> x, v;  // what the memory sees, and the target
  Vec<S> w;
  PairWeights<S> weights;
  int count() const { return static_cast<int>(w.size()); }
  S sum() const {
    S total = 0.0;
    for (const S& e : w) total += e;
    return total;
  }
};

/// `shifted`: the largest logit is subtracted from all; the caller scales back what depends on it.
template <class S>
Rows<S> make_rows(const Head<S>& h, int t, int newest, bool shifted) {
  using std::exp;
  Rows<S> rows;
  PairWeights<S>& pw = rows.weights;
  pw = pair_weights(h, t, newest);
  const bool sink = h.design.weights.sink;
  if (shifted && (pw.count > 0 || sink)) {
    double largest = sink ? value_of(h.at("sink", 0)) : -HUGE_VAL;
    for (int j = 0; j < pw.count; ++j)
      if (value_of(pw.factor[j]) != 0) largest = std::max(largest, value_of(pw.logit[j]));
    if (std::isfinite(largest)) pw.shift = largest;
  }
  for (int j = 0; j < pw.count; ++j) {
    const int i = pw.first + j;
    const bool reverse = h.design.memory.reverse;
    rows.x.push_back(reverse ? h.value(i) : h.pair_vector(i, t));
    rows.v.push_back(reverse ? h.keys[i] : h.value(i));
    rows.w.push_back(pw.weight(j));
  }
  if (sink) {
    rows.x.push_back(is_linear_class(h.design.memory) ? features(h.design.memory, h.queries[t], h.queries[t])
                                                      : h.queries[t]);
    rows.v.push_back(Vec<S>(h.sizes.value_dim, S(0.0)));
    rows.w.push_back(exp(h.at("sink", 0) - S(pw.shift)));
  }
  return rows;
}

}  // namespace ttr::oracle
