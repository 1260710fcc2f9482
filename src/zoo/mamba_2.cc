// Mamba-2 (state space duality): a data-dependent scalar gate whose strength is tied to the importance of the pair.
//
//   S_t = e^{Delta_t A_h} S_{t-1} + B_t (Delta_t x_t)' ;   y_t = S_t' C_t + D_h x_t
//
// x, y [B,T,H,V], dt [B,T,H] (after softplus), A, D [H], B, C [B,T,G,K] (head h uses group h/(H/G)). In the grammar:
// q = C, k = B, v = x, gate g = Delta A, importance beta = Delta. Source: Dao and Gu 2024.
//
// With eigenvalues in [-1, 1] the factor is 2 e^{Delta A} - 1. Source: Grazzi et al. 2024, who do this to Mamba's gates.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration mamba_2() {
  Declaration d;
  d.info.name = "mamba-2";
  d.info.recipe = "gate(beta) / linear / gd(1)";
  d.info.title = "Mamba-2 (SSD)";
  d.info.paper = "Dao, Gu 2024, arXiv 2405.21060";
  d.info.equation = "S_t = exp(dt_t A_h) S_{t-1} + B_t (dt_t x_t)' ;  y_t = S_t' C_t + D_h x_t";
  d.info.scale = "none";
  d.info.departure = "one number, dt, sets both the gate and the importance; the output has a skip D x";
  d.info.traps = {"dt is what comes after softplus(dt + bias); A is negative (-exp(A_log)).",
                  "ssd_minimal in the authors' repository expects x and A already multiplied by dt.",
                  "The authors store the state value first, [B,H,P,N]; here it is [B,H,K,V] = [B,H,N,P]."};
  d.info.inputs = {{"x", "B T H V", "value", Range::normal},
                   {"dt", "B T H", "step: importance, and with A the gate", Range::sigmoid},
                   {"A", "H", "log decay per unit of dt", Range::negative},
                   {"B", "B T G K", "key", Range::normal},
                   {"C", "B T G K", "query", Range::normal},
                   {"D", "H", "skip", Range::normal}};
  d.info.outputs = {output("y")};
  d.info.variants = {{"skip=none"}};
  d.info.settings = {{"skip", "input or none: the skip D x", "", true},
                     {"decay", "one factor on older pairs, in (0, 1], instead of exp(dt A)", "0.98"},
                     {"normalise", "none, unit, rms or keysum: what divides the output", ""},
                     {"step", "length of the gradient step; auto = 1 / sum w |k|^2", "auto"}};
  d.info.golden = {{"mamba2_ssd", {{"h0", "state.S^"}, {"ht", "state.S^"}}, {{"skip", "!D"}}}};
  d.feeds = {{"q", "C"}, {"k", "B"}, {"v", "x"}, {"beta", "dt"}};
  d.prepare = {{prepare::Op::multiply, {"dt", "A"}, "g"}};
  d.finish = {{prepare::Op::skip, {"o", "x", "D"}, "y"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    if (word_setting(layer, settings, "skip", {"input", "none"}) == "none")
      layer.finish = {{prepare::Op::scale, {"o"}, "y", 1}};
  };
  return d;
}

Declaration signed_mamba_2() {
  Declaration d = mamba_2();
  d.info.name = "signed-mamba-2";
  d.info.recipe = "gate(signed, beta) / linear / gd(1)";
  d.info.title = "Mamba-2 with eigenvalues in [-1, 1]";
  d.info.paper = "Grazzi, Siems, Franke, Zela, Hutter, Pontil 2024, arXiv 2411.12537; Dao, Gu 2024, arXiv 2405.21060";
  d.info.equation = "S_t = (2 exp(dt_t A_h) - 1) S_{t-1} + B_t (dt_t x_t)' ;  y_t = S_t' C_t + D_h x_t";
  d.info.traps = {"A is negative: dt A from 0 to -inf takes the factor from 1 to -1, through 0 at -log 2.",
                  "The state in memory is S times the product of the signs so far, whose parity is its other part, "
                  "flip: a fresh or a given S has flip 0."};
  d.info.settings = {{"skip", "input or none: the skip D x", "", true}};
  d.info.golden = {{"mamba2_signed", {{"h0", "state.S^"}}, {{"skip", "!D"}}}};
  d.prepare = {{prepare::Op::multiply, {"dt", "A"}, "rate", 0, "B T H"},
               {prepare::Op::twice_less_one, {"rate"}, "a"}};
  return d;
}

}  // namespace ttr::zoo
