// RWKV 4, 5.2, 6 and 7, with the names of the original checkpoints, of Hugging Face (4), flash-linear-attention (7) and GGUF
// (6, 7). All of them:
//
//   x = LN0(E[token]) ;  x += att(LN1 x), x += ffn(LN2 x) for every block ;  logits = head LN_out(x)
//   a token shift mixes the input h of att or ffn with that of the token before, p:  h m + p (1 - m)  (4, 5.2), h + (p - h) m  (6, 7)
//
//   4   o = sigmoid(r) wkv(k, v)            wkv: the layer rwkv-4, decay exp(-exp(w)) and bonus u per channel
//   5.2 o = GroupNorm(rwkv-6(r, k, v)) silu(g), the log decay -exp(w) the same for every token
//   6   the same with mixes and decay that depend on the token, through maps of low rank
//   7   kk = k k_k / |k k_k| per head ;  k <- k (1 + (a - 1) k_a) ;  S <- S diag(e^w) - (S kk)(kk a)' + v k' ;
//       o = (GroupNorm(S r) + (sum r k r_k) v) g ;  v is mixed with that of the first block
//
// Peng et al. 2023 (arXiv 2305.13048), 2024 (2404.05892), 2025 (2503.14456).
//
// Traps: maps of low rank are stored [in, out] by the original code, [out, in] elsewhere. The group norm has eps 64e-5:
// 5.2 is trained with the norm of a / 8 with eps 1e-5 (head_size_divisor), later versions with 64e-5 itself, and the
// authors' code for inference has 64e-5 for all of them (package rwkv from 0.8.21 on, November 2023). Before, and in
// programs that took over 5.2 before (rwkv.cpp, the code beside its weights on Hugging Face), it was 1e-5 without the
// division: group_norm_eps has their logits. GGUF files of version 6 may halve the stream every few layers, which they say.
#include <cmath>

#include "language/architectures/architecture.h"
#include "ttr/status.h"

