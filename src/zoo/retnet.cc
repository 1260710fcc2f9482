// RetNet's retention: pairs fade by a fixed factor per head.
//
//   S_t = a_h S_{t-1} + k_t v_t' ,  a_h = 1 - 2^(-5-h) , h = 0..H-1 ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// Source: Sun et al. 2023. The published layer rotates q and k (xPos) and has a gated norm around this cell.
#include <cmath>

#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

std::vector<double> retention_log_decay(int heads, const std::map<std::string, std::string>&) {
  std::vector<double> g(static_cast<std::size_t>(heads));
  for (int h = 0; h < heads; ++h) g[static_cast<std::size_t>(h)] = std::log1p(-std::exp2(-5.0 - h));
  return g;
}

}  // namespace

Declaration retnet() {
  Declaration d;
  d.info.name = "retnet";
  d.info.recipe = "decay(g) / linear / gd(1)";
  d.info.title = "RetNet (retention)";
  d.info.paper = "Sun, Dong, Huang, Ma, Xia, Xue, Wang, Wei 2023, arXiv 2307.08621";
  d.info.equation = "S_t = a_h S_{t-1} + k_t v_t' ,  a_h = 1 - 2^(-5-h) ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"The factor depends on the head: running heads one at a time needs the head's own number.",
                  "Compute the log of the factor by log1p: 1 - 2^(-5-h) rounds away for large h."};
  d.info.inputs = {query(), key(), value()};
  d.info.outputs = {output()};
  d.info.variants = {{"decay=0.9"}, {"decay=0.9,step=auto"}};
  d.info.settings = {{"decay", "one factor for all heads instead of the table, in (0, 1]", "0.98"},
                     {"normalise", "none, unit, rms or keysum: what divides the output", ""},
                     {"step", "length of the gradient step; auto = 1 / sum w |k|^2", "auto"}};
  d.info.golden = {{"retention", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  d.log_decay_of_head = retention_log_decay;
  return d;
}

}  // namespace ttr::zoo
