// PaTH attention: softmax attention whose keys are carried to the query by products of Householder-like maps.
//
//   x_ti = q_t' H_t H_{t-1} .. H_{i+1} k_i ,  H_j = I - beta_j w_j w_j'
//   o_t = sum_i softmax_i(c (x_ti + G_t - G_i)) v_i
//
// q [B,T,H,K], k, w [B,T,G,K], v [B,T,G,V], beta [B,T,G], g [B,T,H] (scaled with the logits). Source: Yang et al. 2025.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration path_attention() {
  Declaration d;
  d.info.name = "path-attention";
  d.info.recipe = "near(exp, transport) * gate / constant / exact";
  d.info.title = "PaTH attention";
  d.info.paper = "Yang et al. 2025, arXiv 2505.16381";
  d.info.equation =
      "x_ti = q_t' H_t .. H_{i+1} k_i, H_j = I - beta_j w_j w_j' ;  o_t = sum_i softmax_i(c (x_ti + g_{i+1} + .. + "
      "g_t)) v_i";
  d.info.scale = "c = 1/sqrt(K) on the logits and on the gates";
  d.info.traps = {"The gate is scaled like the logits, unlike in forgetting attention.",
                  "w has length one; beta in (0, 2) makes H anything from a projection to a reflection."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal},
                   {"w", "B T G K", "Householder vector", Range::unit},
                   {"beta", "B T G", "step of the Householder map", Range::sigmoid},
                   {"g", "B T H", "log of the forget gate", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.golden = {{"path_attn", {}, {}}};
  d.feeds = {{"w_t", "w"}, {"beta_t", "beta"}};
  return d;
}

}  // namespace ttr::zoo
