// The linear recurrent unit: a complex diagonal state between two dense maps.
//
//   lambda = exp(-exp(nu) + i exp(theta)) ;   gamma = sqrt(1 - |lambda|^2)
//   h_t = lambda * h_{t-1} + gamma * (B x_t) ;   y_t = Re(C h_t) + D * x_t
//
// x, y [B,T,H,K], state h [B,H,V] complex as two arrays; nu, theta [H,V], B [H,V,K], C [H,K,V] as real and imaginary
// parts, D [H,K]. Source: Orvieto et al. 2023; gamma is computed and differentiated through (there a parameter).
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration lru() {
  Declaration d;
  d.info.name = "lru";
  d.info.recipe = "gate(value, complex) / vector / gd(1)";
  d.info.title = "Linear recurrent unit";
  d.info.paper = "Orvieto et al. 2023, arXiv 2303.06349";
  d.info.equation =
      "lambda = exp(-exp(nu_log) + i exp(theta_log)) ;  h_t = lambda * h_{t-1} + sqrt(1 - |lambda|^2) * (B x_t) ;  "
      "y_t = Re(C h_t) + D * x_t";
  d.info.scale = "none";
  d.info.departure = "what is stored is complex, the read mixes both parts, and the input is tied to the gate";
  d.info.literal = false;
  d.info.traps = {
      "The paper stores gamma as a parameter that starts at sqrt(1 - |lambda|^2); here it is always that.",
      "Gradients are those of two real numbers, not Wirtinger derivatives."};
  d.info.inputs = {{"x", "B T H K", "input", Range::normal},
                   {"nu_log", "H V", "log of minus the log of |lambda|", Range::normal},
                   {"theta_log", "H V", "log of the phase", Range::normal},
                   {"B_re", "H V K", "input map, real part", Range::normal},
                   {"B_im", "H V K", "input map, imaginary part", Range::normal},
                   {"C_re", "H K V", "output map, real part", Range::normal},
                   {"C_im", "H K V", "output map, imaginary part", Range::normal},
                   {"D", "H K", "skip", Range::normal}};
  d.info.outputs = {{"y", "B T H K", "output", Range::normal}};
  d.info.golden = {{"lru",
                    {{"x", "x[B T HK]"},
                     {"nu_log", "nu_log[HV]"},
                     {"theta_log", "theta_log[HV]"},
                     {"B_re", "B_re[HV K]"},
                     {"B_im", "B_im[HV K]"},
                     {"C_re", "C_re[HK V]"},
                     {"C_im", "C_im[HK V]"},
                     {"D", "D[HK]"},
                     {"y", "y[B T HK]"},
                     {"h0_re", "state.h[B HV]"},
                     {"h0_im", "state.h_im[B HV]"},
                     {"ht_re", "state.h[B HV]"},
                     {"ht_im", "state.h_im[B HV]"}},
                    {}}};
  d.info.grouped = false;
  using prepare::Op;
  d.prepare = {{Op::exp_negative, {"nu_log"}, "gv", 0, "H V"},      {Op::exp, {"theta_log"}, "theta", 0, "H V"},
               {Op::root_complement, {"gv"}, "gamma", 0, "H V"},    {Op::project, {"x", "B_re"}, "Bx", 0, "B T H V"},
               {Op::project, {"x", "B_im"}, "Bx_im", 0, "B T H V"}, {Op::multiply, {"Bx", "gamma"}, "v"},
               {Op::multiply, {"Bx_im", "gamma"}, "v_im"}};
  d.finish = {{Op::project, {"o", "C_re"}, "real", 0, "B T H K"},
              {Op::project, {"o_im", "C_im"}, "imaginary", 0, "B T H K"},
              {Op::subtract, {"real", "imaginary"}, "Ch", 0, "B T H K"},
              {Op::skip, {"Ch", "x", "D"}, "y"}};
  return d;
}

}  // namespace ttr::zoo
