// Qwen3-Next and Qwen3.5 with dense perceptrons: three blocks of Gated DeltaNet, then one of gated softmax attention.
//
//   x += mixer(norm(x)), x += down(silu(gate x) * up x) of norm(x) ;  norm(x) = x / sqrt(mean x^2 + eps) (1 + w)
//
//   linear   q, k, v, z, b, a = in(x) ;  (q, k, v) = silu(conv) ;  q, k of length one per head ;
//            g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b) ;  o = RMS(gated-deltanet) w silu(z) per head
//   full     q, gate, k, v ;  q and k normed per head, the first part of a head turned ;  o = softmax-attention sigmoid(gate)
//
// Traps: Qwen3-Next has q, k, v, z in one matrix whose rows go key head by key head, Qwen3.5 in separate ones; GGUF has
// them un-grouped, its norms have the 1 added already (but that of the heads), and -exp(A_log) for A_log. GGUF files of
// Qwen3.5 have the value heads tiled: value head h reads key head h % n. Experts are not supported.
#include <cmath>

#include "language/architectures/architecture.h"
#include "ttr/status.h"

namespace ttr::model {
namespace {

struct Sizes {
  Size nk, nv, dk, dv, heads, kv, head, turned;
  double eps, base;
  int interval;
};

struct Qwen {
  Source& s;
  Graph& g;
  bool gguf;
  std::string before, config;  // of names, and of keys
  Sizes z{};

  double number(const std::string& key, std::optional<double> otherwise = {}) const {
    return s.settings().number(config + key, otherwise);
  }
  Size whole(const std::string& key, std::optional<int> otherwise = {}) const {
    return s.settings().whole(config + key, otherwise, 1);
  }
  Value norm(Value x, const std::string& name, Size groups = 1) const {
    return rms_norm(g, s, x, name, z.eps, groups, !gguf);
  }

  void read_sizes() {
    if (gguf) {
      z.nk = whole("ssm.group_count"), z.nv = whole("ssm.time_step_rank"), z.dk = whole("ssm.state_size");
      z.dv = whole("ssm.inner_size") / z.nv;
      z.heads = whole("attention.head_count"), z.kv = whole("attention.head_count_kv");
      z.head = whole("attention.key_length"), z.turned = whole("rope.dimension_count");
      z.eps = number("attention.layer_norm_rms_epsilon", 1e-6), z.base = number("rope.freq_base", 10000);
      z.interval = static_cast<int>(whole("full_attention_interval", 4));
      return;
    }
    z.nk = whole("linear_num_key_heads", 16), z.nv = whole("linear_num_value_heads", 32);
    z.dk = whole("linear_key_head_dim", 128), z.dv = whole("linear_value_head_dim", 128);
    z.heads = whole("num_attention_heads", 16), z.kv = whole("num_key_value_heads", 2);
    z.head = whole("head_dim", 256);
    const double part = number("partial_rotary_factor", number("rope_parameters.partial_rotary_factor", 0.25));
    z.turned = static_cast<Size>(static_cast<double>(z.head) * part) / 2 * 2;
    z.eps = number("rms_norm_eps", 1e-6);
    z.base = number("rope_theta", number("rope_parameters.rope_theta", 10000));
    z.interval = static_cast<int>(whole("full_attention_interval", 4));
  }
  bool full(int i) const {
    const std::vector<std::string> types = s.settings().texts(config + "layer_types");
    if (types.empty()) return (i + 1) % z.interval == 0;
    return i < static_cast<int>(types.size()) && types[static_cast<std::size_t>(i)] == "full_attention";
  }

  // Rows of a matrix in another order, as columns of its product.
  static std::vector<Size> chosen(Size count, const auto& from) {
    std::vector<Size> which;
    for (Size i = 0; i < count; ++i) which.push_back(from(i));
    return which;
  }

