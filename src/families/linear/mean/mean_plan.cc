// The weighted mean of the values: the best constant, sum_i w_i v_i / sum_i w_i. Two sums on the kernel of decay, whose
// keys and queries are all one. No kernel of its own.
#include "families/common/linear_plan.h"

namespace ttr::families {
namespace {

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::constant});
  rest.needs(rest.s.kind, {Solver::Kind::exact});
  rest.takes_fade(), rest.takes_importance(), rest.takes_read_norms();
  rest.x.keys = {};  // none are read
  return causal && rest.is_nothing();
}

int build(Builder& b, double) {
  const int one = b.constant(1), v = b.canonical("v"), g = b.log_fade(), beta = b.importance();
  StatePart weight = b.memory_part(one, one, "n", "sum of w");
  weight.info.range = Range::positive;
  const int sum =
      b.add(b.kernel(decay_family, 1, one, one, v, g, beta), "BTHV", {b.memory_part(one, v, "S", "sum of w v")});
  const int total = b.add(b.kernel(decay_family, 1, one, one, one, g, beta), "BTH1", {std::move(weight)});
  return b.operation(prepare::Op::divide, {sum, total}, "BTHV");
}

}  // namespace

const Family mean_family = {.name = "mean", .forms = all_forms, .claim = claim, .build = build};

}  // namespace ttr::families
