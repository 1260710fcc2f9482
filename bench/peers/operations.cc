#include "operations.h"

#include <cmath>
#include <limits>

namespace ttr::peers {
namespace {

Shape square(int heads, int dim) { return {1, heads, 0, dim, dim}; }

struct Sizes {
  std::int64_t heads, key, value;
  explicit Sizes(const Ours& ours)
      : heads(ours.spec().shape.heads), key(ours.spec().shape.key_dim), value(ours.spec().shape.value_dim) {}
  std::int64_t state() const { return heads * key * value; }
};

std::vector<float> zeros(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count), 0.0f); }

// All numbers of an input, each through a function.
template <class F>
std::vector<float> mapped(const Ours& ours, const std::string& name, F f) {
  const std::size_t count =
      ours.numbers_per_token(name) * static_cast<std::size_t>(ours.spec().before + ours.spec().tokens);
  std::vector<float> all(count);
  const float* from = ours.input(name);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<float>(f(static_cast<double>(from[i])));
  return all;
}

// An input [T, H, K] of these tokens as ggml's [K, H, T].
ggml_tensor* rows(Theirs& g, const Ours& ours, const char* name, std::int64_t dim, std::int64_t first,
                  std::int64_t n) {
  return g.on(ours.input(name, first), {dim, Sizes(ours).heads, n});
}

ggml_tensor* factors(Theirs& g, const Ours& ours, const char* name, std::int64_t first, std::int64_t n) {
  const Sizes s(ours);
  const auto& all = g.made(name, [&] { return mapped(ours, name, [](double x) { return std::exp(x); }); });
  return g.on(all.data() + first * s.heads * s.key, {s.key, s.heads, n});
}

ggml_tensor* flat_zeros(Theirs& g, const Ours& ours) {
  const std::int64_t count = Sizes(ours).state();
  return g.on(g.made("zeros", [&] { return zeros(count); }).data(), {count, 1});
}

// The result is [answers of all tokens; state].
Answers answers_then_state(Theirs& g, const Ours& ours, ggml_tensor* node, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  g.result(node);
  state = g.part(node, static_cast<std::size_t>(n * s.heads * s.value), {s.state(), 1});
  return {{"o", node}};
}

Answers gla(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  const float scale = 1 / std::sqrt(static_cast<float>(s.key));
  ggml_tensor* node =
      ggml_gated_linear_attn(g.context(), rows(g, ours, "k", s.key, first, n), rows(g, ours, "v", s.value, first, n),
                             rows(g, ours, "q", s.key, first, n), factors(g, ours, "gk", first, n),
                             state ? state : flat_zeros(g, ours), scale);
  return answers_then_state(g, ours, node, n, state);
}

Answers rwkv_6(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  ggml_tensor* node =
      ggml_rwkv_wkv6(g.context(), rows(g, ours, "k", s.key, first, n), rows(g, ours, "v", s.value, first, n),
                     rows(g, ours, "r", s.key, first, n), g.on(ours.input("u"), {s.key, s.heads}),
                     factors(g, ours, "w", first, n), state ? state : flat_zeros(g, ours));
  return answers_then_state(g, ours, node, n, state);
}

Answers dplr(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  ggml_tensor* node = ggml_rwkv_wkv7(g.context(), rows(g, ours, "q", s.key, first, n),
                                     factors(g, ours, "gk", first, n), rows(g, ours, "k", s.key, first, n),
                                     rows(g, ours, "v", s.value, first, n), rows(g, ours, "a", s.key, first, n),
                                     rows(g, ours, "b", s.key, first, n), state ? state : flat_zeros(g, ours));
  return answers_then_state(g, ours, node, n, state);
}

