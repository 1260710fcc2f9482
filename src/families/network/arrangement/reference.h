// Titans' arrangements by their definition: loops over tokens, queries and pairs in double, with the memory of
// families_neural_reference.h, and the case that feeds them and the kernel to the harness.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "families/network/arrangement/arrangement.h"
#include "families/network/neural/reference.h"

namespace ttr_families_test {

/// A memory (the tensors of Neural) with attention: aq, ak, av, or maps of the memory's answers.
struct Arranged : Neural {
  Arrangement kind = Arrangement::gate;
  int A = 1, K = 2;  // heads and dimension of the attention's keys
  Size window = 3;
  int persistent = 2, prefix = 0;
  double attention_scale = 0.7, maps = 0.7;
  bool answer_weight = true, memory_weight = true;

  Arranged() {
    label = "gate", m.depth = 2, m.width = 3, m.batch = 3, m.momentum = true, m.decay = Decay::complement;
    m.gradient_scale = 0.4;
  }
  bool context() const { return kind == Arrangement::context; }
  bool layer() const { return kind == Arrangement::layer; }
  int V() const { return m.value_dim; }
  int M() const { return m.key_dim; }
  Size rows() const { return (context() ? m.batch : window) - 1; }
  Size seen_pairs() const { return seen > 0 ? seen - prefix : 0; }
  int pair_heads() const { return layer() ? H : A; }

  std::string name() const {
    return Neural::name() + "-H" + std::to_string(H) + "-A" + std::to_string(A) + "-window" + std::to_string(window) +
           "-persistent" + std::to_string(persistent) + "-prefix" + std::to_string(prefix);
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = Neural::specs();
    for (Spec& x : s)  // a memory that does not run away in a few tokens
      if (x.name == "k" || x.name == "v") x.size = 0.6;
    const Size g = pair_heads(), D = V(), P = persistent, R = rows();
    if (context()) std::erase_if(s, [](const Spec& x) { return x.name == "k" || x.name == "v"; });
    if (!layer()) {
      s.push_back({"aq", Role::input, {B, T, H, K}, 0, 1.5}), s.push_back({"ak", Role::input, {B, T, g, K}});
      s.push_back({"av", Role::input, {B, T, g, D}});
      if (answer_weight) s.push_back({"answer_weight", Role::input, {H, D}, 1, 0.3});
      if (memory_weight) s.push_back({"memory_weight", Role::input, {H, D}, 0.5, 0.5});
    } else {
      s.push_back({"wq", Role::input, {H, D, K}});
    }
    if (layer() || context()) {
      s.push_back({"wk", Role::input, {H, D, K}, 0, maps}), s.push_back({"wv", Role::input, {H, D, D}, 0, maps});
    }
    if (context()) {
      s.push_back({"uq", Role::input, {H, D, M()}, 0, maps}), s.push_back({"uk", Role::input, {H, D, M()}, 0, maps});
      s.push_back({"uv", Role::input, {H, D, D}, 0, maps});
      s.push_back({"retrieved_k", Role::state, {N(), R, H, K}});
      s.push_back({"retrieved_v", Role::state, {N(), R, H, D}});
    }
    s.push_back({"pairs_k", Role::state, {N(), R, g, K}}), s.push_back({"pairs_v", Role::state, {N(), R, g, D}});
    if (P > 0) {
      s.push_back({"persistent_k", Role::input, {P, g, K}}), s.push_back({"persistent_v", Role::input, {P, g, D}});
    }
    if (prefix > 0) {
      for (const Spec& x : pre().specs())
        if (x.role == Role::input && x.extent.size() > 2 && x.name != "q") {
          const bool pair = x.name == "k" || x.name == "v";
          s.push_back({"prefix_" + x.name, Role::input, {x.extent.begin() + 1, x.extent.end()}, x.shift});
          s.back().size = pair ? 0.6 : x.size;
        }
    }
    return s;
  }
  Values draw_values() const { return draw(specs(), seed); }

