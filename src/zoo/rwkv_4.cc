// RWKV-4: an exponentially weighted mean per channel, with a bonus for the newest token.
//
//   o_t = (sum_{s<t} e^{-(t-1-s) e^w + k_s} v_s + e^{u + k_t} v_t) / (the same with v = 1)
//
// k, v, o [B,T,H,V] (published: [B,T,C]), w and u [H,V]. Source: Peng et al. 2023, the wkv kernel.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration rwkv_4() {
  Declaration d;
  d.info.name = "rwkv-4";
  d.info.recipe = "gate(value, exponential) / constant(channel) / exact | read(before, bonus)";
  d.info.title = "RWKV-4";
  d.info.paper = "Peng et al. 2023, arXiv 2305.13048";
  d.info.equation =
      "o_t = (sum_{s<t} exp(-(t-1-s) exp(w) + k_s) v_s + exp(u + k_t) v_t) / (the same with v = 1), per channel";
  d.info.scale = "none";
  d.info.departure = "the decay is the same for every token, -exp(w)";
  d.info.traps = {"The decay acts after the read: pair t-1 counts with exp(k), not with exp(k - exp(w)).",
                  "The state is two sums relative to a running exponent; a fresh one has the exponent -1e30.",
                  "How a sum is split between its number and the exponent has no gradient."};
  d.info.inputs = {{"w", "H V", "log of the rate of decay", Range::normal},
                   {"u", "H V", "log of the weight of the newest token", Range::normal},
                   {"k", "B T H V", "log of the weight of the token", Range::normal},
                   {"v", "B T H V", "value", Range::normal}};
  d.info.outputs = {output()};
  d.info.golden = {{"rwkv4",
                    {{"w", "w[HV]"},
                     {"u", "u[HV]"},
                     {"k", "k[B T HV]"},
                     {"v", "v[B T HV]"},
                     {"o", "o[B T HV]"},
                     {"alpha0", "state.alpha[B HV]"},
                     {"beta0", "state.beta[B HV]"},
                     {"eps0", "state.e[B HV]"},
                     {"alpha", "state.alpha[B HV]"},
                     {"beta", "state.beta[B HV]"},
                     {"eps", "state.e[B HV]"}},
                    {}}};
  d.info.grouped = false;
  d.feeds = {{"i", "k"}, {"bonus", "u"}};
  d.prepare = {{prepare::Op::exp_negative, {"w"}, "gv", 0, "H V"}};
  return d;
}

}  // namespace ttr::zoo
