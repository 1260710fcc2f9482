// equal / kernel(exp) / gd(1) is no problem of kernel regression to a kernel: it is a sum weighted by similarity, which
// attention computes. The rules are those of recipe/equal.h that keep the inputs.
//
// Traps: a scale of the caller means different things to a linear memory and to one that keeps pairs, and a plan that is
// not causal counts ages from its last pair; the rules know neither, so both keep their own design.
#include "plan/equal_design.h"

#include <algorithm>

#include "families/families.h"
#include "recipe/equal.h"

namespace ttr {
namespace {

bool has_kernel(const Design& design) { return !families::claimed_by(design, true).traits.literal; }

bool same_inputs(const Design& a, const Design& b) {
  const std::vector<InputInfo> of_a = canonical_inputs(a), of_b = canonical_inputs(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [](const InputInfo& x, const InputInfo& y) {
    return x.name == y.name && x.shape == y.shape && x.optional == y.optional;
  });
}

}  // namespace

Design design_to_run(const Recipe& recipe, const Design& own, const Options& options) {
  if (!options.causal || options.scale || options.kernel == "oracle" || has_kernel(own)) return own;
  for (const Rewriting& link : with_the_same_inputs(rewritten(recipe)))
    if (has_kernel(link.design) && same_inputs(own, link.design)) return link.design;
  return own;
}

}  // namespace ttr