// kk = normalize(k_raw * k_k), k = k_raw * (1 + (a - 1) * k_a), the operation, and the bonus beside it.
Answers rwkv_7(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  ggml_context* c = g.context();
  const auto token = [&](const char* name) { return rows(g, ours, name, s.key, first, n); };
  const auto constant = [&](const char* name) { return g.on(ours.input(name), {s.key, s.heads}); };
  ggml_tensor *r = token("r"), *raw = token("k_raw"), *a = token("a"), *v = token("v");
  ggml_tensor* w = g.result(ggml_exp(c, token("w")));
  ggml_tensor* kk = g.result(ggml_l2_norm(c, g.result(ggml_mul(c, raw, constant("k_k"))), 1e-12f));
  ggml_tensor* weighted = g.result(ggml_mul(c, raw, constant("k_a")));
  ggml_tensor* changed = g.result(ggml_sub(c, g.result(ggml_mul(c, a, weighted)), weighted));
  ggml_tensor* k = g.result(ggml_add(c, raw, changed));
  ggml_tensor* node = ggml_rwkv_wkv7(c, r, w, k, v, g.result(ggml_neg(c, kk)), g.result(ggml_mul(c, kk, a)),
                                     state ? state : flat_zeros(g, ours));
  Answers answers = answers_then_state(g, ours, node, n, state);
  ggml_tensor* product = g.result(ggml_mul(c, g.result(ggml_mul(c, k, r)), constant("r_k")));
  answers.emplace_back("o_bonus", g.result(ggml_mul(c, v, g.result(ggml_sum_rows(c, product)))));
  return answers;
}

Answers delta(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state, bool channels) {
  const Sizes s(ours);
  const auto head = [&](const char* name, std::int64_t dim) {
    return g.on(ours.input(name, first), {dim, s.heads, n, 1});
  };
  const auto& zero = g.made("zeros", [&] { return zeros(s.state()); });
  ggml_tensor* node = ggml_gated_delta_net(g.context(), head("q", s.key), head("k", s.key), head("v", s.value),
                                           head("g", channels ? s.key : 1), head("beta", 1),
                                           state ? state : g.on(zero.data(), {s.value, s.value, s.heads, 1}), 1);
  Answers answers{{"o", g.result(node)}};
  state = g.part(node, static_cast<std::size_t>(n * s.heads * s.value), {s.value, s.value, s.heads, 1});
  return answers;
}

ggml_tensor* sequence_ids(Theirs& g) {
  return g.on(g.made("ids", [] { return zeros(1); }).data(), GGML_TYPE_I32, {1});
}

double before_softplus(double step) { return step > 30 ? step : std::log(std::expm1(step)); }

// One number per head for A, one group of B and C.
Answers mamba_2(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  const auto& zero = g.made("zeros", [&] { return zeros(s.state()); });
  const auto& steps = g.made("dt", [&] { return mapped(ours, "dt", before_softplus); });
  ggml_tensor* node = ggml_ssm_scan(
      g.context(), state ? state : g.on(zero.data(), {s.key, s.value, s.heads, 1}),
      g.on(ours.input("x", first), {s.value, s.heads, n, 1}), g.on(steps.data() + first * s.heads, {s.heads, n, 1}),
      g.on(ours.input("A"), {1, s.heads}), g.on(ours.input("B", first), {s.key, 1, n, 1}),
      g.on(ours.input("C", first), {s.key, 1, n, 1}), sequence_ids(g), 1);
  Answers answers{{"y", g.result(node)}};
  state = g.part(node, static_cast<std::size_t>(n * s.heads * s.value), {s.key, s.value, s.heads, 1});
  return answers;
}

// Every channel is a head of one value for ggml.
Answers mamba_1(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*& state) {
  const Sizes s(ours);
  const auto& zero = g.made("zeros", [&] { return zeros(s.state()); });
  ggml_tensor* node = ggml_ssm_scan(
      g.context(), state ? state : g.on(zero.data(), {s.key, 1, s.value, 1}),
      g.on(ours.input("u", first), {1, s.value, n, 1}), g.on(ours.input("delta", first), {s.value, n, 1}),
      g.on(ours.input("A"), {s.key, s.value}), g.on(ours.input("B", first), {s.key, 1, n, 1}),
      g.on(ours.input("C", first), {s.key, 1, n, 1}), sequence_ids(g), 1);
  Answers answers{{"y", g.result(node)}};
  state = g.part(node, static_cast<std::size_t>(n * s.value), {s.key, 1, s.value, 1});
  return answers;
}

