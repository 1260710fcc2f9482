// Prepared calls, gradients that are added, plans without exceptions, and threads of the caller.
#include <atomic>
#include <functional>
#include <thread>

#include "layer_harness.h"

namespace ttr_layer_test {
namespace {

// A call of `p`, by names or prepared.
struct Call {
  const Problem& problem;
  std::map<std::string, Held> held;
  Inputs in;
  Outputs out;
  std::vector<const void*> reads;
  std::vector<void*> writes;
  StateMemory state;
  Guarded work;

  Call(const Problem& p, Layout layout, Form form)
      : problem(p), state(p.initial), work(p.plan.footprint(p.time + 64, form).workspace) {
    const Type type = p.plan.options().type;
    for (const InputInfo& info : p.plan.inputs()) {
      in[info.name] =
          held.emplace(info.name, Held(type, p.extents(info.shape), info.shape, layout, p.inputs.at(info.name)))
              .first->second.tensor();
      reads.push_back(in[info.name].data);
    }
    in.cu_seqlens = p.cu;
    for (const InputInfo& info : p.plan.outputs()) {
      out[info.name] = held.emplace("-> " + info.name, Held(type, p.extents(info.shape), info.shape, layout))
                           .first->second.tensor();
      writes.push_back(out[info.name].data);
    }
  }
  NamedNumbers results() {
    NamedNumbers all = parts_of(problem.plan, state);
    for (const InputInfo& info : problem.plan.outputs())
      all["-> " + info.name] = held.at("-> " + info.name).numbers();
    return all;
  }
};

TEST(Prepared, EveryLayerHasTheBitsOfForward) {
  for (const Subject& subject : subjects(K)) {
    SCOPED_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Plan plan = plan_of(subject, 2, type);
      for (const std::int64_t time : {1, 5}) {
        const Form form = time == 1 && has_steps(plan) ? Form::step : Form::best;
        const Problem p = batch_problem(plan, time, 6);
        const Layout layout = time == 1 ? Layout::dense : Layout::padded;
        Call named(p, layout, form), first(p, layout, form), second(p, layout, form);
        ASSERT_EQ(plan.forward(named.in, state_of(named.state), named.out, named.work.workspace(), form), Status::ok);
        Prepared call = plan.prepare(first.in, first.out, form);
        EXPECT_EQ(call.time(), time);
        Prepared copy = call;
        for (Call* c : {&first, &second}) {  // other addresses, and a copy of the call
          ASSERT_EQ((c == &first ? call : copy)(c->reads, c->writes, state_of(c->state), c->work.workspace()),
                    Status::ok);
          EXPECT_TRUE(c->work.fence_stands());
          EXPECT_TRUE(same_bits(c->results(), named.results()));
        }
      }
    }
  }
}

TEST(Prepared, LongCallsPackedSequencesAndLists) {
  for (const char* text : {"gated-deltanet", "softmax-attention", "titans-mac", "mamba-1", "rls"}) {
    SCOPED_TRACE(text);
    const Plan plan = ttr::plan(text, {.batch = 3, .heads = 2, .key_dim = 4, .value_dim = 4});
    const Problem p = bare(plan, 1500, {0, 700, 701, 1500}, 1600, 1);  // in blocks of time
    Call named(p, Layout::dense, Form::best), prepared(p, Layout::dense, Form::best);
    Prepared call = plan.prepare(prepared.in, prepared.out);
    for (int times = 0; times < 1 + (plan.tokens_kept({}) < 0); ++times) {
      ASSERT_EQ(plan.forward(named.in, state_of(named.state), named.out, named.work.workspace()), Status::ok);
      ASSERT_EQ(call(prepared.reads, prepared.writes, state_of(prepared.state), prepared.work.workspace()),
                Status::ok);
      EXPECT_TRUE(same_bits(prepared.results(), named.results()));
    }
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Prepared, WhatForwardRefusesIsRefused) {
  const Plan plan = ttr::plan("gated-deltanet", {.batch = 2, .heads = 2, .key_dim = 4, .value_dim = 4});
  const Problem p = batch_problem(plan, 1, 3);
  Call c(p, Layout::dense, Form::step);
  Prepared call = plan.prepare(c.in, c.out, Form::step);
  const State state = state_of(c.state);
  const Workspace work = c.work.workspace();
  ASSERT_EQ(call(c.reads, c.writes, state, work), Status::ok);
  auto reads = c.reads;
  auto writes = c.writes;
  reads[1] = nullptr;
  EXPECT_EQ(call(reads, c.writes, state, work), Status::missing_input);
  reads[1] = static_cast<const std::byte*>(c.reads[1]) + 1;
  EXPECT_EQ(call(reads, c.writes, state, work), Status::misaligned);
  reads.pop_back();
  EXPECT_EQ(call(reads, c.writes, state, work), Status::bad_shape);
  writes[0] = const_cast<void*>(c.reads[2]);
  EXPECT_EQ(call(c.reads, writes, state, work), Status::overlap);
  writes[0] = c.state.data();
  EXPECT_EQ(call(c.reads, writes, state, work), Status::overlap);
  EXPECT_EQ(call(c.reads, c.writes, {state.data, 16}, work), Status::small_state);
  EXPECT_EQ(call(c.reads, c.writes, state, {work.data, 8}), Status::small_workspace);
  EXPECT_EQ(call(c.reads, c.writes, {}, work), Status::small_state);

  Inputs in = c.in;
  in["key"] = in.get("k");
  EXPECT_NE(error_of([&] { (void)plan.prepare(in, c.out); }).find("no input 'key'"), std::string::npos);
  in = c.in;
  in["k"].extent[3] = 5;
  EXPECT_NE(error_of([&] { (void)plan.prepare(in, c.out); }).find("key_dim 5 of k"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)ttr::plan("rls", {}).prepare({}, {}); }).find("missing"), std::string::npos);

