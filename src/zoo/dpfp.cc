// Linear transformers with the deterministic parameter-free projection.
//
//   r = [relu(x); relu(-x)] ;  phi = [r * roll(r, j)] for j = 1..nu ;   o_t = S_t' phi(q_t) / (z_t' phi(q_t) + eps)
//
// Source: Schlag, Irie, Schmidhuber 2021 (the form of the paper).
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration dpfp() {
  Declaration d;
  d.info.name = "dpfp";
  d.info.recipe = "equal / linear(dpfp, degree=3) / gd(1) | normalise(keysum, eps=1e-6)";
  d.info.title = "Linear attention with DPFP features";
  d.info.paper = "Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174";
  d.info.equation =
      "r = [relu(x); relu(-x)] ;  phi = [r * roll(r, j)], j = 1..nu ;  o_t = S_t' phi(q_t) / (z_t' phi(q_t) + eps)";
  d.info.scale = "none";
  d.info.departure = "the output is divided by the sum of the features seen by the query";
  d.info.traps = {"Features are sparse: a query may see nothing, and then the output is 0/eps = 0.",
                  "Some public code has [relu(x); -relu(x)], which is another map."};
  d.info.inputs = {query(), key(), value()};
  d.info.outputs = {output()};
  d.info.settings = {{"degree", "nu, number of rolls", ""},
                     {"normalise_eps", "added to the denominator", ""},
                     {"decay", "a factor on older pairs, in (0, 1]", ""}};
  d.info.tolerance_f32 = 1e-3;
  d.info.tolerance_reason = "sparse features make denominators near eps";
  return d;
}

}  // namespace ttr::zoo
