// What must hold for every layer of the table and for every operation, with the settings of its variants, in every
// form, forwards and backwards, through the public API alone.
#include <cmath>
#include <limits>
#include <thread>

#include "layer_harness.h"
#include "simd/simd.h"

namespace ttr_layer_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::string describe(Form form, Type type) {
  return std::string(to_string(form)) + (type == Type::f32 ? ", f32" : ", f64");
}

#define TTR_TRACE(text) \
  SCOPED_TRACE(text);   \
  if (::testing::Test::HasFatalFailure()) return

TEST(EveryLayer, LeavesItsInputsAlone) {  // the checks are in `run`
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Problem p = batch_problem(plan_of(subject, 2, type), 13, 6);
      for (const Form form : forms_of(p.plan, p.time)) expect_ok(run(p, form), form);
    }
  }
}

// Whether the layer multiplies by a matrix that is an input. Those products, and the sums of gradients, run over
// contiguous rows in another order than over strided ones.
bool multiplies(const Plan& plan) {
  for (const InputInfo& info : plan.inputs()) {
    const Axes axes = Axes(info.shape).without('H');
    if (!axes.has('B') && axes.size() > 1) return true;
  }
  return false;
}

// Outputs and states have the bits of dense tensors, except where a matrix is an input; gradients agree to rounding.
TEST(EveryLayer, StridesDoNotMatter) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Problem p = batch_problem(plan_of(subject, 2, type), 13, 6);
      for (const Form form : forms_of(p.plan, p.time)) {
        const Result dense = run(p, form);
        for (const Layout layout : strided) {
          const Result r = run(p, form, layout);
          const std::string what = describe(form, type) + ", " + layout_names[static_cast<int>(layout)];
          if (!multiplies(p.plan)) {
            EXPECT_TRUE(same_bits(r.values(), dense.values())) << what;
          }
          expect_near(r, dense, form_tolerance(type), form_gradient_tolerance(type), what);
        }
      }
    }
  }
}

// The same where gates end frames inside a chunk.
TEST(EveryLayer, StridesDoNotMatterUnderStrongGates) {
  const std::pair<const char*, const char*> layers[] = {{"gla", "gk"}, {"kda", "g"}, {"dplr", "gk"}, {"rwkv-6", "w"}};
  for (const auto& [text, gate] : layers) {
    TTR_TRACE(text);
    Problem p = batch_problem(plan(text, Shape{1, 2, 2, 18, 18}), 90, 6);
    Numbers& gates = p.inputs.at(gate);
    for (std::size_t i = 0; i < gates.size(); ++i)
      if (i % 7 < 2) gates[i] = -6;
    const Result dense = run(p, Form::chunk);
    for (const Layout layout : strided)
      EXPECT_TRUE(same_bits(run(p, Form::chunk, layout).values(), dense.values()))
          << layout_names[static_cast<int>(layout)];
  }
}

// Sequence `n` of a packed call as a call of its own.
Problem alone(const Problem& packed, const Plan& single, int n, std::int64_t capacity) {
  const std::int64_t begin = packed.cu[static_cast<std::size_t>(n)], end = packed.cu[static_cast<std::size_t>(n) + 1];
  Problem p{single, end - begin, {}, {}, {}, {}, {}};
  for (const InputInfo& info : single.inputs())
    p.inputs[info.name] = cli::tokens_of(single, packed.inputs.at(info.name), info.shape, packed.time, begin, end);
  for (const InputInfo& info : single.outputs())
    if (info.differentiable)
      p.d_outputs[info.name] =
          cli::tokens_of(single, packed.d_outputs.at(info.name), info.shape, packed.time, begin, end);
  p.initial.assign(single.footprint(capacity).state / sizeof(double) + 1, 0.0);
  EXPECT_EQ(single.reset(state_of(p.initial)), Status::ok);
  p.d_final.assign(p.initial.size(), 0.0);
  EXPECT_EQ(p.plan.zero(state_of(p.d_final)), Status::ok);
  return p;
}

// Row `n` of tensors whose first axis is the batch.
NamedNumbers row(const NamedNumbers& parts, int n, int rows) {
  NamedNumbers result;
  for (const auto& [name, numbers] : parts) {
    const std::ptrdiff_t one = static_cast<std::ptrdiff_t>(numbers.size()) / rows;
    result[name].assign(numbers.begin() + n * one, numbers.begin() + (n + 1) * one);
  }
  return result;
}

