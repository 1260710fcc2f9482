#include "plan/joints.h"

#include <algorithm>

namespace ttr {
namespace {

using prepare::Op;

class Finder {
 public:
  Finder(Pipeline& p, bool one_head_per_key) : p_(p), one_head_per_key_(one_head_per_key) {}

  void run() {
    for (int i = 0; i < count(); ++i)
      if (const Joint found = keys_from(i); found.multiply >= 0)
        for (const int member : found.members())
          if (member >= 0) p_.steps[static_cast<std::size_t>(member)].set_options(found);
    for (int i = 0; i < count(); ++i) fold_skip(i);
  }

 private:
  int count() const { return static_cast<int>(p_.steps.size()); }
  const Step& step(int i) const { return p_.steps[static_cast<std::size_t>(i)]; }
  // The only step that does `op` with `value` as its operand number `at`; -1 if there is none, or several.
  int reader(Op op, std::size_t at, int value) const {
    int found = -1;
    for (int i = 0; i < count(); ++i) {
      const Step& s = step(i);
      if (s.kernel || s.op != op || at >= s.operands.size() || s.operands[at] != value) continue;
      if (found >= 0) return -1;
      found = i;
    }
    return found;
  }
  int readers(int value) const {
    int all = 0;
    for (const Step& s : p_.steps) all += static_cast<int>(std::count(s.operands.begin(), s.operands.end(), value));
    return all;
  }
  // Whether a value is there before step i.
  bool is_there(int value, int i) const {
    for (int later = i; later < count(); ++later)
      for (const int result : {step(later).result, step(later).second_result, step(later).third_result})
        if (result == value) return false;
    return value >= 0;
  }
  bool is_full(int value) const {  // every token and head has a row
    const AxisPlaces& at = p_.values[static_cast<std::size_t>(value)].places;
    return at.batch >= 0 && at.time >= 0 && at.head >= 0 && at.inner >= 0 && !at.of_pairs &&
           (one_head_per_key_ || !at.grouped);
  }

  void fold_skip(int at) {
    Step& kernel = p_.steps[static_cast<std::size_t>(at)];
    if (!kernel.kernel || !kernel.kernel->traits.adds_skip || kernel.pairs != 1 || readers(kernel.result) != 1)
      return;
    const int found = reader(Op::skip, 0, kernel.result);
    if (found < at || p_.values[static_cast<std::size_t>(kernel.result)].output >= 0) return;
    Step& skip = p_.steps[static_cast<std::size_t>(found)];
    const auto axes = [&](int value) -> const Axes& { return p_.values[static_cast<std::size_t>(value)].axes; };
    if (skip.operands[1] != kernel.operands[Slot::v] || skip.operands[2] < 0 ||
        !(axes(skip.operands[2]) == Axes("H")) || !(axes(skip.result) == axes(kernel.result)))
      return;
    if (is_there(skip.operands[2], at)) kernel.skip = found, skip.folded = true;
  }

  Joint keys_from(int at) const {
    const Step& multiply = step(at);
    if (multiply.kernel || multiply.op != Op::multiply || readers(multiply.result) != 1) return {};
    const Value& between = p_.values[static_cast<std::size_t>(multiply.result)];
    const int norm = reader(Op::unit_norm_clamp, 0, multiply.result);
    const int blend = reader(Op::blend_product, 0, multiply.operands[0]);
    if (norm < 0 || blend < 0 || between.output >= 0) return {};
    const int erase = reader(Op::negative_product, 0, step(norm).result);
    if (erase < 0 || step(erase).operands[1] != step(blend).operands[1]) return {};
    const int bonus = reader(Op::bonus_value, 1, step(blend).result);
    Joint joint{at, norm, blend, erase, bonus};
    joint.first = std::min({at, norm, blend, erase});
    bool good = is_there(multiply.operands[1], joint.first);
    for (const int operand : step(blend).operands) good = good && is_there(operand, joint.first);
    for (std::size_t i = 0; bonus >= 0 && i < 4; ++i)
      good = good && (i == 1 || is_there(step(bonus).operands[i], joint.first));
    for (const int member : joint.members()) good = good && (member < 0 || is_full(step(member).result));
    return good ? joint : Joint{};
  }

  Pipeline& p_;
  bool one_head_per_key_;  // then key heads are heads
};

}  // namespace

void find_joints(Pipeline& p, const Shape& shape) { Finder(p, shape.key_heads == shape.heads).run(); }

}  // namespace ttr