  // Lists: full after the last pair, and told so.
  const Plan lists = ttr::plan("softmax-attention", {.key_dim = 4, .value_dim = 4});
  const Problem q = bare(lists, 1, {}, 2, 1);
  Call d(q, Layout::dense, Form::step);
  StateMemory small(lists.footprint(2).state / 8);
  ASSERT_EQ(lists.reset(state_of(small)), Status::ok);
  Prepared step = lists.prepare(d.in, d.out, Form::step);
  for (const Status expected : {Status::ok, Status::ok, Status::state_full})
    EXPECT_EQ(step(d.reads, d.writes, state_of(small), d.work.workspace()), expected);
}

// Gradients that are added to random numbers are those numbers and the gradients, up to the rounding of one sum per
// number; d_initial is written.
TEST(Gradients, EveryLayerAdds) {
  for (const Subject& subject : subjects(K)) {
    SCOPED_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Plan plan = plan_of(subject, 2, type);
      const Problem p = batch_problem(plan, 7, 3);
      for (const Form form : forms_of(plan, 7)) {
        const Result plain = run(p, form);
        std::map<std::string, Held> held;
        Inputs in, d_out;
        Outputs d_in;
        NamedNumbers before;
        for (std::size_t i = 0; i < plan.inputs().size(); ++i) {
          const InputInfo& info = plan.inputs()[i];
          const Extents e = p.extents(info.shape);
          in[info.name] = held.emplace(info.name, Held(type, e, info.shape, Layout::dense, p.inputs.at(info.name)))
                              .first->second.tensor();
          Numbers numbers = normals(p.inputs.at(info.name).size(), 77 + i);
          for (double& x : numbers) x = static_cast<float>(x);
          d_in[info.name] = held.emplace("d " + info.name, Held(type, e, info.shape, Layout::padded, numbers))
                                .first->second.tensor();
          before[info.name] = std::move(numbers);
        }
        for (const InputInfo& info : plan.outputs())
          if (info.differentiable)
            d_out[info.name] = held.emplace("<- " + info.name, Held(type, p.extents(info.shape), info.shape,
                                                                    Layout::dense, p.d_outputs.at(info.name)))
                                   .first->second.tensor();
        StateMemory initial = p.initial, d_final = p.d_final, d_initial(p.initial.size(), 1e9);
        Guarded work(plan.footprint(7 + 64, form).backward);
        ASSERT_EQ(plan.backward(in, state_of(initial), d_out, state_of(d_final), d_in, state_of(d_initial),
                                work.workspace(), form, Gradients::add),
                  Status::ok);
        EXPECT_TRUE(same_bits(parts_of(plan, d_initial), plain.d_state)) << to_string(form);
        for (const InputInfo& info : plan.inputs()) {
          if (!info.differentiable) continue;
          Numbers expected = plain.d_inputs.at(info.name);
          double largest = 1;
          for (std::size_t i = 0; i < expected.size(); ++i) {
            largest = std::max(largest, std::abs(expected[i]));
            expected[i] += before.at(info.name)[i];
          }
          const Numbers got = held.at("d " + info.name).numbers();
          for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], expected[i], largest * (type == Type::f64 ? 1e-13 : 1e-5))
                << info.name << "[" << i << "], " << to_string(form);
        }
      }
    }
  }
}

