// Log-linear attention: one decayed memory per level of a binary partition of the past, each with its own scale.
//
//   o_t = sum_l lambda_t[l] sum_{s in level l of t} (q_t.k_s) e^{g_{s+1} + .. + g_t} v_s
//
// Level 0 is the token itself; level l >= 1 holds 2^{l-1} tokens. q, k [B,T,G,K], v [B,T,H,V], g [B,T,H],
// level_scales [B,T,H,L]. Source: Guo et al. 2025.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration log_linear_attention() {
  Declaration d;
  d.info.name = "log-linear-attention";
  d.info.recipe = "gate * levels(16) / linear / gd(1)";
  d.info.title = "Log-linear attention (Mamba-2 weights)";
  d.info.paper = "Guo et al. 2025, arXiv 2506.04761";
  d.info.equation =
      "o_t = sum_l lambda_t[l] S_t^(l)' q_t ,  S_t^(l) = sum_{s in level l of t} exp(g_{s+1} + .. + g_t) k_s v_s'";
  d.info.scale = "none";
  d.info.traps = {"L levels hold 2^(L-1) tokens; one more is an error (state_full), not a silent merge.",
                  "Levels belong to the position in the sequence, so the state counts tokens.",
                  "What a segment makes of the levels depends on where it begins: ranks of MPI scan, forms do not."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"g", "B T H", "log of the factor on older pairs", Range::log_gate},
                   {"level_scales", "B T H L", "scale of each level", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"levels", "L, number of levels", ""}};
  d.info.variants = {{"levels=8"}};
  d.info.golden = {{"log_linear_attn", {}, {{"levels", "#level_scales.3"}}}};
  d.feeds = {{"levels", "level_scales"}};
  return d;
}

}  // namespace ttr::zoo