namespace ttr::model {
namespace {

constexpr double ln_eps = 1e-5;

// How the same tensor is called. {} is the number of the block.
struct Names {
  std::string embedding, ln0, ln1, ln2, ln_out, head, blocks, att, ffn;
};
const Names original = {"emb.weight",  "blocks.0.ln0", "ln1",  "ln2", "ln_out",
                        "head.weight", "blocks.",      "att.", "ffn."};
const Names gguf_names = {"token_embd.weight", "token_embd_norm", "attn_norm", "attn_norm_2",
                          "output_norm",       "output.weight",   "blk.",      "time_mix_",
                          "channel_mix_"};
const Names hugging_face = {
    "rwkv.embeddings.weight", "rwkv.blocks.0.pre_ln", "ln1",          "ln2", "rwkv.ln_out", "head.weight",
    "rwkv.blocks.",           "attention.",           "feed_forward."};
const Names of_fla = {"model.embeddings.weight", "model.layers.0.pre_norm", "attn_norm", "ffn_norm", "model.norm",
                      "lm_head.weight",          "model.layers.",           "attn.",     "ffn."};

struct Block {
  Graph& g;
  Source& s;
  const Names& names;
  int i;
  std::string att(const std::string& name) const { return at(names.blocks, i, names.att + name); }
  std::string ffn(const std::string& name) const { return at(names.blocks, i, names.ffn + name); }
  std::string norm(const std::string& name) const { return at(names.blocks, i, name); }
};

// Runs the blocks between embedding and head.
template <class Att, class Ffn>
void skeleton(Source& s, Graph& g, const Names& names, int halve_every, Att&& att, Ffn&& ffn) {
  const Matrix embedding = s.matrix(names.embedding, -1, -1);
  g.stream = embedding.in, g.layers = s.count(names.blocks);
  Value x = g.embed(embedding);
  x = layer_norm(g, s, x, names.ln0, ln_eps);
  for (int i = 0; i < g.layers; ++i) {
    Block block{g, s, names, i};
    x = g.add(x, att(block, layer_norm(g, s, x, block.norm(names.ln1), ln_eps)));
    x = g.add(x, ffn(block, layer_norm(g, s, x, block.norm(names.ln2), ln_eps)));
    if (halve_every > 0 && (i + 1) % halve_every == 0) x = g.apply(Op::scale, {x}, 0.5);
  }
  g.hidden = layer_norm(g, s, x, names.ln_out, ln_eps);
  g.head = s.has(names.head) ? s.matrix(names.head, embedding.out, embedding.in) : embedding;
}

Value squared_relu(Graph& g, Value x) {
  const Value positive = g.apply(Op::relu, {x});
  return g.multiply(positive, positive);
}

// sigmoid(R r) * V relu(K k)^2
Value gated_ffn(const Block& b, Value for_key, Value for_receptance) {
  const Value k = squared_relu(b.g, b.g.linear(for_key, b.s.matrix(b.ffn("key.weight"), -1, for_key.width)));
  const Value v = b.g.linear(k, b.s.matrix(b.ffn("value.weight"), for_key.width, k.width));
  const Value r = b.g.linear(for_receptance, b.s.matrix(b.ffn("receptance.weight"), v.width, v.width));
  return b.g.multiply(sigmoid(b.g, r), v);
}

// The linear memory of 5.2 and 6, its norm and gate. `w` is the log decay.
Value heads_of_6(const Block& b, Value r, Value k, Value v, Operand w, Numbers u, Value gate, Size heads,
                 double eps) {
  const Size width = r.width, head = width / heads;
  const bool constant = static_cast<bool>(w.numbers);
  MixerNode node;
  node.layer = "rwkv-6";
  node.shape = {
      .heads = static_cast<int>(heads), .key_dim = static_cast<int>(head), .value_dim = static_cast<int>(head)};
  node.inputs = {{"r", r, {heads, head}},
                 {"k", k, {heads, head}},
                 {"v", v, {heads, head}},
                 {"w", std::move(w), {heads, head}, constant},
                 {"u", std::move(u), {heads, head}}};
  node.outputs = {{"o", {heads, head}}};
  const std::string norm = b.s.gguf() ? b.att("ln") : b.att("ln_x");
  const Value o = layer_norm(b.g, b.s, b.g.mix(std::move(node))[0], norm, eps, heads);
  return b.g.linear(b.g.apply(Op::silu_gate, {o, gate}), b.s.matrix(b.att("output.weight"), width, width));
}

double group_eps(Source& s) { return s.settings().number("group_norm_eps", 64e-5); }

// ---- 4

void build_4(Source& s, Graph& g) {
  const bool hf = s.has("rwkv.blocks.0.attention.time_first");
  const auto mix = [hf](const char* which) {
    const std::string name = which;
    return "time_mix_" + (!hf ? name : name == "k" ? "key" : name == "v" ? "value" : "receptance");
  };
  const auto mixed = [&](const Block& b, const std::string& name, Value h, Value before) {
    return b.g.lerp(before, h, b.s.vector(name, h.width));
  };
  skeleton(
      s, g, hf ? hugging_face : original, 0,
      [&](const Block& b, Value h) {
        const Size D = h.width;
        const Value before = b.g.shift(h);
        const auto project = [&](const char* m, const char* w) {
          return b.g.linear(mixed(b, b.att(mix(m)), h, before), b.s.matrix(b.att(w), D, D));
        };
        const Value r = project("r", "receptance.weight"), k = project("k", "key.weight"),
                    v = project("v", "value.weight");
        MixerNode node;
        node.layer = "rwkv-4";
        node.shape = {.heads = 1, .key_dim = 1, .value_dim = static_cast<int>(D)};
        node.inputs = {{"w", b.s.vector(b.att("time_decay"), D), {1, D}},
                       {"u", b.s.vector(b.att("time_first"), D), {1, D}},
                       {"k", k, {1, D}},
                       {"v", v, {1, D}}};
        node.outputs = {{"o", {1, D}}};
        const Value o = b.g.mix(std::move(node))[0];
        return b.g.linear(b.g.multiply(sigmoid(b.g, r), o), b.s.matrix(b.att("output.weight"), D, D));
      },
      [&](const Block& b, Value h) {
        const Value before = b.g.shift(h);
        return gated_ffn(b, mixed(b, b.ffn(mix("k")), h, before), mixed(b, b.ffn(mix("r")), h, before));
      });
}

// ---- 5.2

void build_5(Source& s, Graph& g) {
  const auto mixed = [](const Block& b, const std::string& name, Value h, Value before) {
    return b.g.lerp(before, h, b.s.vector(name, h.width));
  };
  skeleton(
      s, g, original, 0,
      [&](const Block& b, Value h) {
        const Size D = h.width;
        const auto& shape = b.s.shape(b.att("time_decay"));
        if (shape.size() != 2)
          throw Error("the tensor '" + b.att("time_decay") + "' has " + std::to_string(shape.size()) +
                          " axes: this is RWKV 5.0 or 5.1, and 5.2 is what is supported",
                      b.att("time_decay"));
        const Value before = b.g.shift(h);
        const auto project = [&](const char* m, const char* w) {
          return b.g.linear(mixed(b, b.att(m), h, before), b.s.matrix(b.att(w), D, D));
        };
        const Value r = project("time_mix_r", "receptance.weight"), k = project("time_mix_k", "key.weight"),
                    v = project("time_mix_v", "value.weight"), gate = project("time_mix_g", "gate.weight");
        const Numbers w = b.s.vector(b.att("time_decay"), D, minus_exp);
        return heads_of_6(b, r, k, v, w, b.s.vector(b.att("time_faaaa"), D), gate, shape[0], group_eps(b.s));
      },
      [&](const Block& b, Value h) {
        const Value before = b.g.shift(h);
        return gated_ffn(b, mixed(b, b.ffn("time_mix_k"), h, before), mixed(b, b.ffn("time_mix_r"), h, before));
      });
}

// ---- 6

void build_6(Source& s, Graph& g) {
  const bool gguf = s.gguf();
  const Names& names = gguf ? gguf_names : original;
  const int halve = gguf ? s.settings().whole("rwkv6.rescale_every_n_layers", 0) : 0;
  // Mixes in the order w, k, v, r, g.
  const auto own_mix = [&](const Block& b, int which, Size D) {
    const char letter = "wkvrg"[which];
    if (!gguf) return b.s.numbers(b.att(std::string("time_maa_") + letter), D);
    const std::string fused = b.att("lerp_fused.weight");
    if (!b.s.has(fused)) return b.s.numbers(b.att(std::string("lerp_") + letter + ".weight"), D);
    const std::vector<double> all = b.s.numbers(fused, 5 * D);
    return std::vector<double>(all.begin() + which * D, all.begin() + (which + 1) * D);
  };
  const auto matrix = [&](const Block& b, const char* name, Size in, Size out) {
    return gguf ? b.s.matrix(b.att(name) + ".weight", out, in)
                : b.s.transposed(b.att(std::string("time_") + (name[0] == 'w' ? "maa_" : "") + name), in, out);
  };
  skeleton(
      s, g, names, halve,
      [&](const Block& b, Value h) {
        const Size D = h.width;
        const Value before = b.g.shift(h);
        const std::string first = gguf ? "lerp_x.weight" : "time_maa_x";
        const Value start = b.g.lerp(h, before, b.s.vector(b.att(first), D));
        const Value low = b.g.tanh(b.g.linear(start, matrix(b, "w1", D, -1)));
        const Size R = low.width / 5;
        // [5, R, D] as five maps in -> out; GGUF has them as [5, D, R].
        const std::string second = gguf ? b.att("w2.weight") : b.att("time_maa_w2");
        const std::vector<double> all = b.s.numbers(second, 5 * R * D);
        Value mixed[5];
        for (int c = 0; c < 5; ++c) {
          std::vector<float> map(static_cast<std::size_t>(R * D));
          for (Size out = 0; out < D; ++out)
            for (Size in = 0; in < R; ++in)
              map[static_cast<std::size_t>(out * R + in)] =
                  static_cast<float>(all[static_cast<std::size_t>(c * R * D + (gguf ? out * R + in : in * D + out))]);
          const Value m =
              b.g.linear(Graph::part(low, c * R, R), Matrix::of(D, R, std::move(map)), numbers_of(own_mix(b, c, D)));
          mixed[c] = b.g.lerp(h, before, m);
        }
        const auto project = [&](int c, const char* name) {
          return b.g.linear(mixed[c], b.s.matrix(b.att(name), D, D));
        };
        const Value k = project(1, "key.weight"), v = project(2, "value.weight"), r = project(3, "receptance.weight"),
                    gate = project(4, "gate.weight");
        const Value rank = b.g.tanh(b.g.linear(mixed[0], matrix(b, "decay_w1", D, -1)));
        const std::string decay = gguf ? "decay.weight" : "time_decay";
        const Value w = b.g.linear(rank, matrix(b, "decay_w2", rank.width, D), b.s.vector(b.att(decay), D));
        const std::string bonus = gguf ? b.att("first.weight") : b.att("time_faaaa");
        const Size heads = gguf ? D / b.s.settings().whole("rwkv6.wkv.head_size", {}, 1) : b.s.shape(bonus)[0];
        return heads_of_6(b, r, k, v, b.g.apply(Op::exp_negative, {w}), b.s.vector(bonus, D), gate, heads,
                          group_eps(b.s));
      },
      [&](const Block& b, Value h) {
        const Value before = b.g.shift(h);
        const auto mix = [&](const char* letter) {
          const std::string name =
              gguf ? std::string("lerp_") + letter + ".weight" : std::string("time_maa_") + letter;
          return b.g.lerp(h, before, b.s.vector(b.ffn(name), h.width));
        };
        return gated_ffn(b, mix("k"), mix("r"));
      });
}

// ---- 7

void build_7(Source& s, Graph& g) {
  const bool gguf = s.gguf(), fla = s.has("model.layers.0.attn.r_k");
  const Names& names = gguf ? gguf_names : fla ? of_fla : original;
  const std::string dot_weight = gguf ? ".weight" : "";
  // The norm of kk has 1e-6 in its root where flash-linear-attention fuses it, else it is max(|kk|, 1e-12).
  const bool root = fla && s.settings().flag("fuse_norm", true);
  if (fla && s.settings().text("hidden_act", "sqrelu") != "sqrelu")
    throw Error("hidden_act is '" + s.settings().text("hidden_act") + "'; sqrelu is what is supported", "hidden_act");
  Value first_v;
  const auto project = [&](const Block& b, Value x, const char* word) {
    const std::string name = !fla ? std::string(word) : std::string(1, word[0]) + "_proj";
    return b.g.linear(x, b.s.matrix(b.att(name + ".weight"), x.width, x.width));
  };
  // Through a map of low rank, `letter` in w, a, v, g; tanh or sigmoid inside, a bias outside.
  const auto low_rank = [&](const Block& b, Value x, char letter, bool bias) {
    const std::string base = fla ? b.att(std::string(1, letter) + "_lora.lora.") : b.att(std::string(1, letter));
    const bool in_first = !fla && !gguf;
    const std::string down = fla ? base + "0.weight" : base + "1" + dot_weight,
                      up = fla ? base + "2.weight" : base + "2" + dot_weight,
                      zero = fla ? base + "2.bias" : base + "0" + dot_weight;
    Value low = b.g.linear(x, in_first ? b.s.transposed(down, x.width, -1) : b.s.matrix(down, -1, x.width));
    if (letter == 'w') low = b.g.tanh(low);
    if (letter == 'g') low = sigmoid(b.g, low);
    return b.g.linear(low, in_first ? b.s.transposed(up, low.width, x.width) : b.s.matrix(up, x.width, low.width),
                      bias ? b.s.vector(zero, x.width) : Numbers());
  };
  for (const char* unused : {"v0", "v1", "v2"}) {  // of the first block, where they may be copies of something
    s.ignore("blocks.0.att." + std::string(unused));
    s.ignore("blk.0.time_mix_" + std::string(unused) + ".weight");
  }
  skeleton(
      s, g, names, 0,
      [&](const Block& b, Value h) {
        const Size D = h.width;
        const Size head = gguf ? b.s.settings().whole("rwkv7.wkv.head_size", {}, 1) : b.s.shape(b.att("r_k")).back();
        const Size H = D / head;
        const Value before = b.g.shift(h);
        const auto mixed = [&](int which) {  // r, w, k, v, a, g
          const std::string fused = gguf ? b.att("lerp_fused.weight") : b.att("x_x");
          if (!b.s.has(fused)) return b.g.lerp(h, before, b.s.vector(b.att(std::string("x_") + "rwkvag"[which]), D));
          const std::vector<double> all = b.s.numbers(fused, 6 * D);
          return b.g.lerp(h, before, numbers_of({all.begin() + which * D, all.begin() + (which + 1) * D}));
        };
        const Value for_v = mixed(3);
        const Value r = project(b, mixed(0), "receptance"), k_raw = project(b, mixed(2), "key");
        Value v = project(b, for_v, "value");
        const Value w = b.g.apply(Op::scale, {sigmoid(b.g, low_rank(b, mixed(1), 'w', true))}, -std::exp(-0.5));
        const Value a = sigmoid(b.g, low_rank(b, mixed(4), 'a', true));
        const Value gate = low_rank(b, mixed(5), 'g', false);
        if (b.i == 0) first_v = v;
        else v = b.g.lerp(v, first_v, sigmoid(b.g, low_rank(b, for_v, 'v', true)));
        const Value scaled = b.g.multiply(k_raw, b.s.vector(b.att("k_k") + dot_weight, D));
        const Value kk = b.g.apply(root ? Op::unit_norm : Op::unit_norm_clamp, {scaled}, root ? 1e-6 : 1e-12, H);
        const Value k = b.g.apply(Op::blend_product, {k_raw, a, b.s.vector(b.att("k_a") + dot_weight, D)});
        MixerNode node;
        node.layer = "dplr";
        node.shape = {
            .heads = static_cast<int>(H), .key_dim = static_cast<int>(head), .value_dim = static_cast<int>(head)};
        node.scale = 1.0;
        node.inputs = {{"q", r, {H, head}},
                       {"k", k, {H, head}},
                       {"v", v, {H, head}},
                       {"a", kk, {H, head}},
                       {"b", b.g.apply(Op::negative_product, {kk, a}), {H, head}},
                       {"gk", w, {H, head}}};
        node.outputs = {{"o", {H, head}}};
        const double eps = fla ? static_cast<double>(head) * b.s.settings().number("norm_eps", 1e-5) : group_eps(b.s);
        const std::string norm = gguf ? b.att("ln") : fla ? b.att("g_norm") : b.att("ln_x");
        Value o = layer_norm(b.g, b.s, b.g.mix(std::move(node))[0], norm, eps, H);
        o = b.g.add(o, b.g.apply(Op::bonus_value, {r, k, b.s.vector(b.att("r_k") + dot_weight, D), v}, 0, H));
        return project(b, b.g.multiply(o, gate), "output");
      },
      [&](const Block& b, Value h) {
        const std::string mix = gguf ? b.ffn("lerp_k.weight") : b.ffn("x_k");
        const Value x = b.g.lerp(h, b.g.shift(h), b.s.vector(mix, h.width));
        const Value k = squared_relu(b.g, b.g.linear(x, b.s.matrix(b.ffn("key.weight"), -1, x.width)));
        return b.g.linear(k, b.s.matrix(b.ffn("value.weight"), x.width, k.width));
      });
}

}  // namespace

extern const Architecture rwkv_7 = {"rwkv-7", "RWKV-7: names of the original, of flash-linear-attention, GGUF rwkv7",
                                    [](const Source& s) {
                                      return s.has("blocks.0.att.r_k") || s.has("model.layers.0.attn.r_k") ||
                                             is_gguf(s, "rwkv7");
                                    },
                                    build_7};
extern const Architecture rwkv_6 = {
    "rwkv-6", "RWKV-6: names of the original, GGUF rwkv6",
    [](const Source& s) { return s.has("blocks.0.att.time_maa_w1") || is_gguf(s, "rwkv6"); }, build_6};
extern const Architecture rwkv_5 = {
    "rwkv-5", "RWKV-5.2: names of the original",
    [](const Source& s) { return s.has("blocks.0.att.ln_x.weight") && s.has("blocks.0.att.time_decay"); }, build_5};
extern const Architecture rwkv_4 = {
    "rwkv-4", "RWKV-4: names of the original, Hugging Face rwkv",
    [](const Source& s) { return s.has("blocks.0.att.time_first") || s.has("rwkv.blocks.0.attention.time_first"); },
    build_4};

}  // namespace ttr::model