  /// The memory over its prefix, one row for every sequence.
  Neural pre() const {
    Neural f = *this;
    f.B = static_cast<int>(N()), f.T = prefix, f.packed = {}, f.seen = 0;
    return f;
  }
  Values memory_reference(const Values& in) const {
    if (prefix == 0 || seen > 0) return Neural::reference(in);
    Values with = in;
    const Neural f = pre();
    for (const Spec& s : f.specs())
      if (in.count("prefix_" + s.name)) {
        Doubles& x = with[s.name] = {};
        for (Size n = 0; n < N(); ++n)
          x.insert(x.end(), in.at("prefix_" + s.name).begin(), in.at("prefix_" + s.name).end());
      } else if (s.name == "q") {
        with["q"] = Doubles(count_of(s.extent));
      }
    const Values after = f.reference(with);
    with = in;
    for (const Spec& s : f.specs())
      for (Size n = 0; s.role == Role::state && n < N(); ++n) {
        const Size one = count_of(s.extent) / N();
        if (const Sequence q = sequences()[n]; q.end > q.begin)
          std::copy_n(after.at(s.name).begin() + n * one, one, with[s.name].begin() + n * one);
      }
    Neural then = *this;
    then.seen = prefix;
    return then.reference(with);
  }

  struct Pair {
    const double *k, *v;
  };
  Doubles attend(const double* query, const std::vector<Pair>& pairs) const {
    Doubles x, y(V());
    double below = 0;
    for (const Pair& p : pairs) {
      double dot = 0;
      for (int c = 0; c < K; ++c) dot += query[c] * p.k[c];
      x.push_back(std::exp(attention_scale * dot)), below += x.back();
    }
    for (std::size_t i = 0; i < pairs.size(); ++i)
      for (int j = 0; j < V(); ++j) y[j] += x[i] / below * pairs[i].v[j];
    return y;
  }
  std::vector<Pair> persistent_pairs(const Values& in, Size g) const {
    std::vector<Pair> pairs;
    for (Size i = 0; i < persistent; ++i)
      pairs.push_back(
          {&in.at("persistent_k")[(i * pair_heads() + g) * K], &in.at("persistent_v")[(i * pair_heads() + g) * V()]});
    return pairs;
  }
  double root(const double* x) const {
    double square = 0;
    for (int j = 0; j < V(); ++j) square += x[j] * x[j] / V();
    return std::sqrt(square + 1e-6);
  }
  void join(const Values& in, int h, const double* y, const double* m_row, double* o) const {
    const double size_y = root(y), size_m = root(m_row);
    for (int j = 0; j < V(); ++j) {
      const double w = memory_weight ? in.at("memory_weight")[h * V() + j] : 1;
      o[j] = answer_weight ? y[j] / size_y * in.at("answer_weight")[h * V() + j] : y[j];
      o[j] /= 1 + std::exp(-m_row[j] / size_m * w);
    }
  }
  /// x [.., H, V] times [H, V, D]
  Doubles map(const Doubles& x, const Doubles& W, int D) const {
    Doubles y(x.size() / V() * D);
    for (std::size_t row = 0; row < x.size() / V(); ++row)
      for (int d = 0; d < D; ++d)
        for (int j = 0; j < V(); ++j) y[row * D + d] += x[row * V() + j] * W[((row % H) * V() + j) * D + d];
    return y;
  }