// In two calls, so that the second starts from states of different ages. Gradients of parameters are sums over the
// sequences: those agree to rounding.
TEST(EveryLayer, PackedSequencesHaveTheBitsOfEachAlone) {
  const std::vector<std::int64_t> earlier = {0, 3, 3, 10, 12}, cu = {0, 0, 1, 6, 19};
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Plan together = plan_of(subject, 4, type), single = plan_of(subject, 1, type);
      Problem packed = bare(together, 19, cu, 31, 1);
      const Problem before = bare(together, 12, earlier, 31, 2);
      advance(packed, before);
      const NamedNumbers d_final = parts_of(together, packed.d_final), start = parts_of(together, packed.initial);
      std::vector<Problem> ones;
      for (int n = 0; n < 4; ++n) {
        Problem& one = ones.emplace_back(alone(packed, single, n, 31));
        advance(one, alone(before, single, n, 31));
        EXPECT_TRUE(same_bits(row(start, n, 4), parts_of(single, one.initial))) << "first call, sequence " << n;
        for (const auto& [name, numbers] : row(d_final, n, 4)) {
          const Tensor t = single.state_tensor(state_of(one.d_final), name);
          for (std::size_t i = 0; i < numbers.size(); ++i) set_number(t, i, numbers[i]);
        }
      }
      for (const Form form : forms_of(together, 19)) {
        const Result all = run(packed, form);
        expect_ok(all, form);
        NamedNumbers sums;
        for (int n = 0; n < 4; ++n) {
          const std::string what = std::string(to_string(form)) + ", sequence " + std::to_string(n);
          const Result r = run(ones[static_cast<std::size_t>(n)], form);
          expect_ok(r, form);
          const std::int64_t begin = cu[static_cast<std::size_t>(n)], end = cu[static_cast<std::size_t>(n) + 1];
          NamedNumbers here, own;
          for (const InputInfo& info : single.outputs())
            here[info.name] = cli::tokens_of(single, all.outputs.at(info.name), info.shape, 19, begin, end),
            own[info.name] = r.outputs.at(info.name);
          for (const InputInfo& info : single.inputs()) {
            const std::string name = "gradient of " + info.name;
            if (info.shape.starts_with("B")) {
              here[name] = cli::tokens_of(single, all.d_inputs.at(info.name), info.shape, 19, begin, end);
              own[name] = r.d_inputs.at(info.name);
            } else {
              Numbers& sum = sums[info.name];
              sum.resize(r.d_inputs.at(info.name).size());
              for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += r.d_inputs.at(info.name)[i];
            }
          }
          EXPECT_TRUE(same_bits(here, own)) << what;
          EXPECT_TRUE(same_bits(row(all.state, n, 4), r.state)) << what;
          EXPECT_TRUE(same_bits(row(all.d_state, n, 4), r.d_state)) << what;
        }
        for (const auto& [name, sum] : sums)
          EXPECT_LE(cli::relative_error(all.d_inputs.at(name), sum, gradient_floor(all.gradients())),
                    form_gradient_tolerance(type))
              << "gradient of " << name << ", " << to_string(form);
      }
    }
  }
}

// What the other sequences have: every tensor without the numbers of sequence `n`, and without parameters' gradients.
NamedNumbers others(const Problem& p, const Result& r, int n) {
  NamedNumbers result;
  const auto add = [&](const std::string& name, const std::string& shape, const Numbers& numbers) {
    if (!shape.starts_with("B")) return;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (!p.in_sequence(shape, i, n)) result[name].push_back(numbers[i]);
  };
  for (const InputInfo& info : p.plan.outputs()) add(info.name, info.shape, r.outputs.at(info.name));
  for (const InputInfo& info : p.plan.inputs())
    if (info.differentiable) add("gradient of " + info.name, info.shape, r.d_inputs.at(info.name));
  const int rows = p.plan.shape().batch;
  for (int i = 0; i < rows; ++i) {
    if (i == n) continue;
    for (const auto& [name, numbers] : row(r.state, i, rows))
      result["final state " + name + " of sequence " + std::to_string(i)] = numbers;
    for (const auto& [name, numbers] : row(r.d_state, i, rows))
      result["gradient of initial state " + name + " of sequence " + std::to_string(i)] = numbers;
  }
  return result;
}

// A number in the middle of sequence `n` of a tensor.
std::size_t middle(const Problem& p, const std::string& shape, std::size_t size, int n) {
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < size; ++i)
    if (p.in_sequence(shape, i, n)) own.push_back(i);
  return own.at(own.size() / 2);
}

bool all_finite(const NamedNumbers& all) {
  for (const auto& [name, numbers] : all)
    if (!std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); })) return false;
  return true;
}

