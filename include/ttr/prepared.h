// A prepared call: tensors are named, measured and checked once; then a call takes pointers and nothing else.
//
//   ttr::Prepared step = plan.prepare(in, out, ttr::Form::step);      // shapes, strides and types of in and out
//   const void* reads[] = {q, k, v, beta, g};                         // in the order of plan.inputs()
//   void* writes[] = {o};                                             // in the order of plan.outputs()
//   ttr::Status s = step(reads, writes, {state.data(), state.size()}, {work.data(), work.size()});
//
// It computes what Plan::forward computes, bit for bit, and refuses what that refuses. Calls of one Prepared must not
// overlap in time, because it holds the addresses of the call: give every thread its own (they are cheap to copy).
#pragma once

#include <memory>
#include <span>

#include "ttr/plan.h"

namespace ttr {

class Prepared {
 public:
  /// One pointer for each of plan.inputs() and plan.outputs(), in that order; null for those that were left out.
  [[nodiscard]] Status operator()(std::span<const void* const> inputs, std::span<void* const> outputs, State,
                                  Workspace) noexcept;

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

}  // namespace ttr