// A row of `taps - 1 + n` inputs per channel; a graph of ggml makes it by a transposition and a concatenation, not counted here.
Answers convolution(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*&) {
  constexpr std::int64_t taps = 4;
  const std::int64_t channels = ours.spec().shape.value_dim, length = taps - 1 + n;
  const auto& all = g.made("x" + std::to_string(first), [&] {
    std::vector<float> rows = zeros(channels * length);
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t c = 0, t = first + i - (taps - 1); c < channels && t >= 0; ++c)
        rows[static_cast<std::size_t>(c * length + i)] = ours.input("x", t)[c];
    return rows;
  });
  ggml_tensor* node =
      ggml_ssm_conv(g.context(), g.on(all.data(), {length, channels, 1}), g.on(ours.input("w"), {taps, channels}));
  return {{"y", g.result(node)}};
}

// Heads of [T, H, K] as ggml's permuted views [K, T, H] of a cache; later pairs are hidden by a mask, or not in the view.
Answers attention(Theirs& g, const Ours& ours, std::int64_t first, std::int64_t n, ggml_tensor*&, bool half) {
  const Sizes s(ours);
  ggml_context* c = g.context();
  const std::int64_t pairs = first + n;
  const auto kept = [&](const char* name, std::int64_t dim) {
    const auto same = [](double x) { return x; };
    ggml_tensor* all = half ? g.on(g.made_half(name, [&] { return mapped(ours, name, same); }).data(), GGML_TYPE_F16,
                                   {dim, s.heads, pairs})
                            : g.on(ours.input(name), {dim, s.heads, pairs});
    return ggml_permute(c, all, 0, 2, 1, 3);
  };
  ggml_tensor* mask = nullptr;
  if (n > 1) {
    const auto& all = g.made_half("mask", [&] {
      std::vector<float> hidden = zeros(n * pairs);
      for (std::int64_t t = 0; t < n; ++t)
        for (std::int64_t i = first + t + 1; i < pairs; ++i)
          hidden[static_cast<std::size_t>(t * pairs + i)] = -std::numeric_limits<float>::infinity();
      return hidden;
    });
    mask = g.on(all.data(), GGML_TYPE_F16, {pairs, n});
  }
  ggml_tensor* q = ggml_permute(c, rows(g, ours, "q", s.key, first, n), 0, 2, 1, 3);
  ggml_tensor* node = ggml_flash_attn_ext(c, q, kept("k", s.key), kept("v", s.value), mask,
                                          1 / std::sqrt(static_cast<float>(s.key)), 0, 0);
  return {{"o", g.result(node)}};
}

std::vector<Operation> list() {
  std::vector<Operation> all;
  all.push_back({"gla", "gla", "gated_linear_attn", square, gla});
  all.push_back({"rwkv-6", "rwkv-6", "rwkv_wkv6", square, rwkv_6});
  all.push_back({"rwkv-7, operation", "dplr", "rwkv_wkv7", square, dplr});
  all.back().scale = 1;
  all.push_back({"rwkv-7, with preparation", "rwkv-7", "rwkv_wkv7 and 13 others", square, rwkv_7});
  for (const bool channels : {false, true})
    all.push_back({channels ? "kda" : "gated-deltanet", channels ? "kda" : "gated-deltanet", "gated_delta_net",
                   square, [channels](auto& g, const auto& o, auto first, auto n, auto& state) {
                     return delta(g, o, first, n, state, channels);
                   }});
  all.push_back({"mamba-2", "mamba-2:skip=none", "ssm_scan",
                 [](int heads, int dim) {
                   return Shape{1, heads, 1, dim, 64};
                 },
                 mamba_2});
  all.push_back({"mamba-1", "mamba-1:skip=none,gate=none,bias=none", "ssm_scan",
                 [](int heads, int dim) {
                   return Shape{1, 1, 0, 16, heads * dim};
                 },
                 mamba_1, false});
  all.push_back({"short-convolution", "short-convolution:activation=none,bias=none", "ssm_conv",
                 [](int heads, int dim) {
                   return Shape{1, 1, 0, dim, 3 * heads * dim};
                 },
                 convolution, false});
  for (const bool half : {false, true}) {
    all.push_back({half ? "softmax, K and V in f16" : "softmax", "softmax-attention", "flash_attn_ext", square,
                   [half](auto& g, const auto& o, auto first, auto n, auto& state) {
                     return attention(g, o, first, n, state, half);
                   },
                   false});
    all.back().pairs = true, all.back().half_pairs = half;
    if (half) all.back().tolerance = 5e-2;  // ggml adds 4096 values in half precision, and their mean is small
  }
  return all;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = list();
  return all;
}

}  // namespace ttr::peers
