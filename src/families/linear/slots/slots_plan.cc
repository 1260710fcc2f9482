// Slots: two gated memories with a softmax between them. The keys of the slots are read to a share of each slot, the
// values of the slots are read by the shares (gated slot attention, ABC). No kernel of its own.
#include "families/common/linear_plan.h"
#include "families/linear/channel/channel_plan.h"

namespace ttr::families {
namespace {

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::slots});
  rest.needs(rest.w.per, {Weights::Per::slot});
  rest.m.slots = 0;
  rest.takes_fade(), rest.takes_read_norms();
  rest.x.keys = {};
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  const int s = b.canonical("s"), gate = b.canonical("gs");
  Step keys = b.kernel(gated_family, scale, q, k, s, -1, -1, GatedSlot::count);
  keys.operands[GatedSlot::gv] = gate;
  const int match = b.add(std::move(keys), "BTHM", {b.memory_part(k, s, "Km", "keys of the slots")});
  const int share = b.operation(prepare::Op::softmax, {match}, "BTHM");
  Step values = b.kernel(gated_family, 1, share, s, v, -1, -1, GatedSlot::count);
  values.operands[GatedSlot::gk] = gate;
  return b.add(std::move(values), "BTHV", {b.memory_part(s, v, "Vm", "values of the slots")});
}

}  // namespace

const Family slots_family = {.name = "slots", .forms = all_forms, .claim = claim, .build = build};

}  // namespace ttr::families
