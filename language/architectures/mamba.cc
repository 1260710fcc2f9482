// Mamba and Mamba-2, with the names of the original code (backbone.embedding), of Hugging Face and flash-linear-attention
// (backbone.embeddings) and of GGUF:
//
//   x += mixer(RMS(x)) for every block ;  logits = head RMS(x)
//
//   1   x, z = in(x) ;  x = silu(conv(x) + b) ;  dt, B, C = proj(x) ;  dt = map(dt) ;  y = mamba-1(x, dt, B, C) silu(z)
//   2   z, x, B, C, dt = in(x) ;  (x, B, C) = silu(conv + b) ;  dt = softplus(dt + bias) ;
//       y = RMS(mamba-2(x, dt, B, C) silu(z)) per group
//
// Gu, Dao 2023 (arXiv 2312.00752); Dao, Gu 2024 (2405.21060).
//
// Traps: Mamba-2 gates first and norms after. The original, flash-linear-attention and GGUF norm each group of channels by
// itself, Hugging Face's mamba2 all of them (setting norm_groups decides where there are several). GGUF has -exp(A_log)
// and not A_log.
#include <cmath>

#include "language/architectures/architecture.h"
#include "ttr/status.h"

namespace ttr::model {
namespace {

// Codestral puts "model." before everything.
std::string prefix(const Source& s) { return s.has("model.backbone.norm_f.weight") ? "model." : ""; }
std::string mixer_name(const Source& s, const char* name) { return prefix(s) + "backbone.layers.0.mixer." + name; }

struct Layout {
  std::string embedding, final_norm, head, layers, norm, mixer;
  std::string in, conv, x, dt, a, d, out, gate_norm;  // of the mixer
};
Layout layout(const Source& s) {
  if (s.gguf())
    return {"token_embd.weight",
            "output_norm.weight",
            "output.weight",
            "blk.",
            "attn_norm.weight",
            "",
            "ssm_in.weight",
            "ssm_conv1d",
            "ssm_x.weight",
            "ssm_dt",
            "ssm_a",
            "ssm_d",
            "ssm_out.weight",
            "ssm_norm.weight"};
  const std::string p = prefix(s);
  const std::string embedding = p + "backbone.embedding.weight";
  return {s.has(embedding) ? embedding : p + "backbone.embeddings.weight",
          p + "backbone.norm_f.weight",
          p + "lm_head.weight",
          p + "backbone.layers.",
          "norm.weight",
          "mixer.",
          "in_proj.weight",
          "conv1d",
          "x_proj.weight",
          "dt_proj",
          "A_log",
          "D",
          "out_proj.weight",
          "norm.weight"};
}

template <class Mixer>
void skeleton(Source& s, Graph& g, const char* eps_key, Mixer&& mixer) {
  const Layout n = layout(s);
  const double eps =
      s.settings().number(s.gguf() ? eps_key : "layer_norm_epsilon", s.settings().number("norm_eps", 1e-5));
  const Matrix embedding = s.matrix(n.embedding, -1, -1);
  g.stream = embedding.in, g.layers = s.count(n.layers);
  Value x = g.embed(embedding);
  for (int i = 0; i < g.layers; ++i) {
    const auto name = [&](const std::string& of) { return at(n.layers, i, n.mixer + of); };
    const Value h = rms_norm(g, s, x, at(n.layers, i, n.norm), eps);
    x = g.add(x, mixer(n, name, h, eps));
  }
  g.hidden = rms_norm(g, s, x, n.final_norm, eps);
  g.head = s.has(n.head) ? s.matrix(n.head, -1, embedding.in) : embedding;
}

void build_1(Source& s, Graph& g) {
  if (s.settings().flag("mamba.ssm.dt_b_c_rms", false))
    throw Error("mamba.ssm.dt_b_c_rms is set: FalconMamba norms dt, B and C, which is not supported",
                "mamba.ssm.dt_b_c_rms");
  skeleton(s, g, "mamba.attention.layer_norm_rms_epsilon", [&](const Layout& n, const auto& name, Value h, double) {
    const Value both = linear(g, s, h, name(n.in.substr(0, n.in.size() - 7)), s.shape(name(n.in))[0]);
    const Size di = both.width / 2;
    const Value x = convolve(g, s, Graph::part(both, 0, di), name(n.conv), true), z = Graph::part(both, di, di);
    const Value rest = g.linear(x, s.matrix(name(n.x), -1, di));
    const Size N = static_cast<Size>(s.numbers(name(n.a)).size()) / di, R = rest.width - 2 * N;
    const Value delta = g.linear(Graph::part(rest, 0, R), s.matrix(name(n.dt) + ".weight", di, R));
    MixerNode node;
    node.layer = "mamba-1";
    node.shape = {.heads = 1, .key_dim = static_cast<int>(N), .value_dim = static_cast<int>(di)};
    node.inputs = {{"u", x, {1, di}},
                   {"delta", delta, {1, di}},
                   {"A", s.gguf() ? s.vector(name(n.a), di * N) : s.vector(name(n.a), di * N, minus_exp), {1, di, N}},
                   {"B", Graph::part(rest, R, N), {1, N}},
                   {"C", Graph::part(rest, R + N, N), {1, N}},
                   {"D", s.vector(name(n.d), di), {1, di}},
                   {"z", z, {1, di}},
                   {"delta_bias", s.vector(name(n.dt) + ".bias", di), {1, di}}};
    node.outputs = {{"y", {1, di}}};
    return linear(g, s, g.mix(std::move(node))[0], name(n.out.substr(0, n.out.size() - 7)), h.width);
  });
}

void build_2(Source& s, Graph& g) {
  const Settings& c = s.settings();
  const std::vector<double> limits = c.numbers("time_step_limit");
  if (limits.size() == 2 && (limits[0] > 0 || limits[1] < 1e300))
    throw Error("time_step_limit is given; only (0, infinity) is supported", "time_step_limit");
  if (c.flag("norm_before_gate", false))
    throw Error("norm_before_gate is true, which is not supported", "norm_before_gate");
  skeleton(
      s, g, "mamba2.attention.layer_norm_rms_epsilon", [&](const Layout& n, const auto& name, Value h, double eps) {
        const std::string in = name(n.in.substr(0, n.in.size() - 7));
        const Value all = linear(g, s, h, in, s.shape(name(n.in))[0]);
        const Size H = static_cast<Size>(s.numbers(name(n.a)).size());
        const Size conv = s.shape(name(n.conv) + ".weight")[0];  // di + 2 G N
        const Size di = all.width - conv - H;
        if (di < 1 || (conv - di) % 2 != 0 || conv <= di || di % H != 0)
          throw Error(
              "the tensor '" + name(n.in) + "' has " + std::to_string(all.width) +
                  " rows, which are not z, x, B, C and dt: a Mamba-2 with a perceptron beside it is not supported",
              name(n.in));
        const Size of_groups = (conv - di) / 2;  // G N
        const int G = s.gguf() ? c.whole("mamba2.ssm.group_count", {}, 1)
                               : c.whole("n_groups", c.whole("ssm_cfg.ngroups", 1, 1), 1);
        if (of_groups % G != 0)
          throw Error("n_groups is " + std::to_string(G) + " and B has " + std::to_string(of_groups) + " channels",
                      "n_groups");
        const Size N = of_groups / G, P = di / H;
        const Value z = Graph::part(all, 0, di);
        const Value xbc = convolve(g, s, Graph::part(all, di, conv), name(n.conv), true);
        const std::string bias = s.gguf() ? name("ssm_dt.bias") : name("dt_bias");
        const Value dt = g.apply(Op::softplus, {g.add(Graph::part(all, di + conv, H), s.vector(bias, H))});
        // Heads that share B and C share nothing else: in four parts, which threads take one by one.
        const Size cut = G == 1 ? H : G, parts = cut % 4 == 0 ? 4 : cut % 2 == 0 ? 2 : 1;
        const Size heads = H / parts, groups = G == 1 ? 1 : G / parts;
        const std::vector<double> rates = s.gguf() ? s.numbers(name(n.a), H) : *s.vector(name(n.a), H, minus_exp);
        const std::vector<double> skips = s.numbers(name(n.d), H);
        std::vector<Value> made;
        for (Size part = 0; part < parts; ++part) {
          const auto some = [&](const std::vector<double>& of_all) {
            return numbers_of({of_all.begin() + part * heads, of_all.begin() + (part + 1) * heads});
          };
          const Size group = G == 1 ? 0 : part * groups * N;
          MixerNode node;
          node.layer = "mamba-2";
          node.shape = {.heads = static_cast<int>(heads),
                        .key_heads = static_cast<int>(groups),
                        .key_dim = static_cast<int>(N),
                        .value_dim = static_cast<int>(P)};
          node.inputs = {{"x", Graph::part(xbc, part * heads * P, heads * P), {heads, P}},
                         {"dt", Graph::part(dt, part * heads, heads), {heads}},
                         {"A", some(rates), {heads}},
                         {"B", Graph::part(xbc, di + group, groups * N), {groups, N}},
                         {"C", Graph::part(xbc, di + of_groups + group, groups * N), {groups, N}},
                         {"D", some(skips), {heads}}};
          node.outputs = {{"y", {heads, P}}};
          made.push_back(g.mix(std::move(node))[0]);
        }
        const bool hf = !s.gguf() && c.text("model_type", "") == "mamba2" && !c.has("fla_version") &&
                        !c.has("fuse_norm") && c.has("layer_norm_epsilon");
        const int norms = c.whole("norm_groups", hf ? 1 : G, 1);
        const Value y =
            g.apply(Op::rms_gate_gate_first_silu, {g.join(made), z, s.vector(name(n.gate_norm), di)}, eps, norms);
        return linear(g, s, y, name(n.out.substr(0, n.out.size() - 7)), h.width);
      });
}

}  // namespace

extern const Architecture mamba_2 = {
    "mamba-2", "Mamba-2: names of the original, Hugging Face and flash-linear-attention mamba2, GGUF mamba2",
    [](const Source& s) { return s.has(mixer_name(s, "dt_bias")) || is_gguf(s, "mamba2"); }, build_2};
extern const Architecture mamba_1 = {
    "mamba-1", "Mamba: names of the original, Hugging Face mamba, GGUF mamba",
    [](const Source& s) { return s.has(mixer_name(s, "x_proj.weight")) || is_gguf(s, "mamba"); }, build_1};

}  // namespace ttr::model
