// The bytes that calls need stay bounded: of all layers, at the shape of docs/embedding.md; and what bounds them, backward
// in pieces of time, gives the gradients of the whole call.
#include <numeric>

#include "layer_harness.h"
#include "plan/pipeline.h"
#include "run/time_blocks.h"

namespace ttr_layer_test {
namespace {

constexpr std::int64_t T = 4096;
constexpr Shape shape{.batch = 1, .heads = 16, .key_dim = 128, .value_dim = 128};
constexpr double MB = 1e6;

double tensor_bytes(const Plan& plan) {
  double bytes = 0;
  const auto add = [&](const auto& infos) {
    for (const InputInfo& info : infos) {
      double numbers = sizeof(float);
      for (const std::ptrdiff_t extent : plan.extents(info.shape, T)) numbers *= static_cast<double>(extent);
      bytes += numbers;
    }
  };
  add(plan.inputs()), add(plan.outputs());
  return bytes;
}

// Layers whose scratch has a reason to be larger; each bound is of bytes.
struct Exception {
  const char* layer;
  double step, forward, backward;
  const char* why;
};
constexpr Exception exceptions[] = {
    {"based", 4 * MB, 80 * MB, 2100 * MB, "features of K^2 / 2 numbers, a state of 69 MB"},
    {"rebased", 4 * MB, 55 * MB, 1900 * MB, "the same in double"},
    {"feature-taylor2", 1.5 * MB, 36 * MB, 1 * MB, "a result of K^2 / 2 numbers per token, left out"},
    {"feature-rebased", 1.5 * MB, 36 * MB, 1 * MB, "the same"},
    {"feature-polynomial", 1.5 * MB, 36 * MB, 1 * MB, "the same"},
    {"deltaformer", 1.5 * MB, 40 * MB, 90 * MB, "the corrected values of a call"},
    {"intention", 1.5 * MB, 110 * MB, 150 * MB, "not causal: all pairs of a call at once"},
    {"sigma-intention", 1.5 * MB, 40 * MB, 95 * MB, "the same, and the logits of a tile of queries"},
    {"local-linear-attention", 20 * MB, 12 * MB, 20 * MB, "the pairs of one head, which every step of a solve reads"},
    {"parallax", 20 * MB, 12 * MB, 20 * MB, "the same"},
    {"kernel-regression", 310 * MB, 95 * MB, 190 * MB, "a dense system of all pairs of one head"},
    {"ttt-mlp", 6 * MB, 10 * MB, 260 * MB, "a state of 25 MB: a network with its momentum"},
    {"titans", 6 * MB, 10 * MB, 260 * MB, "the same"},
    {"titans-pytorch", 6 * MB, 10 * MB, 260 * MB, "the same"},
    {"titans-mag", 6 * MB, 40 * MB, 470 * MB, "the same, and attention beside it"},
    {"titans-mal", 6 * MB, 65 * MB, 470 * MB, "the same"},
    {"titans-mac", 6 * MB, 15 * MB, 740 * MB, "the same"},
    {"lact", 8 * MB, 30 * MB, 260 * MB, "a state of 50 MB"},
};

TEST(Footprint, EveryLayerIsBounded) {
  for (const LayerInfo& info : layers()) {
    SCOPED_TRACE(info.name);
    const Plan plan = ttr::plan(info.name, shape);
    const double tensors = tensor_bytes(plan);
    double step = 1.5 * MB, forward = 10 * MB, backward = 2.25 * tensors;
    for (const Exception& e : exceptions)
      if (info.name == e.layer) step = e.step, forward = e.forward, backward = e.backward;
    const Footprint bytes = plan.footprint(T);
    const std::size_t one = plan.options().causal ? plan.footprint(2 * T, Form::step).workspace : 0;
    EXPECT_LE(static_cast<double>(one), step);
    EXPECT_LE(static_cast<double>(bytes.workspace), forward);
    EXPECT_LE(static_cast<double>(bytes.backward), backward) << "tensors " << tensors;
  }
}

TEST(Footprint, ThreadsThatCannotHelpHaveNoScratch) {
  Options eight;
  eight.threads = 8;
  const Footprint one = plan("titans-mac", shape).footprint(T), many = plan("titans-mac", shape, eight).footprint(T);
  EXPECT_LE(many.backward, one.backward + one.backward / 4);  // its heads are not independent
}

TEST(Footprint, StatelessBackwardDoesNotGrow) {
  for (const char* name : {"rms-norm", "feature-elu1", "rms-norm-gate-first"}) {
    const Plan p = plan(name, shape);
    EXPECT_LE(p.footprint(16 * T).backward, p.footprint(T).backward + 20'000) << name;  // the list of pieces
    EXPECT_LE(p.footprint(T).backward, 4'000'000u) << name;
  }
}

// The plan with pieces of `tokens`, whatever its scratch is.
Plan with_pieces(const Plan& plan, std::int64_t tokens) {
  auto body = std::make_shared<Plan::Body>(*plan.body());
  body->backward_piece = tokens;
  return Plan(std::move(body));
}

TEST(BackwardPieces, EveryLayerHasTheGradientsOfTheWhole) {
  for (const Subject& subject : subjects(K)) {
    SCOPED_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Plan plan = plan_of(subject, 2, type);
      if (!goes_in_blocks(*plan.body(), Form::best)) continue;
      std::int64_t unit = 1;
      for (const Step& step : plan.body()->pipeline.steps)
        if (step.kernel && step.kernel->time_unit) unit = std::lcm(unit, std::int64_t{step.kernel->time_unit(step)});
      const std::int64_t time = std::max<std::int64_t>(11, 2 * unit + 3), piece = unit > 1 ? unit : 3;
      Problem whole = batch_problem(with_pieces(plan, 0), time, 2 * unit),
              cut = batch_problem(with_pieces(plan, piece), time, 2 * unit);
      for (const Form form : {Form::best, Form::recurrent}) {
        const Result a = run(whole, form), b = run(cut, form);
        expect_ok(b, form);
        expect_near(b, a, form_tolerance(type), form_gradient_tolerance(type), "");
      }
      // Sequences of a packed batch are cut at their own tokens, whatever stands beside them.
      if (unit > 1) continue;
      const Problem packed = bare(with_pieces(plan, piece), 13, {0, 4, 13}, 16, 1);
      const Problem plain = bare(with_pieces(plan, 0), 13, {0, 4, 13}, 16, 1);
      expect_near(run(packed, Form::best), run(plain, Form::best), form_tolerance(type),
                  form_gradient_tolerance(type), "");
    }
  }
}

TEST(BackwardPieces, ThreadsHaveTheSameBits) {
  for (const char* text : {"mamba-3", "cosformer", "lru", "dpfp"}) {
    SCOPED_TRACE(text);
    const Shape small{.batch = 1, .heads = 4, .key_dim = 16, .value_dim = 16};
    Options three;
    three.threads = 3;
    const Problem one = bare(plan(text, small), 700, {}, 700, 1);
    Problem many = bare(plan(text, small, three), 700, {}, 700, 1);
    ASSERT_GT(one.plan.body()->backward_piece, 0);
    EXPECT_EQ(one.plan.body()->backward_piece, many.plan.body()->backward_piece);
    many.inputs = one.inputs, many.d_outputs = one.d_outputs, many.d_final = one.d_final;
    const Result a = run(one, Form::best), b = run(many, Form::best);
    EXPECT_TRUE(same_bits(b.gradients(), a.gradients()));
  }
}

}  // namespace
}  // namespace ttr_layer_test
