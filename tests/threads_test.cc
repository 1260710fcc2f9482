// Threads: the pool, and that a call has the same bits on any number of them, in every layer and form; long calls, which
// go through a plan in pieces of time.
#include "threads/pool.h"

#include <atomic>
#include <cfenv>
#include <cmath>
#include <set>
#include <thread>

#include "layer_harness.h"

namespace ttr_layer_test {
namespace {

TEST(Pool, RunsEveryTaskOnce) {
  threads::prepare(4);
  for (const int tasks : {1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    std::array<std::atomic<int>, 4> at_work{};
    std::atomic<bool> alone{true};
    threads::for_each(4, tasks, [&](int i, int worker) {
      if (at_work[static_cast<std::size_t>(worker)].fetch_add(1) != 0) alone = false;
      runs[static_cast<std::size_t>(i)].fetch_add(1);
      at_work[static_cast<std::size_t>(worker)].fetch_sub(1);
    });
    for (const std::atomic<int>& n : runs) EXPECT_EQ(n, 1);
    EXPECT_TRUE(alone) << "two tasks of one worker at the same time";
  }
}

TEST(Pool, TasksRunAtTheSameTime) {  // each waits for the other
  threads::prepare(2);
  std::atomic<int> there{0};
  threads::for_each(2, 2, [&](int, int) {
    there.fetch_add(1);
    while (there.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(there, 2);
}

TEST(Pool, ManyCallersAtOnce) {
  threads::prepare(3);
  std::vector<std::thread> callers;
  std::array<std::atomic<long>, 5> sums{};
  for (std::size_t c = 0; c < sums.size(); ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 200; ++round)
        threads::for_each(3, 10, [&](int i, int) { sums[c].fetch_add(i + 1); });
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::atomic<long>& sum : sums) EXPECT_EQ(sum, 200 * 55);
}

// A caller that rounds upwards has workers that do.
TEST(Pool, WorkersRoundAsTheCaller) {
  threads::prepare(2);
  const int before = std::fegetround();
  for (const int mode : {FE_UPWARD, FE_TONEAREST}) {
    std::fesetround(mode);
    std::atomic<int> there{0}, same{0};
    threads::for_each(2, 2, [&](int, int) {
      there.fetch_add(1);
      while (there.load() < 2) std::this_thread::yield();  // both threads have one
      if (std::fegetround() == mode) same.fetch_add(1);
    });
    EXPECT_EQ(same, 2);
  }
  std::fesetround(before);
}

TEST(Pool, WithoutTasksNothingRuns) {
  threads::for_each(2, 0, [](int, int) { FAIL(); });
}

Plan threaded(const Subject& subject, Shape shape, int count, int chunk = 16) {
  Options options;
  options.threads = count, options.chunk = chunk;
  if (subject.info->square) shape.value_dim = shape.key_dim;
  if (!subject.info->grouped) shape.key_heads = shape.heads;
  return plan(subject.text, shape, options);
}

bool has(const Plan& one, Form form) {
  return std::find(one.forms().begin(), one.forms().end(), form) != one.forms().end();
}

// With the sanitizers, which are ten times as slow, a ninth of the layers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t every = 9;
#else
constexpr std::size_t every = 1;
#endif

// Shapes that are cut by heads, by sequences and heads, by sequences, by columns of the values.
TEST(EveryLayer, ThreadsDoNotChangeBits) {
  const Shape shapes[] = {{1, 6, 3, 12, 12}, {3, 4, 2, 8, 9}, {8, 2, 2, 8, 6}, {1, 1, 1, 12, 40}};
  const int counts[] = {2, 3, 3, 2};
  const std::vector<Subject> all = subjects(12);
  for (std::size_t s = 0; s < all.size(); s += every)
    for (std::size_t i = 0; i < std::size(shapes); ++i) {
      const Subject& subject = all[s];
      const Shape& shape = shapes[i];
      SCOPED_TRACE(subject.text + ", batch " + std::to_string(shape.batch) + ", heads " +
                   std::to_string(shape.heads));
      const Plan one = threaded(subject, shape, 1);
      if (one.kernel() == "oracle") continue;
      Problem p = batch_problem(one, 120, 5);
      for (const Form form : forms_of(one, p.time)) {
        if (form == Form::parallel && one.forms().size() > 1) continue;  // one chunk of all tokens
        if (form == Form::scan) continue;                                // scan_test.cc
        if (form == Form::best && !has(one, Form::chunk) && has(one, Form::scan)) continue;  // may be the scan
        const Result expected = run(p, form);
        expect_ok(expected, form);
        Problem q = p;
        q.plan = threaded(subject, shape, counts[i]);
        const Result r = run(q, form);
        const std::string what = std::string(to_string(form)) + ", " + std::to_string(counts[i]) + " threads";
        EXPECT_TRUE(same_bits(r.values(), expected.values())) << what;
        EXPECT_TRUE(same_bits(r.gradients(), expected.gradients())) << what;
      }
    }
}

// Heads that share a key head, one head, and more heads than threads can share out evenly: heads of a key head, columns and
// pieces of time go to different threads, and all of them add to the same gradients.
TEST(Threads, AnyHeads) {
  const char* const texts[] = {"retnet",
                               "gated-deltanet",
                               "gla",
                               "kda",
                               "dplr",
                               "mamba-2",
                               "softmax-attention",
                               "forgetting-attention",
                               "near(exp) * window(40) / constant / exact",
                               "near(gauss, bandwidth) / constant / exact",
                               "local-linear-attention",
                               "near(gauss, bandwidth) * decay(0.98) / local(1) / exact(ridge=0.5)",
                               "near(exp) * window(40) / local(1) / exact(ridge=0.5)"};
  const Shape shapes[] = {{1, 1, 1, 20, 33}, {1, 3, 3, 20, 33}, {1, 3, 1, 20, 33}, {1, 6, 2, 20, 17}};
  const auto has_groups = [](const std::string& text) {
    for (const LayerInfo& info : layers())
      if (info.name == text) return info.grouped;
    return true;
  };
  for (const std::string text : texts)
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(text + ", heads " + std::to_string(shape.heads) + ", key heads " +
                   std::to_string(shape.key_heads));
      if (shape.key_heads < shape.heads && !has_groups(text)) continue;
      Options options;
      const Problem p = batch_problem(plan(text, shape, options), 300, 5);
      const Result expected = run(p, Form::best);
      expect_ok(expected, Form::best);
      for (const int count : {2, 3}) {
        options.threads = count;
        Problem q = p;
        q.plan = plan(text, shape, options);
        const Result r = run(q, Form::best);
        EXPECT_TRUE(same_bits(r.values(), expected.values())) << count << " threads";
        EXPECT_TRUE(same_bits(r.gradients(), expected.gradients())) << count << " threads";
      }
    }
}

// Blocks of queries that learn from blocks before them how to solve, and add to the gradients of pairs in their order: more
// blocks than one company of them, keys that steps of conjugate gradients solve and keys on which they run out.
TEST(Threads, LocalLinearSolves) {
  for (const bool hard : {false, true})
    for (const Shape& shape : {Shape{1, 1, 1, 36, 8}, Shape{1, 2, 1, 36, 8}}) {
      SCOPED_TRACE("heads " + std::to_string(shape.heads) + (hard ? ", hard keys" : ""));
      Options options;
      options.settings["ridge"] = hard ? "1e-7" : "1";
      Problem p = batch_problem(plan("local-linear-attention", shape, options), 600, 5);
      Numbers& k = p.inputs.at("k");
      for (std::size_t i = 0; hard && i < k.size(); ++i)
        k[i] *= std::pow(10.0, -4.0 * static_cast<double>(i % 36) / 36);
      const Result expected = run(p, Form::best);
      options.threads = 3;
      Problem q = p;
      q.plan = plan("local-linear-attention", shape, options);
      const Result r = run(q, Form::best);
      EXPECT_TRUE(same_bits(r.values(), expected.values()));
      EXPECT_TRUE(same_bits(r.gradients(), expected.gradients()));
    }
}

// One plan with threads, used by several threads of the caller at once.
TEST(Threads, CallsAtTheSameTime) {
  const Shape shape{2, 4, 4, 16, 16};
  Options options;
  options.threads = 2;
  const Plan shared = plan("gated-deltanet", shape, options);
  const Problem p = batch_problem(shared, 100, 3);
  const Result expected = run(p, Form::chunk);
  std::vector<Result> results(4);
  std::vector<std::thread> callers;
  for (Result& result : results)
    callers.emplace_back([&] {
      for (int i = 0; i < 5; ++i) result = run(p, Form::chunk);
    });
  for (std::thread& caller : callers) caller.join();
  for (const Result& result : results) {
    EXPECT_TRUE(same_bits(result.values(), expected.values()));
    EXPECT_TRUE(same_bits(result.gradients(), expected.gradients()));
  }
}

TEST(Threads, AsManyAsTheMachineHas) {
  Options options;
  options.threads = 0;
  EXPECT_EQ(plan("nlms", {}, options).options().threads, threads::available());
  for (const int wrong : {-1, 1000}) {
    options.threads = wrong;
    try {
      plan("nlms", {}, options);
      ADD_FAILURE() << wrong << " threads";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), "threads is " + std::to_string(wrong) +
                                           "; it must be between 1 and 256, or 0 for all of the machine");
    }
  }
}

// Outputs and states of tokens begin .. end-1 of one row, after what `state` has seen.
Result forward_part(const Problem& p, std::int64_t begin, std::int64_t end, StateMemory& state, Form form) {
  std::map<std::string, Held> held, written;
  Inputs in;
  Outputs out;
  Result r;
  for (const InputInfo& info : p.plan.inputs())
    in[info.name] =
        held.emplace(info.name,
                     Held(p.plan.options().type, p.plan.extents(info.shape, end - begin), info.shape, Layout::dense,
                          cli::tokens_of(p.plan, p.inputs.at(info.name), info.shape, p.time, begin, end)))
            .first->second.tensor();
  for (const InputInfo& info : p.plan.outputs())
    out[info.name] = written
                         .emplace(info.name, Held(p.plan.options().type, p.plan.extents(info.shape, end - begin),
                                                  info.shape, Layout::dense))
                         .first->second.tensor();
  Guarded work(p.plan.footprint(end - begin, form).workspace);
  r.forward = p.plan.forward(in, state_of(state), out, work.workspace(), form);
  EXPECT_TRUE(work.fence_stands());
  for (const InputInfo& info : p.plan.outputs()) r.outputs[info.name] = written.at(info.name).numbers();
  r.state = parts_of(p.plan, state);
  return r;
}

// A call of thousands of tokens is one pass over its pieces. It equals calls of a few hundred tokens, packed sequences
// have the bits of each alone, and outputs that nobody asked for change nothing.
TEST(EveryLayer, LongCallsEqualShortOnes) {
  constexpr std::int64_t T = 2500;
  const std::vector<Subject> every_layer = subjects(4);
  for (std::size_t s = 0; s < every_layer.size(); s += every) {
    const Subject& subject = every_layer[s];
    SCOPED_TRACE(subject.text);
    Options options;
    options.type = Type::f64;
    const Shape shape{1, 2, subject.info->grouped ? 1 : 2, 4, subject.info->square ? 4 : 3};
    const Plan one = plan(subject.text, shape, options);
    if (one.kernel() == "oracle" || !has_steps(one) || one.tokens_kept({}) >= 0) continue;
    const Problem p = bare(one, T, {}, 1, 1);
    Shape three = shape;
    three.batch = 3;
    const std::vector<std::int64_t> cu = {0, 900, 903, T};
    const Problem packed = [&] {
      Problem q = bare(plan(subject.text, three, options), T, cu, 1, 1);
      for (const InputInfo& info : one.inputs()) q.inputs[info.name] = p.inputs.at(info.name);
      return q;
    }();
    for (const Form form : {Form::recurrent, Form::best}) {
      StateMemory state = p.initial;
      const Result whole = forward_part(p, 0, T, state, form);
      if (whole.forward == Status::state_full) break;  // a limit on the number of tokens
      ASSERT_EQ(whole.forward, Status::ok) << to_string(form);
      state = p.initial;
      NamedNumbers joined;
      for (std::int64_t t = 0; t < T; t += 300) {
        const Result part = forward_part(p, t, std::min(t + 300, T), state, form);
        for (const auto& [name, numbers] : part.outputs)
          joined[name].insert(joined[name].end(), numbers.begin(), numbers.end());
      }
      const double bound = subject.info->conditioning * form_tolerance(Type::f64);
      for (const auto& [name, numbers] : joined)
        EXPECT_LE(cli::relative_error(whole.outputs.at(name), numbers, 0), bound) << name << ", " << to_string(form);

      const Result all = run(packed, form);
      ASSERT_EQ(all.forward, Status::ok) << to_string(form);
      for (std::size_t n = 0; n + 1 < cu.size(); ++n) {
        state = p.initial;
        const Result alone = forward_part(p, cu[n], cu[n + 1], state, form);
        NamedNumbers here;
        for (const InputInfo& info : one.outputs())
          here[info.name] = cli::tokens_of(one, all.outputs.at(info.name), info.shape, T, cu[n], cu[n + 1]);
        EXPECT_TRUE(same_bits(here, alone.outputs)) << to_string(form) << ", sequence " << n;
      }
    }
  }
}

// Beyond what the caller gives, a forward call needs as much memory for a million tokens as for ten thousand.
TEST(EveryLayer, ForwardScratchDoesNotGrow) {
  for (const Subject& subject : subjects(4)) {
    const Plan one = plan(subject.text, {1, 2, 0, 4, subject.info->square ? 4 : 3});
    if (one.kernel() == "oracle" || !has_steps(one) || one.tokens_kept({}) >= 0) continue;
    if (one.kernel() == "operation") continue;
    EXPECT_EQ(one.footprint(1'000'000).workspace, one.footprint(10'000).workspace) << subject.text;
  }
}

}  // namespace
}  // namespace ttr_layer_test
