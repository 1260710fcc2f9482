// Lightning attention: linear attention with a fixed decay per head, which also depends on the layer's depth.
//
//   S_t = e^{-s_h} S_{t-1} + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// Published slopes differ. slopes=linear is flash-linear-attention's, s_h = (8/H)(1 - l/L) h, whose head 0 never
// decays; slopes=minimax is MiniMax-01's, s_h = 2^(-8(h+1)/H) (1 - l/(L-1) + 1e-5); slopes=alibi is Lightning
// Attention-2's geometric one without the layer factor (powers of two only for H a power of two: 2^(-8(h+1)/H) in
// general). l = layer (from 0), L = layers. Source: Qin et al. 2024 (arXiv 2401.04658); MiniMax 2025 (arXiv
// 2501.08313).
#include <charconv>
#include <cmath>

#include "ttr/status.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using Settings = std::map<std::string, std::string>;

double whole_number(const Settings& settings, const char* name, double otherwise) {
  const auto found = settings.find(name);
  if (found == settings.end()) return otherwise;
  const std::string& text = found->second;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw Error("lightning-attention takes a whole number for " + std::string(name) + ", not '" + text + "'",
                "setting " + std::string(name));
  return number;
}

std::vector<double> lightning_log_decay(int heads, const Settings& settings) {
  const auto found = settings.find("slopes");
  const std::string slopes = found == settings.end() ? "linear" : found->second;
  const double layer = whole_number(settings, "layer", 0), layers = whole_number(settings, "layers", 1);
  if (layers < 1 || layer >= layers)
    throw Error("layer " + std::to_string(static_cast<int>(layer)) + " is not one of the model's " +
                    std::to_string(static_cast<int>(layers)) + "; layers count from 0",
                "setting layer");
  std::vector<double> g;
  for (int h = 0; h < heads; ++h) {
    const double geometric = std::exp2(-8.0 * (h + 1) / heads);
    if (slopes == "linear") g.push_back(-8.0 / heads * (1 - layer / layers) * h);
    else if (slopes == "minimax") g.push_back(-geometric * (1 - (layers > 1 ? layer / (layers - 1) : 0) + 1e-5));
    else if (slopes == "alibi") g.push_back(-geometric);
    else throw Error("slopes are linear, minimax or alibi, not '" + slopes + "'", "setting slopes");
  }
  return g;
}

}  // namespace

Declaration lightning_attention() {
  Declaration d;
  d.info.name = "lightning-attention";
  d.info.recipe = "decay(g) / linear / gd(1)";
  d.info.title = "Lightning attention (TransNormer, MiniMax-01)";
  d.info.paper = "Qin et al. 2024, arXiv 2401.04658; MiniMax 2025, arXiv 2501.08313";
  d.info.equation = "S_t = exp(-s_h) S_{t-1} + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q (MiniMax: none)";
  d.info.traps = {"Three tables of slopes are in use; a checkpoint needs its own (setting slopes).",
                  "With linear slopes head 0 never decays."};
  d.info.inputs = {query(), key(), value()};
  d.info.outputs = {output()};
  d.info.variants = {{"slopes=minimax,layer=2,layers=5"}, {"slopes=alibi"}};
  d.info.settings = {{"slopes", "linear, minimax or alibi: the table of decays", "", true},
                     {"layer", "which layer of the model this is, from 0", "", true},
                     {"layers", "how many layers the model has", "", true},
                     {"decay", "one factor for all heads instead of the table, in (0, 1]", "0.98"},
                     {"step", "length of the gradient step; auto = 1 / sum w |k|^2", "auto"}};
  d.info.golden = {{"lightning_attn",
                    {{"h0", "state.S"}, {"ht", "state.S"}},
                    {{"layer", "@layer_idx"}, {"layers", "@num_layers"}}}};
  d.scale_by_root_key = true;
  d.log_decay_of_head = lightning_log_decay;
  return d;
}

}  // namespace ttr::zoo
