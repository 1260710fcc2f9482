// RWKV-6: a gate per key channel; the output reads before the write, with a bonus for the token's own pair.
//
//   o_t = (S_{t-1} + (u*k_t) v_t')' r_t ;   S_t = diag(e^{w_t}) S_{t-1} + k_t v_t'
//
// r, k [B,T,G,K], w [B,T,H,K], u [H,K]. Source: Peng et al. 2024; flash-linear-attention rwkv6.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration rwkv_6() {
  Declaration d;
  d.info.name = "rwkv-6";
  d.info.recipe = "gate(key) / linear / gd(1) | read(before, bonus)";
  d.info.title = "RWKV-6 (Finch)";
  d.info.paper = "Peng et al. 2024, arXiv 2404.05892";
  d.info.equation = "o_t = (S_{t-1} + (u*k_t) v_t')' r_t ;  S_t = diag(exp(w_t)) S_{t-1} + k_t v_t'";
  d.info.scale = "none";
  d.info.departure = "reads before it writes, with a bonus; both are options of the recipe";
  d.info.traps = {
      "The output reads the state before the token is written; the token itself counts through the bonus u.",
      "w is a natural logarithm: the layer computes -exp(LoRA(x))."};
  d.info.inputs = {{"r", "B T G K", "query (receptance)", Range::normal},
                   key(),
                   value(),
                   {"w", "B T H K", "log of the factor on each key channel", Range::log_gate},
                   {"u", "H K", "bonus of the newest token", Range::normal}};
  d.info.outputs = {output()};
  d.info.settings = {{"decay", "one constant factor on older pairs, in (0, 1]", "0.98"}};
  d.info.golden = {{"rwkv6", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.feeds = {{"q", "r"}, {"gk", "w"}, {"bonus", "u"}};
  return d;
}

}  // namespace ttr::zoo
