// HGRN: an elementwise state with a gate per channel.
//
//   h_t = e^{g_t} * h_{t-1} + x_t ;   o_t = h_t
//
// x, g, o [B,T,H,V] (published: [B,T,D]; give D as value_dim). In the paper x = (1 - e^g) i and the output is gated:
// both are done by the caller. Source: Qin, Yang, Zhong 2023.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration hgrn() {
  Declaration d;
  d.info.name = "hgrn";
  d.info.recipe = "gate(value) / vector / gd(1)";
  d.info.title = "HGRN";
  d.info.paper = "Qin, Yang, Zhong 2023, arXiv 2311.04823";
  d.info.equation = "h_t = exp(g_t) * h_{t-1} + x_t ;  o_t = h_t";
  d.info.scale = "none";
  d.info.traps = {"x already holds the factor 1 - exp(g) of the paper.",
                  "The lower bound of a layer is in g: g = log(lb + (1 - lb) sigmoid(f))."};
  d.info.inputs = {{"x", "B T H V", "what is added to the state", Range::normal},
                   {"g", "B T H V", "log of the factor on each channel", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.settings = {{"decay", "one factor for all channels, in (0, 1], instead of g", "0.98"}};
  d.info.golden = {
      {"hgrn",
       {{"x", "x[B T HV]"}, {"g", "g[B T HV]"}, {"o", "o[B T HV]"}, {"h0", "state.h[B HV]"}, {"ht", "state.h[B HV]"}},
       {}}};
  d.info.grouped = false;
  d.feeds = {{"v", "x"}, {"gv", "g"}};
  return d;
}

}  // namespace ttr::zoo
