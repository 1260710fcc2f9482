// Titans as a whole layer: the memory of titans.cc beside attention, before it or around it, with persistent pairs.
//
//   y (x) m = norm(y) w_y * sigmoid(norm(m) w_m) ,  norm(x) = x / sqrt(mean(x^2) + 1e-6)
//   MAG, memory as a gate     y = Attn(q, k, v) in a window ;  m = M(mq, mk, mv) ;  o = y (x) m
//   MAL, memory as a layer    m = M(mq, mk, mv) ;  o = Attn(m wq, m wk, m wv) in a window
//   MAC, memory as context    segments of `batch` tokens: h_t = M before the segment (mq_t) ; y_t = Attn(q_t; (h_s wk,
//                             h_s wv), (k_s, v_s), s <= t) ; M learns (y_t uk, y_t uv) ; o_t = y_t (x) M_t(y_t uq)
//
// Attention also sees the persistent pairs pk [M,G,K], pv [M,G,V], outside any window or segment. q [B,T,H,K], k, v
// with G heads; the maps are per head. Where the paper leaves a choice (families/network/arrangement/arrangement.h): a
// query of MAC sees what was retrieved for tokens up to its own, so that the layer is causal; the memory advances token
// by token. Source: Behrouz, Zhong, Mirrokni 2024, arXiv 2501.00663, section 4.
#include "families/network/arrangement/arrangement.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using prepare::Op;

InputInfo optional(std::string name, std::string shape, std::string meaning, Range range) {
  return {std::move(name), std::move(shape), std::move(meaning), range, true, true};
}

Declaration arrangement(families::Arrangement kind) {
  const bool context = kind == families::Arrangement::context, layer = kind == families::Arrangement::layer;
  Declaration d;
  d.family = &families::arrangement_family;
  d.options_of<families::Arrangement>() = kind;
  d.refuses_stream = [](const std::map<std::string, std::string>&) -> std::string {
    return " has attention beside its memory, with maps between them; a stream has none: the memory alone is titans";
  };
  d.info.recipe = "equal / mlp(2) / minibatch(16, rate, momentum, shrink)";
  d.info.paper = "Behrouz, Zhong, Mirrokni 2024, arXiv 2501.00663, section 4";
  d.info.literal = false;
  d.info.scale = "K^-0.5 on q.k of the attention, none in the memory";
  d.info.traps = {"The segment of the memory is part of the model, not a speed knob.",
                  "The gate is a sigmoid of a normed answer: with w_m = 0 it is one half, not one."};
  if (!layer)
    d.info.inputs = {{"q", "B T H K", "query of the attention", Range::normal},
                     {"k", "B T G K", "key of the attention", Range::normal},
                     {"v", "B T G V", "value of the attention", Range::normal}};
  d.info.inputs.push_back({"mq", "B T G K", "query of the memory", Range::unit});
  if (!context) {
    d.info.inputs.push_back({"mk", "B T G K", "key of the memory", Range::unit});
    d.info.inputs.push_back({"mv", "B T H V", "value of the memory", Range::normal});
  }
  d.info.inputs.insert(d.info.inputs.end(), {{"theta", "B T H", "step of the memory", Range::rate},
                                             {"eta", "B T H", "factor on its previous update", Range::sigmoid},
                                             {"alpha", "B T H", "share it forgets", Range::rate}});
  const std::string pairs = layer ? "H" : "G";
  d.info.inputs.push_back({"pk", "M " + pairs + " K", "keys of the persistent pairs", Range::normal});
  d.info.inputs.push_back({"pv", "M " + pairs + " V", "values of the persistent pairs", Range::normal});
  if (layer) d.info.inputs.push_back({"wq", "H V K", "from the memory's answer to a query", Range::weights});
  if (layer || context) {
    d.info.inputs.push_back({"wk", "H V K", "from the memory's answer to a key", Range::weights});
    d.info.inputs.push_back({"wv", "H V V", "from the memory's answer to a value", Range::weights});
  }
  if (context) {
    d.info.inputs.push_back({"uq", "H V K", "from attention's answer to a query of the memory", Range::small});
    d.info.inputs.push_back({"uk", "H V K", "from attention's answer to a key of the memory", Range::small});
    d.info.inputs.push_back({"uv", "H V V", "from attention's answer to a value of the memory", Range::weights});
  }
  if (!layer) {
    d.info.inputs.push_back(
        optional("w_y", "H V", "weight of attention's answer; left out: it is not normed", Range::positive));
    d.info.inputs.push_back(
        optional("w_m", "H V", "weight of the memory's answer in the gate; left out: 1", Range::normal));
  }
  for (const char* name : {"W0", "W1"})
    d.info.inputs.push_back(optional(name, name[1] == '0' ? "H K D" : "H D V",
                                     "weights of the memory at the first token; left out: those of the state",
                                     Range::weights));
  d.info.outputs = {output()};
  d.feeds = {{"q", "mq"}, {"momentum", "eta"}, {"lam", "alpha"}};
  // MAC: the memory makes its own keys and values, so that k and v are attention's alone.
  if (context) d.feeds.insert(d.feeds.end(), {{"k", "k"}, {"v", "v"}});
  else d.feeds.insert(d.feeds.end(), {{"k", "mk"}, {"v", "mv"}});
  d.prepare = {{Op::scale, {"theta"}, "rate", 2}};
  d.info.settings = {
      {"batch", "tokens whose gradients are taken at the same weights (MAC: a segment), part of the model", ""},
      {"width", "hidden units of the memory; 4 K if not given", ""},
      {"persistent", "persistent pairs; 4 if not given, 0 = none", "", true}};
  if (!context)
    d.info.settings.push_back({"window", "pairs that attention sees, its own included; 64 if not given", "", true});
  d.adapt = [](Declaration& layer_, const std::map<std::string, std::string>& settings, const Shape&) {
    layer_.letters['M'] = whole_setting(layer_, settings, "persistent", 4, 0);
    layer_.letters['W'] = whole_setting(layer_, settings, "window", 64);
    if (layer_.letters['M'] == 0)
      std::erase_if(layer_.info.inputs, [](const InputInfo& info) { return info.name == "pk" || info.name == "pv"; });
  };
  return d;
}

}  // namespace

