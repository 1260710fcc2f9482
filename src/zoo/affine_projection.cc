// Affine projection (APA-p, block Kaczmarz): a step that fits the last p pairs at once.
//
//   S_t = S_{t-1} + mu_t K_w' (K_w K_w' + eps I)^-1 (V_w - K_w S_{t-1}) ;   o_t = S_t' q_t
//
// The rows of K_w [p,K] and V_w [p,V] are the newest p pairs. mu [B,T,H]. p = 1 is NLMS; mu = 1 and eps = 0 reproduce
// the whole window. Source: Ozeki and Umeda 1984.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration affine_projection() {
  Declaration d;
  d.info.name = "affine-projection";
  d.info.recipe = "equal / linear / apa(3, mu, eps=0.01)";
  d.info.title = "Affine projection";
  d.info.paper = "Ozeki, Umeda 1984";
  d.info.equation = "S_t = S_{t-1} + mu_t K_w' (K_w K_w' + eps I)^-1 (V_w - K_w S_{t-1}) ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.traps = {
      "With eps = 0, dependent keys in a window (p > K, a repeated key) have no answer: keep eps positive.",
      "p = 1 is NLMS; with p = K and mu = 1 it is close to least squares on the window."};
  d.info.inputs = {query(), key(), value(), {"mu", "B T H", "step size, in (0, 2)", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.variants = {{"p=1"}, {"p=2,mu=1,eps=0.1"}};
  d.info.settings = {{"p", "pairs in the window", ""},
                     {"mu", "a constant step size", "0.5"},
                     {"eps", "added to the diagonal of K_w K_w'", ""}};
  d.info.golden = {{"apa",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"k0", "state.k"}, {"v0", "state.v"}},
                    {{"p", "@p"}, {"eps", "@eps"}}}};
  return d;
}

}  // namespace ttr::zoo
