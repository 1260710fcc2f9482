// Intention: the least-squares fit to all pairs at once, read at every query; and its softmax variant.
//
//   o_t = V'K (K'K + alpha I)^-1 q_t                                   intention
//   o_t = V' softmax(K (K'K + alpha I)^-1 q_t)                         sigma-intention: softmax on the weights
//
// q [B,T,H,K], k and v with G heads and a number of pairs of their own; alpha > 0 per head. Not causal: rls is the
// causal layer of the same regression. Source: Garnelo and Czarnecki 2023, arXiv 2305.10203.
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using prepare::Op;

Declaration of_all_pairs() {
  Declaration d;
  d.whole = true;
  d.info.paper = "Garnelo and Czarnecki 2023, arXiv 2305.10203";
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B P G K", "key; P pairs, a length of their own", Range::normal},
                   {"v", "B P G V", "value", Range::normal},
                   {"alpha", "H", "ridge, above 0", Range::positive}};
  d.info.outputs = {output()};
  return d;
}

}  // namespace

Declaration intention() {
  Declaration d = of_all_pairs();
  d.info.name = "intention";
  d.info.recipe = "equal / linear / exact(ridge)";
  d.info.title = "Intention";
  d.info.equation = "o_t = V'K (K'K + alpha I)^-1 q_t over all pairs";
  d.info.scale = "none";
  d.info.traps = {"alpha is not divided by the number of pairs: more pairs make it weaker."};
  d.prepare = {{Op::multiply, {"k", "1"}, "k", 0, "B P H K"}, {Op::multiply, {"v", "1"}, "v", 0, "B P H V"}};
  d.feeds = {{"q", "q"}, {"ridge", "alpha"}};
  d.info.golden = {{"intention", {}, {}}};
  return d;
}

Declaration sigma_intention() {
  Declaration d = of_all_pairs();
  d.info.name = "sigma-intention";
  d.info.recipe = "near(exp, scale=1) / constant / exact";
  d.info.departure = "the query is q (K'K + alpha I)^-1, with the keys of the call";
  d.info.title = "Softmax intention";
  d.info.equation = "o_t = V' softmax(K (K'K + alpha I)^-1 q_t) over all pairs";
  d.info.scale = "none: c = 1 in the kernel";
  d.info.traps = {"alpha is not divided by the number of pairs: with many pairs the weights become equal."};
  d.prepare = {{.from = {"q", "k", "alpha"}, .to = "q", .shape = "B T H K", .family = &families::whole_family}};
  return d;
}

}  // namespace ttr::zoo