  Value linear_block(int i, Value x) const {
    const Size rep = z.nv / z.nk, Dk = z.nk * z.dk, Dv = z.nv * z.dv;
    if (z.nv % z.nk != 0)
      throw Error(std::to_string(z.nv) + " value heads are not a multiple of " + std::to_string(z.nk) + " key heads",
                  "model");
    const std::string of = gguf ? at(before, i, "") : at(before, i, "linear_attn.");
    const auto name = [&](const char* hf, const char* file) { return of + (gguf ? file : hf); };
    const auto product = [&](const std::string& tensor, Size out) {
      return g.linear(x, s.matrix(tensor, out, x.width));
    };
    Value qkv, gate, b, a;
    if (s.has(of + "in_proj_qkvz.weight")) {
      const Value all = product(of + "in_proj_qkvz.weight", 2 * Dk + 2 * Dv);
      const Size each = 2 * z.dk + 2 * rep * z.dv;  // of a key head: q, k, v, z
      const auto pick = [&](Size offset, Size width) {
        return [=](Size j) { return j / width * each + offset + j % width; };
      };
      std::vector<Size> which = chosen(Dk, pick(0, z.dk));
      const std::vector<Size> k = chosen(Dk, pick(z.dk, z.dk)), v = chosen(Dv, pick(2 * z.dk, rep * z.dv));
      which.insert(which.end(), k.begin(), k.end());
      which.insert(which.end(), v.begin(), v.end());
      qkv = g.columns(all, std::move(which));
      gate = g.columns(all, chosen(Dv, pick(2 * z.dk + rep * z.dv, rep * z.dv)));
    } else {
      qkv = product(name("in_proj_qkv.weight", "attn_qkv.weight"), 2 * Dk + Dv);
      gate = product(name("in_proj_z.weight", "attn_gate.weight"), Dv);
    }
    const std::string both = name("in_proj_ba.weight", "ssm_ba.weight");
    if (s.has(both)) {
      const Value ba = product(both, 2 * z.nv);
      b = g.columns(ba, chosen(z.nv, [&](Size h) { return h / rep * 2 * rep + h % rep; }));
      a = g.columns(ba, chosen(z.nv, [&](Size h) { return h / rep * 2 * rep + rep + h % rep; }));
    } else {
      b = product(name("in_proj_b.weight", "ssm_beta.weight"), z.nv);
      a = product(name("in_proj_a.weight", "ssm_alpha.weight"), z.nv);
    }
    const Value mixed = convolve(g, s, qkv, name("conv1d", "ssm_conv1d"), true);
    Value q = unit_heads(g, Graph::part(mixed, 0, Dk), z.nk), k = unit_heads(g, Graph::part(mixed, Dk, Dk), z.nk);
    const Value v = Graph::part(mixed, 2 * Dk, Dv);
    Size key_heads = z.nk;
    if (gguf && config == "qwen35." && rep > 1) {  // tiled
      const auto tiled = [&](Size j) { return j / z.dk % z.nk * z.dk + j % z.dk; };
      q = g.columns(q, chosen(z.nv * z.dk, tiled)), k = g.columns(k, chosen(z.nv * z.dk, tiled));
      key_heads = z.nv;
    }
    const std::string rate = name("A_log", "ssm_a");
    const Numbers rates = gguf ? s.vector(rate, z.nv) : s.vector(rate, z.nv, minus_exp);
    const Value decay =
        g.multiply(g.apply(Op::softplus, {g.add(a, s.vector(name("dt_bias", "ssm_dt.bias"), z.nv))}), rates);
    MixerNode node;
    node.layer = "gated-deltanet";
    node.shape = {.heads = static_cast<int>(z.nv),
                  .key_heads = static_cast<int>(key_heads),
                  .key_dim = static_cast<int>(z.dk),
                  .value_dim = static_cast<int>(z.dv)};
    node.inputs = {{"q", q, {key_heads, z.dk}},
                   {"k", k, {key_heads, z.dk}},
                   {"v", v, {z.nv, z.dv}},
                   {"beta", sigmoid(g, b), {z.nv}},
                   {"g", decay, {z.nv}}};
    node.outputs = {{"o", {z.nv, z.dv}}};
    const Value o = g.apply(Op::rms_gate_norm_first_silu,
                            {g.mix(std::move(node))[0], gate, s.vector(name("norm.weight", "ssm_norm.weight"), z.dv)},
                            z.eps, z.nv);
    return g.linear(o, s.matrix(name("out_proj.weight", "ssm_out.weight"), x.width, Dv));
  }