// One number of sequence 1, of each input, incoming gradient and state part in turn. A number outside the domain of
// the layer is said (out_of_domain) and still spoils its own sequence alone. Only the literal solver, and a count of
// tokens that cannot be, may refuse the whole call; it then leaves the states alone.
void expect_kept_apart(const Problem& clean) {
  constexpr int n = 1;
  for (const Form form : forms_of(clean.plan, clean.time)) {
    const NamedNumbers expected = others(clean, run(clean, form), n);
    ASSERT_TRUE(all_finite(expected)) << to_string(form);
    for (const double bad : {not_a_number, infinity, -infinity}) {
      const auto compare = [&](const Problem& dirty, const std::string& what) {
        const Result r = run(dirty, form);
        const std::string where = std::to_string(bad) + " in " + what + ", " + std::string(to_string(form)) +
                                  (clean.cu.empty() ? ", batch" : ", packed");
        EXPECT_EQ(r.forward == Status::ok, r.backward == Status::ok) << where;
        StateMemory initial = dirty.initial;
        const bool may_refuse = r.forward == Status::state_full ||
                                (r.forward == Status::out_of_domain && clean.plan.kernel() == "oracle");
        const bool refused = may_refuse && same_bits(r.state, parts_of(dirty.plan, initial));
        if (!refused) {
          EXPECT_TRUE(same_bits(others(dirty, r, n), expected)) << where << ": " << to_string(r.forward);
        }
        return r.forward != Status::ok || !all_finite(r.values()) || !all_finite(r.gradients());
      };
      for (const InputInfo& info : clean.plan.inputs()) {
        if (!info.shape.starts_with("B")) continue;
        Problem dirty = clean;
        Numbers& numbers = dirty.inputs.at(info.name);
        numbers[middle(clean, info.shape, numbers.size(), n)] = bad;
        const bool shown = compare(dirty, info.name);
        if (std::isnan(bad)) {
          EXPECT_TRUE(shown) << "NaN in " << info.name << " is lost, " << to_string(form);
        }
      }
      for (const InputInfo& info : clean.plan.outputs()) {
        if (!info.differentiable) continue;
        Problem dirty = clean;
        Numbers& numbers = dirty.d_outputs.at(info.name);
        numbers[middle(clean, info.shape, numbers.size(), n)] = bad;
        compare(dirty, "the gradient of " + info.name);
      }
      for (const StateInfo& info : clean.plan.states()) {
        Problem dirty = clean;
        const Tensor t = clean.plan.state_tensor(state_of(dirty.initial), info.name);
        if (t.type == Type::i64 || numbers_in(t) == 0) continue;  // a count has no NaN
        const std::size_t one = numbers_in(t) / static_cast<std::size_t>(clean.plan.shape().batch);
        set_number(t, n * one, bad);
        compare(dirty, "the state " + info.name);
        if (!info.differentiable) continue;
        Problem d_dirty = clean;
        set_number(clean.plan.state_tensor(state_of(d_dirty.d_final), info.name), n * one, bad);
        compare(d_dirty, "the gradient of the final state " + info.name);
      }
    }
  }
}

TEST(EveryLayer, NotFiniteNumbersStayInTheirRowOfTheBatch) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    expect_kept_apart(batch_problem(plan_of(subject, 3, Type::f64), 9, 3));
  }
}

TEST(EveryLayer, NotFiniteNumbersStayInTheirPackedSequence) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    const Plan plan = plan_of(subject, 4, Type::f32);
    Problem p = bare(plan, 19, {0, 5, 12, 12, 19}, 27, 1);
    advance(p, bare(plan, 8, {0, 2, 4, 6, 8}, 1, 2));
    expect_kept_apart(p);
  }
}

// To the tolerance that the layer publishes.
TEST(EveryLayer, InstructionSetsAgree) {
  const std::vector<std::string> targets = simd_targets();
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const double tolerance = type == Type::f64 ? subject.info->tolerance_f64 : subject.info->tolerance_f32;
      Problem p = batch_problem(plan_of(subject, 1, type, targets.front()), 13, 6);
      for (const Form form : forms_of(p.plan, p.time)) {
        p.plan = plan_of(subject, 1, type, targets.front());
        const Result best = run(p, form);
        for (const std::string& target : targets) {
          if (target == targets.front()) continue;
          p.plan = plan_of(subject, 1, type, target);
          expect_near(run(p, form), best, tolerance, tolerance,
                      target + " against " + targets.front() + ", " + std::string(to_string(form)));
        }
      }
    }
  }
}

