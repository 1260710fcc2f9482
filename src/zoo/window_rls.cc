// Least squares over a sliding window of pairs.
//
//   o_t = V_w' K_w (K_w' K_w + ridge I)^{-1} q_t      over the last W pairs
//
// q, k [B,T,G,K], v [B,T,H,V], ridge [H]. Source: Haykin, Adaptive Filter Theory.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration window_rls() {
  Declaration d;
  d.info.name = "window-rls";
  d.info.recipe = "window(64) / linear / exact(ridge)";
  d.info.title = "Windowed least squares";
  d.info.paper = "Haykin, Adaptive Filter Theory";
  d.info.equation = "o_t = V_w' K_w (K_w' K_w + ridge I)^-1 q_t, over the last W pairs";
  d.info.scale = "none";
  d.info.traps = {
      "Pairs that leave are subtracted; the sums are made afresh every W tokens, so rounding does not pile up.",
      "With W below K the fit interpolates: keep the ridge positive."};
  d.info.inputs = {query(), key(), value(), {"ridge", "H", "ridge", Range::positive}};
  d.info.outputs = {output(), variance(), known()};
  d.info.settings = {{"window", "W, the pairs that count", ""},
                     {"ridge", "a constant ridge", "0.01"},
                     {"keys", "raw, unit or rms: norm of q and k", ""}};
  d.info.golden = {
      {"window_rls", {{"lam", "ridge"}, {"k0", "before.k"}, {"v0", "before.v"}}, {{"window", "@window"}}}};
  d.info.variants = {{"window=4"}, {"window=13,ridge=0.3"}};
  return d;
}

}  // namespace ttr::zoo