Declaration titans_mag() {
  Declaration d = arrangement(families::Arrangement::gate);
  d.info.name = "titans-mag";
  d.info.title = "Titans, memory as a gate";
  d.info.equation = "y = Attn(q, k, v) in a window ;  m = M(mq, mk, mv) ;  o = norm(y) w_y * sigmoid(norm(m) w_m)";
  d.info.departure = "attention beside the memory, multiplied";
  d.info.variants = {{"batch=3,window=4,persistent=2"}, {"persistent=0,window=1,batch=2"}};
  return d;
}

Declaration titans_mal() {
  Declaration d = arrangement(families::Arrangement::layer);
  d.info.name = "titans-mal";
  d.info.title = "Titans, memory as a layer";
  d.info.equation = "m = M(mq, mk, mv) ;  o = Attn(m wq, m wk, m wv) in a window";
  d.info.departure = "attention over what the memory answers";
  d.info.variants = {{"batch=3,window=4,persistent=2"}};
  return d;
}

Declaration titans_mac() {
  Declaration d = arrangement(families::Arrangement::context);
  d.info.name = "titans-mac";
  d.info.title = "Titans, memory as context";
  d.info.equation =
      "h_t = M_0(mq_t) ;  y_t = Attn(q_t; persistent, retrieved, own) ;  M learns (y uk, y uv) ;  "
      "o_t = norm(y_t) w_y * sigmoid(norm(M_t(y_t uq)) w_m)";
  d.info.departure = "attention reads what the memory retrieves, and the memory learns what attention answers";
  d.info.variants = {{"batch=3,persistent=2"}, {"batch=4,persistent=0"}};
  return d;
}

}  // namespace ttr::zoo