  Values reference(const Values& in) const {
    if (context()) return segments(in);
    Values out = memory_reference(in);
    const Doubles answers = out.at("o");
    const int heads = pair_heads();
    const Doubles q = layer() ? map(answers, in.at("wq"), K) : in.at("aq");
    const Doubles k = layer() ? map(answers, in.at("wk"), K) : in.at("ak");
    const Doubles v = layer() ? map(answers, in.at("wv"), V()) : in.at("av");
    const Size live = std::min(seen_pairs(), rows());
    for (Size n = 0; n < N(); ++n) {
      const Sequence s = sequences()[n];
      const auto pair = [&](Size i, Size g) -> Pair {  // i-th of the list and the tokens
        const Size row = i < live ? n * rows() + i : s.row * T + s.begin + i - live;
        return {&(i < live ? in.at("pairs_k") : k)[(row * heads + g) * K],
                &(i < live ? in.at("pairs_v") : v)[(row * heads + g) * V()]};
      };
      for (Size t = s.begin; t < s.end; ++t)
        for (int h = 0; h < H; ++h) {
          const Size at = (s.row * T + t) * H + h, end = live + t - s.begin + 1;
          std::vector<Pair> pairs = persistent_pairs(in, h / (H / heads));
          for (Size i = std::max<Size>(0, end - window); i < end; ++i) pairs.push_back(pair(i, h / (H / heads)));
          const Doubles y = attend(&q[at * K], pairs);
          if (layer()) std::copy(y.begin(), y.end(), &out["o"][at * V()]);
          else join(in, h, y.data(), &answers[at * V()], &out["o"][at * V()]);
        }
      const Size all = live + s.end - s.begin, kept = std::min(all, rows());
      out.try_emplace("pairs_k", in.at("pairs_k")), out.try_emplace("pairs_v", in.at("pairs_v"));
      for (Size j = 0; j < kept; ++j)
        for (Size g = 0; g < heads; ++g) {
          const Pair p = pair(all - kept + j, g);
          std::copy_n(p.k, K, &out["pairs_k"][((n * rows() + j) * heads + g) * K]);
          std::copy_n(p.v, V(), &out["pairs_v"][((n * rows() + j) * heads + g) * V()]);
        }
    }
    return out;
  }