// A backward of `p`, by names or prepared: tensors of the plan, those that have no gradient left out.
struct BackwardCall {
  const Problem& problem;
  std::map<std::string, Held> held;
  Inputs in, d_out;
  Outputs d_in;
  std::vector<const void*> reads, d_reads;
  std::vector<void*> d_writes;
  StateMemory initial, d_final, d_initial;
  Guarded work;

  BackwardCall(const Problem& p, Layout layout, Form form)
      : problem(p),
        initial(p.initial),
        d_final(p.d_final),
        d_initial(p.initial.size(), 1e9),
        work(p.plan.footprint(p.time + 64, form).backward) {
    const Type type = p.plan.options().type;
    for (const InputInfo& info : p.plan.inputs()) {
      const Extents e = p.extents(info.shape);
      in[info.name] =
          held.emplace(info.name, Held(type, e, info.shape, layout, p.inputs.at(info.name))).first->second.tensor();
      reads.push_back(in[info.name].data);
      d_writes.push_back(nullptr);
      if (!info.differentiable) continue;
      d_in[info.name] = held.emplace("d " + info.name, Held(type, e, info.shape, layout)).first->second.tensor();
      d_writes.back() = d_in[info.name].data;
    }
    in.cu_seqlens = p.cu;
    for (const InputInfo& info : p.plan.outputs()) {
      d_reads.push_back(nullptr);
      if (!info.differentiable) continue;
      d_out[info.name] = held.emplace("<- " + info.name, Held(type, p.extents(info.shape), info.shape, layout,
                                                              p.d_outputs.at(info.name)))
                             .first->second.tensor();
      d_reads.back() = d_out[info.name].data;
    }
  }
  NamedNumbers results() {
    NamedNumbers all = parts_of(problem.plan, d_initial);
    for (const InputInfo& info : problem.plan.inputs())
      if (info.differentiable) all["d " + info.name] = held.at("d " + info.name).numbers();
    return all;
  }
  Status by_name(Form form, Gradients gradients) {
    return problem.plan.backward(in, state_of(initial), d_out, state_of(d_final), d_in, state_of(d_initial),
                                 work.workspace(), form, gradients);
  }
  Status prepared(PreparedBackward& call) {
    return call(reads, state_of(initial), d_reads, state_of(d_final), d_writes, state_of(d_initial),
                work.workspace());
  }
};

TEST(PreparedBackward, EveryLayerHasTheBitsOfBackward) {
  for (const Subject& subject : subjects(K)) {
    SCOPED_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Plan plan = plan_of(subject, 2, type);
      const Problem p = batch_problem(plan, 5, 6);
      for (const Form form : forms_of(plan, 5)) {
        const Layout layout = form == Form::recurrent ? Layout::padded : Layout::dense;
        BackwardCall named(p, layout, form), first(p, layout, form), second(p, layout, form);
        PreparedBackward call = plan.prepare_backward(first.in, first.d_out, first.d_in, form);
        PreparedBackward adds = plan.prepare_backward(first.in, first.d_out, first.d_in, form, Gradients::add);
        PreparedBackward copy = call;
        EXPECT_EQ(call.time(), 5);
        for (int times = 0; times < 2; ++times) {  // write, then add to it
          ASSERT_EQ(named.by_name(form, times == 0 ? Gradients::write : Gradients::add), Status::ok);
          for (BackwardCall* c : {&first, &second}) {
            PreparedBackward& own = times == 1 ? adds : c == &first ? call : copy;
            ASSERT_EQ(c->prepared(own), Status::ok);
            EXPECT_TRUE(c->work.fence_stands());
            EXPECT_TRUE(same_bits(c->results(), named.results())) << to_string(form);
          }
        }
      }
    }
  }
}

TEST(PreparedBackward, LongCallsAndPackedSequences) {
  for (const char* text : {"gated-deltanet", "softmax-attention", "rms-norm", "mamba-3", "hedgehog"}) {
    SCOPED_TRACE(text);
    const Plan plan = ttr::plan(text, {.batch = 3, .heads = 2, .key_dim = 4, .value_dim = 4});
    const Problem p = bare(plan, 1500, {0, 700, 701, 1500}, 1600, 1);  // some in pieces of time
    BackwardCall named(p, Layout::dense, Form::best), other(p, Layout::dense, Form::best);
    PreparedBackward call = plan.prepare_backward(other.in, other.d_out, other.d_in);
    ASSERT_EQ(named.by_name(Form::best, Gradients::write), Status::ok);
    ASSERT_EQ(other.prepared(call), Status::ok);
    EXPECT_TRUE(same_bits(other.results(), named.results()));
  }
}

