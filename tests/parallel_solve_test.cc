// The parallel form of exact and stepped solves (run/segments.h): segments of time as tasks. One head on several threads
// has the bits of one thread; all gradients, those of states and of what has no time axis included, are those of the
// token loop; sequences of a packed batch have the bits of each alone.
#include <cmath>
#include <limits>

#include "layer_harness.h"

namespace ttr_layer_test {
namespace {

// Gates that are inputs, constants, of H alone; ridges per head, key and token; a relative one; steps; a rotated triangle.
const char* const solves[] = {"mesanet",
                              "mesanet:steps=30",
                              "gated-kalmanet",
                              "gated-kalmanet:steps=20",
                              "rls:ridge=input,decay=0.98",
                              "rls:ridge=key,decay=input,importance=input",
                              "decay(0.98) / linear / exact(ridge=0.1)",
                              "decay(g) / linear / exact(ridge(token))",
                              "equal / linear / gd(4)"};

Plan plan_with(const std::string& text, const Shape& shape, int threads, Type type = Type::f64) {
  Options options;
  options.threads = threads, options.type = type;
  return plan(text, shape, options);
}

void expect_like_the_loop(const Problem& p) {
  const Result loop = run(p, Form::recurrent), parallel = run(p, Form::parallel);
  expect_ok(parallel, Form::parallel);
  EXPECT_LE(cli::relative_error(parallel.values(), loop.values()), 1e-12);
  EXPECT_LE(cli::relative_error(parallel.gradients(), loop.gradients(), 1e-3), 1e-11);
}

// Lengths around those of segments: less than one, a whole number of them and one more, and so many tokens that segments
// get longer; heads that share keys.
TEST(ParallelSolve, IsTheTokenLoop) {
  for (const char* const text : solves)
    for (const std::int64_t time : {1, 63, 64, 65, 193, 331}) {
      SCOPED_TRACE(std::string(text) + ", " + std::to_string(time) + " tokens");
      expect_like_the_loop(batch_problem(plan_with(text, {2, 4, 2, 6, 5}, 1), time, 7));
    }
  expect_like_the_loop(batch_problem(plan_with("mesanet", {1, 1, 1, 3, 2}, 1), 5003, 7));
}

TEST(ParallelSolve, ThreadsDoNotChangeBits) {
  for (const Type type : {Type::f64, Type::f32})
    for (const char* const text : solves)
      for (const Shape& shape : {Shape{1, 1, 1, 12, 9}, Shape{2, 4, 2, 7, 5}}) {
        SCOPED_TRACE(std::string(text) + ", " + std::to_string(shape.heads) + " heads");
        Problem p = batch_problem(plan_with(text, shape, 1, type), 1300, 3);
        const Result one = run(p, Form::parallel);
        expect_ok(one, Form::parallel);
        for (const int threads : {2, 3}) {
          p.plan = plan_with(text, shape, threads, type);
          const Result several = run(p, Form::parallel);
          EXPECT_TRUE(same_bits(several.values(), one.values())) << threads << " threads";
          EXPECT_TRUE(same_bits(several.gradients(), one.gradients())) << threads << " threads";
        }
      }
}

// Sequences of a packed batch, one of them empty: the answers of each alone, bit by bit, on threads too.
TEST(ParallelSolve, PackedSequencesAreEachAlone) {
  const std::vector<std::int64_t> cu = {0, 130, 130, 131, 400};
  for (const char* const text : solves) {
    SCOPED_TRACE(text);
    Problem packed = bare(plan_with(text, {4, 2, 2, 5, 4}, 2), 400, cu, 400, 4);
    advance(packed, bare(packed.plan, 12, {0, 3, 6, 9, 12}, 1, 5));
    expect_like_the_loop(packed);
    const Result all = run(packed, Form::parallel);
    for (int n = 0; n < 4; ++n) {
      const std::int64_t time = cu[static_cast<std::size_t>(n) + 1] - cu[static_cast<std::size_t>(n)];
      if (time == 0) continue;
      Problem one = bare(plan_with(text, {1, 2, 2, 5, 4}, 1), time, {}, time, 1);
      const auto own = [&](const InputInfo& info, const Numbers& from) {
        Numbers to;
        for (std::size_t i = 0; i < from.size(); ++i)
          if (!info.shape.starts_with("B") || packed.in_sequence(info.shape, i, n)) to.push_back(from[i]);
        return to;
      };
      for (const InputInfo& info : packed.plan.inputs())
        one.inputs[info.name] = own(info, packed.inputs.at(info.name));
      for (const InputInfo& info : packed.plan.outputs())
        if (info.differentiable) one.d_outputs[info.name] = own(info, packed.d_outputs.at(info.name));
      for (const StateInfo& info : packed.plan.states())
        for (StateMemory Problem::*const of : {&Problem::initial, &Problem::d_final}) {
          StateMemory from = packed.*of;
          const Tensor whole = packed.plan.state_tensor(state_of(from), info.name);
          const Tensor part = one.plan.state_tensor(state_of(one.*of), info.name);
          for (std::size_t i = 0, count = numbers_in(part); i < count; ++i)
            set_number(part, i, number_at(whole, static_cast<std::size_t>(n) * count + i));
        }
      const Result alone = run(one, Form::parallel);
      for (const InputInfo& info : packed.plan.outputs())
        EXPECT_EQ(alone.outputs.at(info.name), own(info, all.outputs.at(info.name))) << info.name;
      for (const InputInfo& info : packed.plan.inputs())
        if (info.differentiable && info.shape.starts_with("B")) {
          EXPECT_EQ(alone.d_inputs.at(info.name), own(info, all.d_inputs.at(info.name)))
              << "gradient of " << info.name;
        }
    }
  }
}

// A number outside the domain in a late segment takes its head out of the whole sequence, and no other; a state of that
// head stays what it was.
TEST(ParallelSolve, OutsideTheDomain) {
  Problem p = batch_problem(plan_with("mesanet", {2, 2, 2, 4, 3}, 2), 300, 5);
  const Result good = run(p, Form::parallel);
  p.inputs.at("beta")[(0 * 300 + 250) * 2 + 1] = -1;  // row 0, token 250, head 1
  StateMemory before = p.initial;
  const NamedNumbers start = parts_of(p.plan, before);
  const Result r = run(p, Form::parallel), loop = run(p, Form::recurrent);
  EXPECT_EQ(r.forward, Status::out_of_domain);
  EXPECT_EQ(r.backward, Status::out_of_domain);
  for (std::size_t i = 0; i < good.outputs.at("o").size(); ++i) {
    const bool lost = i / 3 % 2 == 1 && i / (3 * 2 * 300) == 0;
    if (lost) EXPECT_TRUE(std::isnan(r.outputs.at("o")[i])) << i;
    else EXPECT_EQ(r.outputs.at("o")[i], good.outputs.at("o")[i]) << i;
  }
  for (const char* const name : {"H", "F"})
    for (std::size_t i = 0; i < start.at(name).size(); ++i) {
      const bool lost = i / (start.at(name).size() / 4) == 1;
      EXPECT_EQ(r.state.at(name)[i], (lost ? start : good.state).at(name)[i]) << name << i;
    }
  EXPECT_LE(cli::relative_error(r.gradients(), loop.gradients(), 1e-3), 1e-11);
}

// A gate that closes between segments, and one inside.
TEST(ParallelSolve, ClosedGates) {
  Problem p = batch_problem(plan_with("mesanet", {1, 2, 2, 4, 3}, 1), 260, 5);
  for (const std::int64_t t : {64, 100, 191, 259})
    p.inputs.at("g")[static_cast<std::size_t>(t) * 2] = t == 100 ? -50 : -std::numeric_limits<double>::infinity();
  expect_like_the_loop(p);
}

}  // namespace
}  // namespace ttr_layer_test