  Value full_block(int i, Value x) const {
    const std::string of = gguf ? at(before, i, "attn_") : at(before, i, "self_attn.");
    const auto name = [&](const char* hf, const char* file) { return of + (gguf ? file : hf); };
    const Size H = z.heads, G = z.kv, K = z.head;
    const Value both = g.linear(x, s.matrix(name("q_proj.weight", "q.weight"), 2 * H * K, x.width));
    const auto half = [&](Size offset) {
      return g.columns(both, chosen(H * K, [&](Size j) { return j / K * 2 * K + offset + j % K; }));
    };
    Value q = half(0), k = g.linear(x, s.matrix(name("k_proj.weight", "k.weight"), G * K, x.width));
    const Value gate = half(K), v = g.linear(x, s.matrix(name("v_proj.weight", "v.weight"), G * K, x.width));
    q = g.turn(norm(q, of + "q_norm.weight", H), H, z.turned, z.base);
    k = g.turn(norm(k, of + "k_norm.weight", G), G, z.turned, z.base);
    MixerNode node;
    node.layer = "softmax-attention";
    node.shape = {.heads = static_cast<int>(H),
                  .key_heads = static_cast<int>(G),
                  .key_dim = static_cast<int>(K),
                  .value_dim = static_cast<int>(K)};
    node.inputs = {{"q", q, {H, K}}, {"k", k, {G, K}}, {"v", v, {G, K}}};
    node.outputs = {{"o", {H, K}}};
    const Value o = g.multiply(g.mix(std::move(node))[0], sigmoid(g, gate));
    return g.linear(o, s.matrix(name("o_proj.weight", "output.weight"), x.width, H * K));
  }

  void build() {
    read_sizes();
    const Matrix embedding =
        s.matrix(gguf ? "token_embd.weight" : before.substr(0, before.size() - 7) + "embed_tokens.weight", -1, -1);
    g.stream = embedding.in, g.layers = s.count(before);
    for (const char* unused : {"rotary_emb.inv_freq"}) s.ignore(unused);
    Value x = g.embed(embedding);
    for (int i = 0; i < g.layers; ++i) {
      const Value h = norm(x, at(before, i, gguf ? "attn_norm.weight" : "input_layernorm.weight"));
      x = g.add(x, full(i) ? full_block(i, h) : linear_block(i, h));
      const Value m = norm(x, at(before, i, gguf ? "post_attention_norm.weight" : "post_attention_layernorm.weight"));
      const std::string experts = at(before, i, gguf ? "ffn_gate_inp.weight" : "mlp.gate.weight");
      if (s.has(experts))
        throw Error("the tensor '" + experts + "' chooses experts, which are not supported", experts);
      const auto mlp = [&](const char* part) {
        return at(before, i,
                  gguf ? "ffn_" + std::string(part) + ".weight" : "mlp." + std::string(part) + "_proj.weight");
      };
      x = g.add(x, swiglu(g, s, m, mlp("gate"), mlp("up"), mlp("down")));
    }
    const std::string model = gguf ? "" : before.substr(0, before.size() - 7);
    g.hidden = norm(x, gguf ? "output_norm.weight" : model + "norm.weight");
    const std::string head = gguf ? "output.weight" : "lm_head.weight";
    g.head = s.has(head) ? s.matrix(head, -1, embedding.in) : embedding;
  }
};

std::string architecture_of(const Source& s) {
  return s.gguf() ? s.settings().text("general.architecture", "") : s.settings().text("model_type", "");
}

}  // namespace

extern const Architecture qwen_next = {
    "qwen-next",
    "Qwen3-Next and Qwen3.5 with dense perceptrons: Hugging Face qwen3_next, qwen3_5, qwen3_5_text, GGUF qwen3next, "
    "qwen35",
    [](const Source& s) {
      const std::string type = architecture_of(s);
      return s.gguf() ? type == "qwen3next" || type == "qwen35"
                      : type == "qwen3_next" || type == "qwen3_5" || type == "qwen3_5_text";
    },
    [](Source& s, Graph& g) {
      const std::string type = architecture_of(s);
      Qwen model{s, g, s.gguf(), "", ""};
      if (s.gguf()) model.before = "blk.", model.config = type + ".";
      else {
        const bool nested = s.has("model.language_model.embed_tokens.weight");
        model.before = nested ? "model.language_model.layers." : "model.layers.";
        model.config = s.settings().has("text_config.hidden_size") ? "text_config." : "";
        for (const auto& [name, weight] : s.weights().all())
          if (name.rfind("mtp.", 0) == 0 || name.rfind("model.visual.", 0) == 0) s.ignore(name);
      }
      model.build();
    }};

}  // namespace ttr::model