  /// One token of sequence n through the memory: answers [H, V]; the states in `out` move on.
  Doubles learn(const Values& in, Values& out, Size n, Size token, std::int64_t count, const Doubles& q,
                const Doubles& k, const Doubles& v) const {
    Neural f = *this;
    f.B = 1, f.T = 1, f.G = H, f.packed = {}, f.seen = count;
    Values with = {{"q", q}, {"k", k}, {"v", v}};
    for (const Spec& s : f.specs()) {
      const Size numbers = count_of(s.extent);
      const bool of_lane = s.role == Role::state || s.name.substr(0, 4) == "norm";
      if (with.count(s.name) || s.role == Role::output) continue;
      const Doubles& from = s.role == Role::state ? out.at(s.name) : in.at(s.name);
      const bool whole = s.name == "norm_weight" || s.name == "norm_bias" || s.name == "position_gain";
      const Size begin = whole ? 0 : (of_lane ? n : token) * numbers;
      with[s.name].assign(from.begin() + begin, from.begin() + begin + numbers);
    }
    const Values after = f.reference(with);
    for (const Spec& s : f.specs())
      if (s.role == Role::state)
        std::copy(after.at(s.name).begin(), after.at(s.name).end(), out[s.name].begin() + n * count_of(s.extent));
    return after.at("o");
  }
  /// What head h of the memory with the weights named by `letter` says to memory query `row`.
  Doubles ask(const Values& in, const Values& state, char letter, Size n, int h, Size row) const {
    NeuralReference net{m};
    for (int j = 0; j < V(); ++j) {
      net.norm_weight.push_back(in.count("norm_weight") ? in.at("norm_weight")[h * V() + j] : 1);
      net.norm_bias.push_back(in.count("norm_bias") ? in.at("norm_bias")[h * V() + j] : 0);
    }
    Parameters W;
    for (int i = 0; i < net.layout.count; ++i) {
      const Doubles& all = state.at(letter + std::to_string(i));
      const Size numbers = Size{net.layout.part[i].in} * net.layout.part[i].out;
      W.emplace_back(all.begin() + (n * H + h) * numbers, all.begin() + (n * H + h + 1) * numbers);
    }
    Doubles q(in.at("q").begin() + (row * G + h / (H / G)) * M(),
              in.at("q").begin() + (row * G + h / (H / G) + 1) * M());
    for (double& e : q) e *= scale;
    return net.read(net.in_use(W), q);
  }
  Values segments(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V())}};
    for (const Spec& s : specs())
      if (s.role == Role::state) out[s.name] = in.at(s.name);
    for (Size n = 0; n < N(); ++n) {
      const Sequence s = sequences()[n];
      // Of the segment so far: [tokens, heads, dim].
      Size place = seen % m.batch;
      const auto rows_of = [&](const char* name, Size width) {
        const Doubles& all = in.at(name);
        return Doubles(all.begin() + n * rows() * width, all.begin() + (n * rows() + place) * width);
      };
      Doubles k = rows_of("pairs_k", A * K), v = rows_of("pairs_v", A * V());
      Doubles rk = rows_of("retrieved_k", H * K), rv = rows_of("retrieved_v", H * V());
      Values start = out;  // the memory before the segment, as A
      for (Size t = s.begin; t < s.end; ++t, ++place) {
        const Size token = s.row * T + t;
        const std::int64_t count = seen + t - s.begin;
        if (count % m.batch == 0) {
          place = 0, k.clear(), v.clear(), rk.clear(), rv.clear(), start = out;
          for (int i = 0; i < NeuralLayout(m).count; ++i)
            start["A" + std::to_string(i)] = out["W" + std::to_string(i)];
        }
        Doubles h(H * V());
        for (int head = 0; head < H; ++head) {
          const Doubles y = ask(in, start, 'A', n, head, token);
          std::copy(y.begin(), y.end(), &h[head * V()]);
        }
        const auto append = [](Doubles& list, const Doubles& x, Size from, Size width) {
          list.insert(list.end(), x.begin() + from * width, x.begin() + (from + 1) * width);
        };
        append(k, in.at("ak"), token, A * K), append(v, in.at("av"), token, A * V());
        append(rk, map(h, in.at("wk"), K), 0, H * K), append(rv, map(h, in.at("wv"), V()), 0, H * V());
        Doubles y;
        for (int head = 0; head < H; ++head) {
          const Size g = head / (H / A);
          std::vector<Pair> pairs = persistent_pairs(in, g);
          for (Size i = 0; i <= place; ++i) {
            pairs.push_back({&k[(i * A + g) * K], &v[(i * A + g) * V()]});
            pairs.push_back({&rk[(i * H + head) * K], &rv[(i * H + head) * V()]});
          }
          const Doubles row = attend(&in.at("aq")[(token * H + head) * K], pairs);
          y.insert(y.end(), row.begin(), row.end());
        }
        const Doubles answers = learn(in, out, n, token, count, map(y, in.at("uq"), M()), map(y, in.at("uk"), M()),
                                      map(y, in.at("uv"), V()));
        for (int head = 0; head < H; ++head)
          join(in, head, &y[head * V()], &answers[head * V()], &out["o"][(token * H + head) * V()]);
        const auto keep = [&](const char* name, const Doubles& list, Size width) {
          if (place < rows())
            std::copy_n(list.begin() + place * width, width, out[name].begin() + (n * rows() + place) * width);
        };
        keep("pairs_k", k, A * K), keep("pairs_v", v, A * V());
        keep("retrieved_k", rk, H * K), keep("retrieved_v", rv, H * V());
      }
    }
    return out;
  }

  ArrangementModel model() const {
    ArrangementModel a;
    a.kind = kind, a.memory = m, a.heads = H, a.memory_key_heads = G, a.pair_heads = pair_heads(), a.key_dim = K;
    a.window = window, a.persistent = persistent, a.prefix = prefix;
    return a;
  }
  template <class X>
  ArrangementProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    ArrangementProblem<X> p;
    p.model = model(), p.sequences = list, p.memory = Neural::problem(x, list);
    p.scale = static_cast<X>(attention_scale);
    p.q = x.template view<4>("aq"), p.k = x.template view<4>("ak"), p.v = x.template view<4>("av");
    p.wq = x.template view<3>("wq"), p.wk = x.template view<3>("wk"), p.wv = x.template view<3>("wv");
    p.uq = x.template view<3>("uq"), p.uk = x.template view<3>("uk"), p.uv = x.template view<3>("uv");
    p.persistent_k = x.template view<3>("persistent_k"), p.persistent_v = x.template view<3>("persistent_v");
    p.answer_weight = x.template view<2>("answer_weight"), p.memory_weight = x.template view<2>("memory_weight");
    p.prefix.k = x.template view<3>("prefix_k"), p.prefix.v = x.template view<3>("prefix_v");
    p.prefix.rate = x.template view<3>("prefix_rate"), p.prefix.momentum = x.template view<2>("prefix_momentum");
    p.prefix.decay = x.template view<2>("prefix_decay"), p.prefix.gain = x.template view<2>("prefix_gain");
    p.prefix.threshold = x.template view<2>("prefix_threshold");
    p.prefix.weight = x.template view<2>("prefix_weight");
    p.pairs = {x.pointer("pairs_k"), x.pointer("pairs_v"), x.pointer("retrieved_k"), x.pointer("retrieved_v")};
    p.o = x.template view<4>("o");
    return p;
  }
  template <class X>
  ArrangementGradient<X> gradient(Bound<X>& given, Bound<X>& to) const {
    ArrangementGradient<X> d;
    d.d_o = given.template view<4>("o");
    NeuralGradient<X>& g = d.memory;
    g.d_q = to.template view<4>("q"), g.d_k = to.template view<4>("k"), g.d_v = to.template view<4>("v");
    g.d_rate = to.template view<4>("rate"), g.d_momentum = to.template view<3>("momentum");
    g.d_decay = to.template view<3>("decay"), g.d_gain = to.template view<3>("gain");
    g.d_position_gain = to.template view<2>("position_gain"), g.d_threshold = to.template view<3>("threshold");
    g.d_weight = to.template view<3>("weight"), g.d_norm_weight = to.template view<2>("norm_weight");
    g.d_norm_bias = to.template view<2>("norm_bias");
    for (int i = 0; i < NeuralLayout(m).count; ++i) g.d_norms[i] = to.pointer("norm" + std::to_string(i));
    state(given, g.d_final), state(to, g.d_initial);
    d.d_final = {given.pointer("pairs_k"), given.pointer("pairs_v"), given.pointer("retrieved_k"),
                 given.pointer("retrieved_v")};
    d.d_initial = {to.pointer("pairs_k"), to.pointer("pairs_v"), to.pointer("retrieved_k"),
                   to.pointer("retrieved_v")};
    d.d_q = to.template view<4>("aq"), d.d_k = to.template view<4>("ak"), d.d_v = to.template view<4>("av");
    d.d_wq = to.template view<3>("wq"), d.d_wk = to.template view<3>("wk"), d.d_wv = to.template view<3>("wv");
    d.d_uq = to.template view<3>("uq"), d.d_uk = to.template view<3>("uk"), d.d_uv = to.template view<3>("uv");
    d.d_persistent_k = to.template view<3>("persistent_k"), d.d_persistent_v = to.template view<3>("persistent_v");
    d.d_answer_weight = to.template view<2>("answer_weight");
    d.d_memory_weight = to.template view<2>("memory_weight");
    d.d_prefix.k = to.template view<3>("prefix_k"), d.d_prefix.v = to.template view<3>("prefix_v");
    d.d_prefix.rate = to.template view<3>("prefix_rate"), d.d_prefix.decay = to.template view<2>("prefix_decay");
    d.d_prefix.momentum = to.template view<2>("prefix_momentum");
    d.d_prefix.gain = to.template view<2>("prefix_gain"), d.d_prefix.weight = to.template view<2>("prefix_weight");
    d.d_prefix.threshold = to.template view<2>("prefix_threshold");
    return d;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return arrangement::workspace_bytes<X>(model(), longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return arrangement::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    return arrangement::backward(problem(x, list), gradient(given, to), form, chunk, s, w);
  }
};

}  // namespace ttr_families_test
