// Families that keep their pairs, as the harness wants them (families_harness.h): a call that starts within a sequence
// gets the tokens before it as past, behind the past there was, and gives gradients back to both.
//
// A family of this kind says besides what is kept of a pair: kept(), its tensors without batch and time. In specs() a
// tensor k of the call is [B, T, ..], and past_k, if there is a capacity, [N, capacity, ..].
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "families_harness.h"

namespace ttr_families_test {

/// What is before a call, by name: [N, capacity, ..] each.
template <class X>
struct Pairs {
  std::map<std::string, Held<X>> held;
  std::vector<std::int64_t> count;  // of each sequence
  Size capacity = 0;

  /// No data where nothing of that name is kept.
  template <std::size_t D>
  View<X, D> view(const std::string& name) {
    View<X, D> out;
    if (!held.count(name)) return out;
    Held<X>& h = held[name];
    EXPECT_EQ(h.extent.size(), D) << name;
    out.data = h.memory.data();
    for (std::size_t i = 0; i < D; ++i) out.extent[i] = h.extent[i], out.stride[i] = h.stride[i];
    return out;
  }
};

struct PairFamily : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  Size capacity = 0;
  std::vector<std::int64_t> past = {};  // by sequence; empty: none

  virtual ~PairFamily() = default;
  /// Role::output: what an earlier call gave, so that gradients go to that output.
  virtual std::vector<Spec> kept() const = 0;

  std::string sizes() const {
    return "-T" + std::to_string(T) + "-H" + std::to_string(H) + "-G" + std::to_string(G) + "-K" + std::to_string(K) +
           "-V" + std::to_string(V) + "-past" + std::to_string(capacity);
  }
  Size past_of(Size n) const { return past.empty() ? 0 : static_cast<Size>(past[static_cast<std::size_t>(n)]); }
  Size room() const { return capacity + T; }

  /// The pairs before `list`, of this family's past and of its sequences.
  template <class X>
  Pairs<X> before(Bound<X>& x, const std::vector<Sequence>& list) const {
    Pairs<X> p;
    p.capacity = room();
    const bool strided = x.held.at("q").stride.back() != 1;
    for (const Spec& part : kept()) {
      std::vector<Size> extent = part.extent;
      extent.insert(extent.begin(), {N(), p.capacity});
      p.held[part.name] = Held<X>(extent, strided);
    }
    for (Size n = 0; n < N(); ++n)
      p.count.push_back(each_before(list, n, [&](const Spec& part, Size i, bool old, Size at) {
        const Size width = count_of(part.extent);
        Held<X>& from = x.held.at(old ? "past_" + part.name : part.name);
        for (Size c = 0; c < width; ++c)
          p.held[part.name].at((n * p.capacity + i) * width + c) = from.at(at * width + c);
      }));
    return p;
  }
  /// As many zeros: what gradients of the pairs before a call are added to.
  template <class X>
  Pairs<X> zeros(Pairs<X> like) const {
    for (auto& [name, held] : like.held) std::fill(held.memory.begin(), held.memory.end(), X(0));
    return like;
  }
  /// Gradients of the pairs before `list` to where these came from: `to`, or `given` for outputs of earlier calls.
  template <class X>
  void add_before(Pairs<X>& d, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list) const {
    for (Size n = 0; n < N(); ++n)
      each_before(list, n, [&](const Spec& part, Size i, bool old, Size at) {
        const Size width = count_of(part.extent);
        Held<X>& sum = old                         ? to.held.at("past_" + part.name)
                       : part.role == Role::output ? given.held.at(part.name)
                                                   : to.held.at(part.name);
        for (Size c = 0; c < width; ++c)
          sum.at(at * width + c) += d.held[part.name].at((n * d.capacity + i) * width + c);
      });
  }

  /// What every problem of these families has.
  template <class P, class X>
  void fill(P& p, Bound<X>& x, const std::vector<Sequence>& list, Pairs<X>& pairs) const {
    p.sequences = list;
    p.heads = H, p.key_heads = G, p.key_dim = K, p.value_dim = V;
    p.q = x.template view<4>("q"), p.k = x.template view<4>("k"), p.v = x.template view<4>("v");
    p.past_k = pairs.template view<4>("k"), p.past_count = pairs.count.data();
    p.o = x.template view<4>("o");
  }
  template <class D, class X>
  void fill_gradient(D& d, Bound<X>& given, Bound<X>& to, Pairs<X>& pairs) const {
    d.d_o = given.template view<4>("o");
    d.d_q = to.template view<4>("q"), d.d_k = to.template view<4>("k"), d.d_v = to.template view<4>("v");
    d.d_past_k = pairs.template view<4>("k");
  }

 private:
  /// each(part, i, old, at) for pair i before sequence n of `list`: row `at` of past_part, or of part. Returns how
  /// many pairs there are.
  template <class Each>
  Size each_before(const std::vector<Sequence>& list, Size n, Each&& each) const {
    const Sequence whole = sequences()[static_cast<std::size_t>(n)], part = list[static_cast<std::size_t>(n)];
    Size i = 0;
    const auto add = [&](bool old, Size at) {
      for (const Spec& kind : kept()) each(kind, i, old, at);
      ++i;
    };
    for (Size j = 0; j < past_of(n); ++j) add(true, n * capacity + j);
    if (part.end > part.begin)
      for (Size t = whole.begin; t < part.begin; ++t) add(false, whole.row * T + t);
    return i;
  }
};

inline const std::vector<FormCall> once = {{Form::best, 0}};

/// Without splitting, which means something else where later tokens are seen.
template <class Family>
void check_whole(const Family& f, bool by_difference, double float_tolerance, double float_gradient_tolerance) {
  const Values in = f.draw_values(), d = draw_gradients(f, 5), want = f.reference(in);
  const Values grad = run_backward<double>(f, in, d, {});
  if (by_difference) expect_near(grad, differences(f, in, d), 1e-6, f.name());
  for (const std::string& target : ttr::simd_targets())
    for (const bool strided : {false, true}) {
      const Call call{Form::best, 0, strided, {}, target};
      expect_near(run_forward<double>(f, in, call), want, 1e-11, f.name() + " " + target);
      expect_near(run_backward<double>(f, in, d, call), grad, 1e-10, f.name() + " " + target);
      expect_near(run_forward<float>(f, in, call), want, float_tolerance, f.name() + " float " + target);
      expect_near(run_backward<float>(f, in, d, call), grad, float_gradient_tolerance, f.name() + " float " + target);
    }
}

}  // namespace ttr_families_test
