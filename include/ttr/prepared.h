// A prepared call: tensors are named, measured and checked once; then a call takes pointers and nothing else.
//
//   ttr::Prepared step = plan.prepare(in, out, ttr::Form::step);      // shapes, strides and types of in and out
//   const void* reads[] = {q, k, v, beta, g};                         // in the order of plan.inputs()
//   void* writes[] = {o};                                             // in the order of plan.outputs()
//   ttr::Status s = step(reads, writes, {state.data(), state.size()}, {work.data(), work.size()});
//
// and for a training loop
//
//   ttr::PreparedBackward back = plan.prepare_backward(in, d_out, d_in);
//   void* gradients[] = {d_q, d_k, d_v, d_beta, d_g};                 // in the order of plan.inputs()
//   const void* of_outputs[] = {d_o};                                 // in the order of plan.outputs()
//   s = back(reads, initial, of_outputs, {}, gradients, {}, {work.data(), work.size()});
//
// where forward and backward may be given the same room of Footprint::saved bytes (Saved, ttr/plan.h) behind the workspace.
//
// It computes what Plan::forward (backward) computes, bit for bit, and refuses what that refuses. Calls of one Prepared must not
// overlap in time, because it holds the addresses of the call: give every thread its own (they are cheap to copy).
#pragma once

#include <memory>
#include <span>

#include "ttr/export.h"
#include "ttr/plan.h"

namespace ttr {

class TTR_API Prepared {
 public:
  /// One pointer for each of plan.inputs() and plan.outputs(), in that order; null for those that were left out.
  /// With room for what backward would have to find again (Saved) the call takes the way of Plan::forward.
  [[nodiscard]] Status operator()(std::span<const void* const> inputs, std::span<void* const> outputs, State,
                                  Workspace, Saved = {}) noexcept;

  const Plan& plan() const noexcept { return plan_; }
  std::int64_t time() const noexcept;  // tokens of a call

  Prepared(const Prepared&);
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(const Prepared&);
  Prepared& operator=(Prepared&&) noexcept;
  ~Prepared();

 private:
  friend class Plan;
  struct Body;
  Prepared(Plan, std::unique_ptr<Body>);
  Plan plan_;
  std::unique_ptr<Body> body_;
};

/// A prepared backward: everything of Plan::backward but the names.
class TTR_API PreparedBackward {
 public:
  /// One pointer for each of plan.inputs() (inputs, d_inputs) and plan.outputs() (d_outputs), in that order; null for
  /// those that were left out. `d_final` and `d_initial` may be empty, as in Plan::backward.
  [[nodiscard]] Status operator()(std::span<const void* const> inputs, ConstState initial,
                                  std::span<const void* const> d_outputs, ConstState d_final,
                                  std::span<void* const> d_inputs, State d_initial, Workspace, Saved = {}) noexcept;

  const Plan& plan() const noexcept { return plan_; }
  std::int64_t time() const noexcept;  // tokens of a call

  PreparedBackward(const PreparedBackward&);
  PreparedBackward(PreparedBackward&&) noexcept;
  PreparedBackward& operator=(const PreparedBackward&);
  PreparedBackward& operator=(PreparedBackward&&) noexcept;
  ~PreparedBackward();

 private:
  friend class Plan;
  struct Body;
  PreparedBackward(Plan, std::unique_ptr<Body>);
  Plan plan_;
  std::unique_ptr<Body> body_;
};

}  // namespace ttr
