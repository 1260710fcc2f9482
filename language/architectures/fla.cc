// The models of flash-linear-attention but RWKV-7 and Mamba-2, which have files of their own:
//
//   x += attn(RMS(x)), x += down(silu(gate x) * up x) of RMS(x) for every block ;  logits = head RMS(x)
//
// `attn` by model_type, or softmax attention in the blocks that the configuration's `attn` lists (hybrids). Tensors are
// model.embeddings, model.layers.i.{attn_norm, attn.., mlp_norm, mlp..}, model.norm, lm_head.
//
// Traps: the gated norm of these models norms first and gates after. l2 norms add 1e-6 inside the root. HGRN2's norm is
// over the whole row, with eps 1e-5 whatever the configuration says. KDA gates its output by sigmoid. MesaNet was
// trained with 30 steps of conjugate gradients; here its system is solved. Early checkpoints have one matrix for gate and up.
#include <algorithm>
#include <cmath>

#include "language/architectures/architecture.h"
#include "ttr/status.h"

namespace ttr::model {
namespace {

// One block's attention: its prefix, its input, and what its model says.
struct Attention {
  Graph& g;
  Source& s;
  std::string before;  // "model.layers.3.attn."
  Value x;
  int layer;
  double eps;
  const Settings& c;

  std::string name(const std::string& of) const { return before + of; }
  bool has(const std::string& of) const { return s.has(before + of); }
  Value project(const std::string& of, Size out) const { return linear(g, s, x, before + of, out); }
  Size rows(const std::string& of) const { return s.shape(before + of + ".weight")[0]; }
  Value out(Value o) const { return linear(g, s, o, before + "o_proj", x.width); }
  /// A convolution, if the model has them.
  Value convolved(Value v, const std::string& of, bool silu) const {
    return has(of + ".weight") ? convolve(g, s, v, before + of, silu) : v;
  }
  int heads(int otherwise) const { return c.whole("num_heads", otherwise, 1); }
  /// A norm of each head, with a gate if there is one: named g_norm_swish_gate, g_norm or o_norm.
  Value normed(Value o, const std::string& norm, Size H, Value gate, Op gated) const {
    if (!gate.there()) return rms_norm(g, s, o, name(norm) + ".weight", eps, H);
    return g.apply(gated, {o, gate, s.vector(name(norm) + ".weight", o.width / H)}, eps, H);
  }
  std::string swish_norm() const { return has("g_norm_swish_gate.weight") ? "g_norm_swish_gate" : "g_norm"; }
};

using Build = Value (*)(const Attention&);

Shape shape_of(Size heads, Size key_heads, Size key_dim, Size value_dim) {
  return {.heads = static_cast<int>(heads),
          .key_heads = static_cast<int>(key_heads),
          .key_dim = static_cast<int>(key_dim),
          .value_dim = static_cast<int>(value_dim)};
}
void refuse(const Attention& a, const char* key, bool otherwise, bool supported) {
  if (a.c.flag(key, otherwise) != supported)
    throw Error(std::string("the configuration has ") + key + " = " + (supported ? "false" : "true") +
                    ", which is not supported",
                key);
}
void no_feature_map(const Attention& a) {
  if (!a.c.text("feature_map", "").empty())
    throw Error("the configuration has feature_map = '" + a.c.text("feature_map") + "', which is not supported for " +
                    a.c.text("model_type"),
                "feature_map");
}

// q, k, v of grouped heads: k and v for every head.
struct Heads {
  Value q, k, v;
  Size H, K, V, groups;
};
Heads grouped(const Attention& a, int heads) {
  const Size H = a.heads(heads), kv = a.c.whole("num_kv_heads", static_cast<int>(H), 1), groups = H / kv;
  if (H % kv != 0)
    throw Error("num_heads " + std::to_string(H) + " is not a multiple of num_kv_heads " + std::to_string(kv),
                "num_kv_heads");
  const Value q = a.convolved(a.project("q_proj", a.rows("q_proj")), "q_conv1d", true);
  const Value k = a.convolved(a.project("k_proj", a.rows("k_proj")), "k_conv1d", true);
  const Value v = a.convolved(a.project("v_proj", a.rows("v_proj")), "v_conv1d", true);
  return {q, k, v, H, q.width / H, v.width / kv, groups};
}

Value gla(const Attention& a) {
  no_feature_map(a);
  if (a.c.has("clamp_min")) throw Error("the configuration has clamp_min, which is not supported", "clamp_min");
  Heads h = grouped(a, 4);
  const Value low = linear(a.g, a.s, a.x, a.name("gk_proj.0"), a.rows("gk_proj.0"));
  const Value raw = linear(a.g, a.s, low, a.name("gk_proj.1"), a.rows("gk_proj.1"));
  const Value gk = a.g.apply(Op::log_sigmoid, {raw}, 16);
  const Size kv = h.H / h.groups;
  MixerNode node;
  node.layer = "gla", node.shape = shape_of(h.H, h.H, h.K, h.V);
  node.inputs = {{"q", h.q, {h.H, h.K}},
                 {"k", repeat_heads(a.g, h.k, kv, h.groups), {h.H, h.K}},
                 {"v", repeat_heads(a.g, h.v, kv, h.groups), {h.H, h.V}},
                 {"gk", repeat_heads(a.g, gk, kv, h.groups), {h.H, h.K}}};
  node.outputs = {{"o", {h.H, h.V}}};
  const Value o = a.g.mix(std::move(node))[0];
  const Value gate = a.has("g_proj.weight") ? a.project("g_proj", o.width) : Value();
  return a.out(a.normed(o, a.swish_norm(), h.H, gate, Op::rms_gate_norm_first_silu));
}

Value retnet(const Attention& a) {
  no_feature_map(a);
  Heads h = grouped(a, 8);
  const Size kv = h.H / h.groups;
  const Value q = a.g.turn(h.q, h.H, h.K, 10000), k = a.g.turn(h.k, kv, h.K, 10000);
  MixerNode node;
  node.layer = "retnet", node.shape = shape_of(h.H, h.H, h.K, h.V);
  node.inputs = {{"q", q, {h.H, h.K}},
                 {"k", repeat_heads(a.g, k, kv, h.groups), {h.H, h.K}},
                 {"v", repeat_heads(a.g, h.v, kv, h.groups), {h.H, h.V}}};
  node.outputs = {{"o", {h.H, h.V}}};
  const Value o = a.g.mix(std::move(node))[0];
  const Value gate = a.has("g_proj.weight") ? a.project("g_proj", o.width) : Value();
  return a.out(a.normed(o, a.swish_norm(), h.H, gate, Op::rms_gate_norm_first_silu));
}

// beta = sigmoid(b x), doubled where eigenvalues may be negative.
Value beta_of(const Attention& a, Size count) {
  const Value beta = sigmoid(a.g, a.project("b_proj", count));
  return a.c.flag("allow_neg_eigval", false) ? a.g.apply(Op::scale, {beta}, 2) : beta;
}
// -exp(A_log) softplus(a x + dt_bias)
Value log_decay(const Attention& a, Size heads) {
  const Value raw = a.g.add(a.project("a_proj", heads), a.s.vector(a.name("dt_bias"), heads));
  return a.g.multiply(a.g.apply(Op::softplus, {raw}), a.s.vector(a.name("A_log"), heads, minus_exp));
}

Value delta_net(const Attention& a) {
  refuse(a, "use_beta", true, true);
  const std::string activation = a.c.text("qk_activation", "silu"), norm = a.c.text("qk_norm", "l2");
  const Size H = a.heads(16);
  const bool convs = a.has("q_conv1d.weight");
  const auto key = [&](const std::string& which) {
    Value y = a.project(which + "_proj", a.rows(which + "_proj"));
    if (convs) y = a.convolved(y, which + "_conv1d", activation == "silu");
    else if (activation == "silu") y = silu(a.g, y);
    if (activation == "relu") y = a.g.apply(Op::relu, {y});
    else if (activation == "elu") y = a.g.apply(Op::elu1, {y});
    else if (activation != "silu" && activation != "identity")
      throw Error("qk_activation is '" + activation + "'; silu, relu, elu and identity are supported",
                  "qk_activation");
    if (norm == "sum") return a.g.apply(Op::sum_norm, {y}, 0, H);
    if (norm != "l2") throw Error("qk_norm is '" + norm + "'; l2 and sum are supported", "qk_norm");
    return unit_heads(a.g, y, H);
  };
  const Value q = key("q"), k = key("k");
  Value v = a.project("v_proj", a.rows("v_proj"));
  v = convs ? a.convolved(v, "v_conv1d", true) : silu(a.g, v);
  const Size K = q.width / H, V = v.width / H;
  MixerNode node;
  node.layer = "deltanet", node.shape = shape_of(H, H, K, V);
  node.inputs = {{"q", q, {H, K}}, {"k", k, {H, K}}, {"v", v, {H, V}}, {"beta", beta_of(a, H), {H}}};
  node.outputs = {{"o", {H, V}}};
  const Value o = a.g.mix(std::move(node))[0];
  const Value gate = a.has("g_proj.weight") ? a.project("g_proj", o.width) : Value();
  return a.out(a.normed(o, "o_norm", H, gate, Op::rms_gate_norm_first_silu));
}

Value gated_deltanet(const Attention& a) {
  a.s.ignore(a.name("D"));  // of early versions, which did not use it
  const Size H = a.heads(6), HV = a.c.whole("num_v_heads", static_cast<int>(H), 1);
  const auto part = [&](const std::string& which) {
    return a.convolved(a.project(which + "_proj", a.rows(which + "_proj")), which + "_conv1d", true);
  };
  const Value q = unit_heads(a.g, part("q"), H), k = unit_heads(a.g, part("k"), H), v = part("v");
  const Size K = q.width / H, V = v.width / HV;
  MixerNode node;
  node.layer = "gated-deltanet", node.shape = shape_of(HV, H, K, V);
  node.inputs = {{"q", q, {H, K}},
                 {"k", k, {H, K}},
                 {"v", v, {HV, V}},
                 {"beta", beta_of(a, HV), {HV}},
                 {"g", log_decay(a, HV), {HV}}};
  node.outputs = {{"o", {HV, V}}};
  const Value o = a.g.mix(std::move(node))[0];
  const Value gate = a.has("g_proj.weight") ? a.project("g_proj", o.width) : Value();
  return a.out(a.normed(o, "o_norm", HV, gate, Op::rms_gate_norm_first_silu));
}

Value gated_deltaproduct(const Attention& a) {
  const int n = a.c.whole("num_householder", 1, 1);
  const bool forget = a.has("a_proj.weight");
  const Size H = a.heads(6);
  if (a.c.whole("num_v_heads", static_cast<int>(H), 1) != H)
    throw Error("num_v_heads is not num_heads, which is not supported for gated_deltaproduct", "num_v_heads");
  const auto part = [&](const std::string& which) {
    return a.convolved(a.project(which + "_proj", a.rows(which + "_proj")), which + "_conv1d", true);
  };
  const Value q = unit_heads(a.g, part("q"), H), k = unit_heads(a.g, part("k"), n * H), v = part("v");
  const Size K = q.width / H, V = v.width / (n * H);
  MixerNode node;
  const std::string pairs = ":n=" + std::to_string(n);
  node.layer =
      n == 1 ? forget ? "gated-deltanet" : "deltanet" : (forget ? "gated-deltaproduct" : "deltaproduct") + pairs;
  node.shape = shape_of(H, H, K, V);
  node.inputs = {{"q", q, {H, K}},
                 {"k", k, {H, K}, false, n},
                 {"v", v, {H, V}, false, n},
                 {"beta", beta_of(a, n * H), {H}, false, n}};
  if (forget) node.inputs.push_back({"g", log_decay(a, H), {H}});
  node.outputs = {{"o", {H, V}}};
  const Value o = a.g.mix(std::move(node))[0];
  const Value gate = a.has("g_proj.weight") ? a.project("g_proj", o.width) : Value();
  return a.out(a.normed(o, "o_norm", H, gate, Op::rms_gate_norm_first_silu));
}

Value hgrn2(const Attention& a) {
  const Size D = a.x.width, K = a.c.whole("expand_ratio", 128, 1);
  const Size H = a.c.whole("num_heads", static_cast<int>(D / K), 1);
  const auto part = [&](const std::string& which) {
    return a.convolved(a.project(which + "_proj", a.rows(which + "_proj")), which + "_conv1d", false);
  };
  const Value q = part("q"), f = part("f"), i = part("i");
  // The bound of a layer is the sum of a softmax over layers up to it, without the first.
  std::vector<double> bound(static_cast<std::size_t>(f.width), 0.0);
  const bool bounded = a.c.flag("use_lower_bound", true) && a.s.has("model.lower_bounds");
  if (bounded) {
    const Size layers = a.c.whole("num_hidden_layers", a.s.count("model.layers."), 1);
    const std::vector<double> all = a.s.numbers("model.lower_bounds", layers * f.width);
    for (Size j = 0; j < f.width; ++j) {
      const auto of = [&](Size l) { return all[static_cast<std::size_t>(l * f.width + j)]; };
      double most = of(0), sum = 0, part_sum = 0;
      for (Size l = 1; l < layers; ++l) most = std::max(most, of(l));
      for (Size l = 0; l < layers; ++l) sum += std::exp(of(l) - most);
      for (Size l = 1; l <= a.layer; ++l) part_sum += std::exp(of(l) - most) / sum;
      bound[static_cast<std::size_t>(j)] = part_sum;
    }
  }
  const Size V = i.width / H, KH = f.width / H;
  MixerNode node;
  node.layer = "hgrn-2", node.shape = shape_of(H, H, KH, V);
  node.inputs = {{"q", q, {H, KH}}, {"f", f, {H, KH}}, {"i", i, {H, V}}, {"lower_bound", numbers_of(bound), {H, KH}}};
  node.outputs = {{"o", {H, V}}};
  return a.out(rms_norm(a.g, a.s, a.g.mix(std::move(node))[0], a.name("g_norm.weight"), 1e-5));
}

Value kda(const Attention& a) {
  const Size H = a.heads(16), HV = a.c.whole("num_v_heads", static_cast<int>(H), 1);
  const auto part = [&](const std::string& which) {
    return a.convolved(a.project(which + "_proj", a.rows(which + "_proj")), which + "_conv1d", true);
  };
  const Value q = unit_heads(a.g, part("q"), H), k = unit_heads(a.g, part("k"), H), v = part("v");
  const Size K = q.width / H, V = v.width / HV;
  const auto through = [&](const std::string& of, Size out) {
    return linear(a.g, a.s, a.project(of + ".0", a.rows(of + ".0")), a.name(of + ".1"), out);
  };
  const Value f = a.g.add(through("f_proj", HV * K), a.s.vector(a.name("dt_bias"), HV * K));
  const std::vector<double> rate = a.s.numbers(a.name("A_log"), HV);
  std::vector<double> every;
  const double bound = a.c.number("lower_bound", 0);
  for (Size h = 0; h < HV; ++h)
    every.insert(every.end(), static_cast<std::size_t>(K),
                 (bound != 0 ? 1 : -1) * std::exp(rate[static_cast<std::size_t>(h)]));
  const Numbers rates = numbers_of(std::move(every));
  const Value g = bound != 0 ? a.g.apply(Op::scale, {sigmoid(a.g, a.g.multiply(f, rates))}, bound)
                             : a.g.multiply(a.g.apply(Op::softplus, {f}), rates);
  MixerNode node;
  node.layer = "kda", node.shape = shape_of(HV, H, K, V);
  node.inputs = {
      {"q", q, {H, K}}, {"k", k, {H, K}}, {"v", v, {HV, V}}, {"g", g, {HV, K}}, {"beta", beta_of(a, HV), {HV}}};
  node.outputs = {{"o", {HV, V}}};
  const Value o = a.g.mix(std::move(node))[0];
  return a.out(a.normed(o, "o_norm", HV, through("g_proj", o.width), Op::rms_gate_norm_first_sigmoid));
}

Value mesa_net(const Attention& a) {
  const Size H = a.heads(16);
  const auto part = [&](const std::string& which) {
    return a.convolved(a.project(which + "_proj", a.rows(which + "_proj")), which + "_conv1d", true);
  };
  const Value q = unit_heads(a.g, part("q"), H), k = unit_heads(a.g, part("k"), H);
  const Value v = a.project("v_proj", a.rows("v_proj"));
  const Size K = q.width / H, V = v.width / H;
  const double least = a.c.number("lambda_lower_bound", 0.25);
  const Numbers ridge = a.s.vector(a.name("lambda_params"), H * K, [&](double x) {
    return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) + least;
  });
  MixerNode node;
  node.layer = "mesanet", node.shape = shape_of(H, H, K, V);
  node.inputs = {{"q", q, {H, K}},        {"k", k, {H, K}},
                 {"v", v, {H, V}},        {"g", a.g.apply(Op::log_sigmoid, {a.project("a_proj", H)}), {H}},
                 {"lamb", ridge, {H, K}}, {"beta", sigmoid(a.g, a.project("b_proj", H)), {H}}};
  node.outputs = {{"o", {H, V}}};
  const Value o = a.g.mix(std::move(node))[0];
  const Value gate = a.has("g_proj.weight") ? a.project("g_proj", o.width) : Value();
  return a.out(a.normed(o, "o_norm", H, gate, Op::rms_gate_norm_first_silu));
}

Value linear_attn(const Attention& a) {
  refuse(a, "norm_q", false, false);
  refuse(a, "norm_k", false, false);
  Heads h = grouped(a, 4);
  const Size kv = h.H / h.groups;
  const std::string map = a.c.text("feature_map", "elementwise_product");
  const auto features = [&](Value y, Size heads, const std::string& which) {
    const std::string of = a.name("feature_map_" + which);
    const auto layer = [&](const std::string& name, double factor) {
      const std::vector<double> from = a.s.numbers(of + "." + name + ".weight", h.K * h.K);
      std::vector<float> to(from.begin(), from.end());
      for (float& x : to) x *= static_cast<float>(factor);
      return to;
    };
    const auto bias = [&](const std::string& name, double factor) {
      const std::string full = of + "." + name + ".bias";
      if (!a.s.has(full)) return std::vector<double>(static_cast<std::size_t>(h.K), 0.0);
      std::vector<double> b = a.s.numbers(full, h.K);
      for (double& x : b) x *= factor;
      return b;
    };
    if (map == "elementwise_product") {
      const auto one = [&](const char* name) {
        return a.g.linear(y, Matrix::of(h.K, h.K, layer(name, 1)), numbers_of(bias(name, 1)), heads);
      };
      return a.g.multiply(one("layer1"), one("layer2"));
    }
    if (map == "hedgehog") {  // softmax([2z; -2z])
      std::vector<float> both = layer("layer", 2), negative = layer("layer", -2);
      both.insert(both.end(), negative.begin(), negative.end());
      std::vector<double> b = bias("layer", 2), minus = bias("layer", -2);
      b.insert(b.end(), minus.begin(), minus.end());
      return a.g.apply(Op::softmax, {a.g.linear(y, Matrix::of(2 * h.K, h.K, std::move(both)), numbers_of(b), heads)},
                       0, heads);
    }
    if (map == "elu") return a.g.apply(Op::elu1, {y});
    if (map == "relu") return a.g.apply(Op::relu, {y});
    if (map == "identity") return y;
    throw Error("feature_map is '" + map + "'; elementwise_product, hedgehog, elu, relu and identity are supported",
                "feature_map");
  };
  const Value q = features(h.q, h.H, "q"), k = features(h.k, kv, "k");
  const Size F = q.width / h.H;
  MixerNode node;
  node.layer = a.c.flag("norm_feature_map", false) ? "linear-attention:normalise=keysum,normalise_eps=1e-10"
                                                   : "linear-attention";
  node.shape = shape_of(h.H, h.H, F, h.V);
  node.inputs = {{"q", q, {h.H, F}},
                 {"k", repeat_heads(a.g, k, kv, h.groups), {h.H, F}},
                 {"v", repeat_heads(a.g, h.v, kv, h.groups), {h.H, h.V}}};
  node.outputs = {{"o", {h.H, h.V}}};
  return a.out(rms_norm(a.g, a.s, a.g.mix(std::move(node))[0], a.name("norm.weight"), a.eps, h.H));
}

// Softmax attention; its settings stand in the configuration behind `of` ("" or "attn.").
Value attention(const Attention& a, const std::string& of) {
  const Size H = a.c.whole(of + "num_heads", of.empty() ? 32 : std::optional<int>(), 1);
  const Size G = a.c.whole(of + "num_kv_heads", static_cast<int>(H), 1);
  Value q = a.project("q_proj", a.rows("q_proj")), k = a.project("k_proj", a.rows("k_proj"));
  const Value v = a.project("v_proj", a.rows("v_proj"));
  if (H % G != 0 || q.width % H != 0 || k.width % G != 0)
    throw Error("num_heads " + std::to_string(H) + " and num_kv_heads " + std::to_string(G) +
                    " do not divide the rows of '" + a.name("q_proj.weight") + "'",
                of + "num_heads");
  const Size K = q.width / H;
  if (a.has("q_norm.weight")) {
    q = rms_norm(a.g, a.s, q, a.name("q_norm.weight"), 1e-5, H);
    k = rms_norm(a.g, a.s, k, a.name("k_norm.weight"), 1e-5, G);
  }
  const double base = a.c.number(of + "rope_theta", 10000);
  q = a.g.turn(q, H, K, base), k = a.g.turn(k, G, K, base);
  MixerNode node;
  const std::string window = of + "window_size";
  node.layer = "softmax-attention" + (a.c.has(window) ? ":window=" + std::to_string(a.c.whole(window, {}, 1)) : "");
  node.shape = shape_of(H, G, K, v.width / G);
  node.inputs = {{"q", q, {H, K}}, {"k", k, {G, K}}, {"v", v, {G, v.width / G}}};
  node.outputs = {{"o", {H, v.width / G}}};
  return a.out(a.g.mix(std::move(node))[0]);
}
Value transformer(const Attention& a) { return attention(a, ""); }

struct Kind {
  const char* model_type;
  Build build;
};
constexpr Kind kinds[] = {{"gla", gla},
                          {"retnet", retnet},
                          {"delta_net", delta_net},
                          {"gated_deltanet", gated_deltanet},
                          {"gated_deltaproduct", gated_deltaproduct},
                          {"hgrn2", hgrn2},
                          {"kda", kda},
                          {"mesa_net", mesa_net},
                          {"linear_attn", linear_attn},
                          {"transformer", transformer}};

const Kind* kind_of(const Source& s) {
  if (s.gguf() || !s.settings().has("model_type")) return nullptr;
  const std::string type = s.settings().text("model_type");
  for (const Kind& kind : kinds)
    if (type == kind.model_type) return &kind;
  return nullptr;
}

// Where the configuration lists block `i` for softmax attention: "attn.", "attn.0.", ... or empty.
std::string hybrid(const Settings& c, int i) {
  const auto lists = [&](const std::string& of) {
    const std::vector<double> layers = c.numbers(of + "layers");
    return std::find(layers.begin(), layers.end(), static_cast<double>(i)) != layers.end();
  };
  if (c.has("attn.layers") && lists("attn.")) return "attn.";
  for (int j = 0; c.has("attn." + std::to_string(j) + ".layers"); ++j)
    if (lists("attn." + std::to_string(j) + ".")) return "attn." + std::to_string(j) + ".";
  return "";
}

void build(Source& s, Graph& g) {
  const Kind& kind = *kind_of(s);
  const Settings& c = s.settings();
  if (c.has("attnres_block_size"))
    throw Error("the configuration has attnres_block_size: another residual scheme, which is not supported",
                "attnres_block_size");
  const double eps = c.number("norm_eps", c.number("rms_norm_eps", 1e-6));
  const bool early = s.has("model.embed_tokens.weight");
  const Matrix embedding = s.matrix(early ? "model.embed_tokens.weight" : "model.embeddings.weight", -1, -1);
  g.stream = embedding.in, g.layers = s.count("model.layers.");
  s.ignore("rotary.inv_freq");
  Value x = g.embed(embedding);
  for (int i = 0; i < g.layers; ++i) {
    const std::string block = at("model.layers.", i, "");
    const Value h = rms_norm(g, s, x, block + "attn_norm.weight", eps);
    const Attention a{g, s, block + "attn.", h, i, eps, c};
    const std::string softmax = hybrid(c, i);
    x = g.add(x, softmax.empty() ? kind.build(a) : attention(a, softmax));
    const Value m = rms_norm(g, s, x, block + "mlp_norm.weight", eps);
    x = g.add(x, swiglu(g, s, m, block + "mlp.gate_proj.weight", block + "mlp.up_proj.weight",
                        block + "mlp.down_proj.weight"));
  }
  g.hidden = rms_norm(g, s, x, "model.norm.weight", eps);
  g.head = s.has("lm_head.weight") ? s.matrix("lm_head.weight", -1, embedding.in) : embedding;
}

}  // namespace

extern const Architecture fla = {"fla",
                                 "flash-linear-attention: gla, retnet, delta_net, gated_deltanet, "
                                 "gated_deltaproduct, hgrn2, kda, mesa_net, linear_attn, "
                                 "transformer, and hybrids with softmax attention",
                                 [](const Source& s) { return kind_of(s) != nullptr; }, build};

}  // namespace ttr::model