TEST(PreparedBackward, WhatBackwardRefusesIsRefused) {
  const Plan plan = ttr::plan("gated-deltanet", {.batch = 2, .heads = 2, .key_dim = 4, .value_dim = 4});
  const Problem p = batch_problem(plan, 3, 3);
  BackwardCall c(p, Layout::dense, Form::best);
  PreparedBackward call = plan.prepare_backward(c.in, c.d_out, c.d_in);
  const State state = state_of(c.initial), d_final = state_of(c.d_final), d_initial = state_of(c.d_initial);
  const Workspace work = c.work.workspace();
  ASSERT_EQ(call(c.reads, state, c.d_reads, d_final, c.d_writes, d_initial, work), Status::ok);
  ASSERT_EQ(call(c.reads, state, c.d_reads, {}, c.d_writes, {}, work), Status::ok);
  auto reads = c.reads;
  reads[1] = nullptr;
  EXPECT_EQ(call(reads, state, c.d_reads, {}, c.d_writes, {}, work), Status::missing_input);
  auto writes = c.d_writes;
  writes[0] = static_cast<std::byte*>(c.d_writes[0]) + 2;
  EXPECT_EQ(call(c.reads, state, c.d_reads, {}, writes, {}, work), Status::misaligned);
  writes[0] = const_cast<void*>(c.reads[0]);
  EXPECT_EQ(call(c.reads, state, c.d_reads, {}, writes, {}, work), Status::overlap);
  EXPECT_EQ(call(c.reads, state, c.d_reads, d_final, c.d_writes, state, work), Status::overlap);
  EXPECT_EQ(call(c.reads, {}, c.d_reads, {}, c.d_writes, {}, work), Status::small_state);
  EXPECT_EQ(call(c.reads, state, c.d_reads, {d_final.data, 8}, c.d_writes, {}, work), Status::small_state);
  EXPECT_EQ(call(c.reads, state, c.d_reads, {}, c.d_writes, {}, {work.data, 8}), Status::small_workspace);
  Outputs d_in = c.d_in;
  d_in["key"] = d_in.get("k");
  EXPECT_NE(error_of([&] { (void)plan.prepare_backward(c.in, c.d_out, d_in); }).find("'key'"), std::string::npos);
}

TEST(TryPlan, SaysWhatPlanThrows) {
  const TriedPlan good = try_plan("nlms", {.key_dim = 2, .value_dim = 1});
  ASSERT_TRUE(good);
  EXPECT_EQ(good.plan->name(), "nlms");
  EXPECT_EQ(good.error, "");
  const TriedPlan bad = try_plan("nmls", {});
  EXPECT_FALSE(bad);
  EXPECT_NE(bad.error.find("nlms"), std::string::npos) << bad.error;
  const TriedPlan odd = try_plan("nlms", {.heads = 3, .key_heads = 2});
  EXPECT_FALSE(odd);
  EXPECT_EQ(odd.where, "shape.key_heads");
}

// Threads of the caller: the bits are those of one thread, and the library starts none.
struct Own {
  std::atomic<int> calls{0}, jobs{0};
  bool backwards = false;
  static void run(void* self, int jobs, void (*job)(void*, int), void* data) {
    Own& own = *static_cast<Own*>(self);
    own.calls += 1, own.jobs += jobs;
    if (own.backwards) {  // one after another, the last first
      for (int i = jobs; i-- > 0;) job(data, i);
      return;
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < jobs; ++i) threads.emplace_back(job, data, i);
    for (std::thread& t : threads) t.join();
  }
};

TEST(Executor, SameBitsOnThreadsOfTheCaller) {
  for (const char* text : {"gated-deltanet", "softmax-attention", "mesanet", "mamba-1", "rwkv-7"}) {
    SCOPED_TRACE(text);
    const Shape shape{.batch = 1, .heads = 4, .key_dim = 32, .value_dim = 32};
    for (const bool backwards : {false, true}) {
      Own own;
      own.backwards = backwards;
      Options options;
      options.threads = 3;
      options.executor = {Own::run, &own};
      const Problem one = bare(plan(text, shape), 300, {}, 300, 1);
      Problem many = bare(plan(text, shape, options), 300, {}, 300, 1);
      many.inputs = one.inputs, many.d_outputs = one.d_outputs, many.d_final = one.d_final;
      const Result a = run(one, Form::best), b = run(many, Form::best);
      expect_ok(b, Form::best);
      EXPECT_TRUE(same_bits(b.values(), a.values()));
      EXPECT_TRUE(same_bits(b.gradients(), a.gradients()));
      EXPECT_GT(own.calls, 0);
      EXPECT_GT(own.jobs, own.calls);
    }
  }
}

}  // namespace
}  // namespace ttr_layer_test