TEST(EveryLayer, TwoThreadsOnOnePlanHaveTheBitsOfOne) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    const Plan shared = plan_of(subject, 1, Type::f32);
    const Problem problems[2] = {batch_problem(shared, 13, 6, 1), batch_problem(shared, 21, 6, 7)};
    const std::vector<Form> forms = forms_of(shared, 13);
    std::vector<Result> serial[2], threaded[2];
    const auto run_all = [&](std::size_t i, std::vector<Result>& results) {
      for (int repeat = 0; repeat < 2; ++repeat)
        for (const Form form : forms) results.push_back(run(problems[i], form));
    };
    for (const std::size_t i : {0, 1}) run_all(i, serial[i]);
    std::thread other([&] { run_all(1, threaded[1]); });
    run_all(0, threaded[0]);
    other.join();
    for (const std::size_t i : {0, 1})
      for (std::size_t j = 0; j < serial[i].size(); ++j) {
        EXPECT_TRUE(same_bits(threaded[i][j].values(), serial[i][j].values())) << to_string(forms[j % forms.size()]);
        EXPECT_TRUE(same_bits(threaded[i][j].gradients(), serial[i][j].gradients()))
            << to_string(forms[j % forms.size()]);
      }
  }
}

// The state stays, the gradient of the state passes through, and parameters get a gradient of zero.
TEST(EveryLayer, NoTokensAreTheIdentity) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64})
      for (const bool packed : {false, true}) {
        const Plan plan = plan_of(subject, 2, type);
        Problem p = packed ? bare(plan, 0, {0, 0, 0}, 6, 1) : bare(plan, 0, {}, 6, 1);
        advance(p, bare(plan, 6, {}, 1, 2));
        for (const Form form : forms_of(plan, 0)) {
          const Result r = run(p, form);
          expect_ok(r, form);
          StateMemory initial = p.initial, d_final = p.d_final;
          EXPECT_TRUE(same_bits(r.state, parts_of(plan, initial))) << to_string(form);
          if (plan.tokens_kept(state_of(initial)) < 0) {
            EXPECT_TRUE(same_bits(r.d_state, parts_of(plan, d_final))) << to_string(form);
          }
          for (const auto& [name, numbers] : r.d_inputs)
            EXPECT_EQ(numbers, Numbers(numbers.size(), 0.0)) << "gradient of " << name << ", " << to_string(form);
        }
      }
  }
}

TEST(EveryLayer, OneTokenIsTheSameInEveryForm) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Problem p = batch_problem(plan_of(subject, 2, type), 1, 6);
      if (!has_steps(p.plan)) continue;
      const Result recurrent = run(p, Form::recurrent), step = run(p, Form::step);
      expect_ok(recurrent, Form::recurrent), expect_ok(step, Form::step);
      EXPECT_TRUE(same_bits(step.values(), recurrent.values()));
      for (const Form form : forms_of(p.plan, 1))
        expect_near(run(p, form), recurrent, form_tolerance(type), form_gradient_tolerance(type),
                    std::string(to_string(form)));
    }
  }
}

// Gates given as logs: a factor of exp(-1e4) forgets everything and one of exp(0) nothing; both are ordinary numbers.
// Rates that a step multiplies (Range::negative) take the same values. The gradient of the step is then 1e4 times that
// of the gate, rounding included, so its forms are compared in double.
TEST(EveryLayer, StrongGatesStayFiniteAndFormsAgree) {
  for (const Subject& subject : subjects(K)) {
    TTR_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      Problem p = batch_problem(plan_of(subject, 1, type), 33, 6);
      const NamedNumbers mild = p.inputs;
      enum Kind { some, all_closed, all_open };
      for (const Kind kind : {some, all_closed, all_open}) {
        bool gated = false, rates = false;
        for (const InputInfo& info : p.plan.inputs()) {
          if (info.range != Range::log_gate && info.range != Range::negative) continue;
          gated = true, rates |= info.range == Range::negative;
          const Numbers choice = normals(mild.at(info.name).size(), 77);
          for (std::size_t i = 0; i < choice.size(); ++i)
            p.inputs[info.name][i] = kind == all_open                      ? 0
                                     : kind == all_closed || choice[i] > 1 ? -1e4
                                     : choice[i] < -0.3                    ? 0
                                                                           : mild.at(info.name)[i];
        }
        if (!gated) break;
        const Result recurrent = run(p, has_steps(p.plan) ? Form::recurrent : p.plan.forms().front());
        for (const Form form : forms_of(p.plan, p.time)) {
          const std::string what = describe(form, type) + (kind == some         ? ""
                                                           : kind == all_closed ? ", all -1e4"
                                                                                : ", all 0");
          const Result r = run(p, form);
          expect_ok(r, form);
          EXPECT_TRUE(all_finite(r.values())) << what;
          EXPECT_TRUE(all_finite(r.gradients())) << what;
          const bool wide = rates && type == Type::f32 && kind != all_open;
          expect_near(r, recurrent, form_tolerance(type), wide ? infinity : form_gradient_tolerance(type), what);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttr_layer_test
