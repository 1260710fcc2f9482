// HGRN2: gated linear attention whose key is what the gate lets go.
//
//   g_t = log(lb + (1 - lb) sigmoid(f_t)) ;   S_t = diag(e^{g_t}) S_{t-1} + (1 - e^{g_t}) i_t'
//   o_t = S_t' (c silu(q_t))
//
// q, f [B,T,H,K], i [B,T,H,V], lower_bound [H,K] (zero in the first layer of a model), c = 1/sqrt(K). Source: Qin et
// al. 2024; flash-linear-attention hgrn2.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration hgrn_2() {
  Declaration d;
  d.info.name = "hgrn-2";
  d.info.recipe = "gate(key) / linear / gd(1)";
  d.info.title = "HGRN2";
  d.info.paper = "Qin, Yang, Sun, Shen, Li, Sun, Zhong 2024, arXiv 2404.07904";
  d.info.equation =
      "g_t = log(lb + (1-lb) sigmoid(f_t)) ;  S_t = diag(exp(g_t)) S_{t-1} + (1 - exp(g_t)) i_t' ;  o_t = S_t' (c "
      "silu(q_t))";
  d.info.scale = "c = 1/sqrt(K) on silu(q)";
  d.info.departure = "the key is tied to the gate: k = 1 - exp(g)";
  d.info.traps = {"1 - e^g is computed by expm1, the gate by logaddexp: both cancel otherwise.",
                  "lower_bound is 0 in the first layer, where g is logsigmoid(f)."};
  d.info.inputs = {query(),
                   {"f", "B T H K", "gate before the sigmoid", Range::normal},
                   {"i", "B T H V", "value", Range::normal},
                   {"lower_bound", "H K", "least value of the gate's factor, in [0, 1)", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"normalise", "none, unit or rms: what divides the output", ""}};
  d.info.golden = {{"hgrn2", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.info.grouped = false;
  d.scale_by_root_key = true;
  d.feeds = {{"v", "i"}};
  d.prepare = {{prepare::Op::silu, {"q"}, "q"},
               {prepare::Op::lower_bound_gate, {"f", "lower_bound"}, "gk"},
               {prepare::Op::one_minus_exp, {"gk"}, "k"}};
  return d;
}

}  // namespace ttr::zoo
