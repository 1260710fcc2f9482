// RG-LRU of Griffin: an elementwise state whose gate and input gate see the token, and whose input is scaled so that
// the state keeps its size.
//
//   log a_t = -8 sigmoid(r_t) softplus(-Lambda) ;   h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (sigmoid(i_t) * x_t)
//
// x, r, i, o [B,T,H,V], Lambda [H,V]. Source: De et al. 2024 (Griffin).
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration rg_lru() {
  Declaration d;
  d.info.name = "rg-lru";
  d.info.recipe = "gate(value) / vector / gd(1)";
  d.info.title = "RG-LRU (Griffin)";
  d.info.paper = "De et al. 2024, arXiv 2402.19427";
  d.info.equation =
      "log a_t = -8 sigmoid(r_t) softplus(-Lambda) ;  h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (sigmoid(i_t) * x_t) ; "
      " o_t = h_t";
  d.info.scale = "none";
  d.info.departure = "the input is tied to the gate by sqrt(1 - a^2)";
  d.info.traps = {"a = sigmoid(Lambda)^(8 sigmoid(r)); released code stores -Lambda and takes softplus of it.",
                  "Released code replaces sqrt(1 - a^2) by 1 at the first token of a segment; here it stays.",
                  "sqrt(1 - a^2) is computed by expm1: for a near 1 it cancels otherwise."};
  d.info.inputs = {{"x", "B T H V", "input", Range::normal},
                   {"r", "B T H V", "recurrence gate before the sigmoid", Range::normal},
                   {"i", "B T H V", "input gate before the sigmoid", Range::normal},
                   {"Lambda", "H V", "decay rate of a channel before the sigmoid", Range::normal}};
  d.info.outputs = {output()};
  d.info.settings = {{"decay", "one factor for all channels, in (0, 1], instead of a", "0.98"}};
  d.info.golden = {{"rg_lru",
                    {{"x", "x[B T HV]"},
                     {"r", "r[B T HV]"},
                     {"i", "i[B T HV]"},
                     {"Lambda", "Lambda[HV]"},
                     {"o", "o[B T HV]"},
                     {"h0", "state.h[B HV]"},
                     {"ht", "state.h[B HV]"}},
                    {}}};
  d.info.grouped = false;
  using prepare::Op;
  d.prepare = {{Op::decay_rate_gate, {"r", "Lambda"}, "gv"},
               {Op::root_complement, {"gv"}, "root"},
               {Op::sigmoid, {"i"}, "open"},
               {Op::multiply, {"open", "x"}, "gated"},
               {Op::multiply, {"root", "gated"}, "v"}};
  return d;
}

}  // namespace ttr::zoo
