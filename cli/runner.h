// Runs a plan on numbers held in double, whatever the plan's type: what checks and golden vectors need.
// Not for speed. Arrays are dense, in the shape that the plan's tables say.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace ttr::cli {

using Numbers = std::vector<double>;
using NamedNumbers = std::map<std::string, Numbers, std::less<>>;

struct Forward {
  NamedNumbers outputs, state;  // state parts by name: the final state
  bool in_domain = true;        // else some call returned out_of_domain
};
struct Backward {
  NamedNumbers inputs, state;  // gradients
};

class Runner {
 public:
  /// `time` tokens per sequence; states that keep their pairs get room for `capacity` (at least `time`). `pairs`: of a
  /// plan that is not causal, if there are not as many as tokens.
  Runner(Plan plan, std::int64_t time, std::int64_t capacity = 0, std::int64_t pairs = -1);

  const Plan& plan() const { return plan_; }
  std::int64_t time() const { return time_; }
  /// Forward calls that return out_of_domain are errors, unless this was called: then what they wrote is returned, and
  /// Forward::in_domain is false.
  void keep_out_of_domain() { keeps_out_of_domain_ = true; }

  // The workspace is filled with NaN before every call: nothing may depend on what it held.
  Forward forward(const NamedNumbers& inputs, const NamedNumbers& initial, Form) const;
  /// One token at a time through Plan::step.
  Forward step_by_step(const NamedNumbers& inputs, const NamedNumbers& initial) const;
  /// As several calls of `forward`, cut at the given tokens.
  Forward in_pieces(const NamedNumbers& inputs, const NamedNumbers& initial, const std::vector<std::int64_t>& cuts,
                    Form) const;
  Backward backward(const NamedNumbers& inputs, const NamedNumbers& initial, const NamedNumbers& d_outputs,
                    const NamedNumbers& d_final, Form) const;
  /// The gradients of the inputs from a fresh state, as calls of `backward` cut at the given tokens: each is given the
  /// state that the pieces before it left, and the gradient of its final state from the piece after it.
  NamedNumbers backward_in_pieces(const NamedNumbers& inputs, const NamedNumbers& d_outputs,
                                  const std::vector<std::int64_t>& cuts, Form) const;

 private:
  // One call on the tokens of a piece; the state moves on.
  NamedNumbers forward_piece(const NamedNumbers& inputs, State, std::int64_t length, Form, bool& in_domain) const;
  NamedNumbers backward_piece(const NamedNumbers& inputs, ConstState initial, const NamedNumbers& d_outputs,
                              ConstState d_final, State d_initial, std::int64_t length, Form) const;

  // Of a tensor of a piece. Levels are those that the whole needs, because a later piece sees all pairs before it.
  std::vector<std::ptrdiff_t> extents(std::string_view shape, std::int64_t length) const;

  Plan plan_;
  std::int64_t time_, capacity_, pairs_;
  bool keeps_out_of_domain_ = false;
};

/// Numbers that lie beside each other as a tensor of the plan, for `time` tokens.
template <class AnyTensor, class T>
AnyTensor dense_tensor(const Plan& plan, T* data, const std::string& shape, std::int64_t time) {
  AnyTensor t;
  const auto extent = plan.extents(shape, time);
  t.data = data, t.type = type_of<T>, t.rank = static_cast<int>(extent.size());
  std::ptrdiff_t stride = 1;
  for (std::size_t d = extent.size(); d-- > 0;) t.extent[d] = extent[d], t.stride[d] = stride, stride *= extent[d];
  return t;
}

/// Elements of an array whose shape is given in letters.
std::size_t count(const Plan&, std::string_view letters, std::int64_t time);

/// Tokens [begin, end) of a dense array with letters `shape`; arrays without a time axis are returned whole.
Numbers tokens_of(const Plan&, const Numbers&, std::string_view shape, std::int64_t time, std::int64_t begin,
                  std::int64_t end);

/// Batch row `row` of a dense array; arrays without a batch axis are returned whole.
Numbers row_of(const Plan&, const Numbers&, std::string_view shape, std::int64_t time, int row);

/// max |a - b| / max(max |b|, floor); infinite where one has a number that is not finite, or the sizes differ. The
/// floor is for arrays that are zero but for rounding, such as the gradient of a length that a norm has removed.
double relative_error(const Numbers& a, const Numbers& b, double floor = 0);
/// The largest over all arrays of `expected`.
double relative_error(const NamedNumbers& actual, const NamedNumbers& expected, double floor = 0);

}  // namespace ttr::cli
