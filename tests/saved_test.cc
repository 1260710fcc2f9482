// What a forward leaves for its backward (Saved): the same bits with it and without, and no buffer of another call.
#include "layer_harness.h"
#include "simd/simd.h"

namespace ttr_layer_test {
namespace {

Plan wide_plan(const std::string& text, int batch, int width, Type type = Type::f32, int threads = 1, int chunk = 0,
               const std::string& target = {}) {
  Options options;
  options.type = type, options.threads = threads, options.chunk = chunk, options.target = target;
  return plan(text, {batch, 2, 2, width, width}, options);
}

void expect_same(const Problem& p, Form form, Layout layout = Layout::dense) {
  const Result without = run(p, form, layout), with = run(p, form, layout, true);
  expect_ok(without, form), expect_ok(with, form);
  EXPECT_TRUE(same_bits(without.values(), with.values()));
  EXPECT_TRUE(same_bits(without.gradients(), with.gradients()));
}

// Layers whose kernel goes by chunks both ways on every instruction set.
constexpr const char* leave_something[] = {"deltanet", "gated-deltanet", "gla", "kda", "gated-deltaproduct"};

TEST(Saved, EveryLayerHasTheSameBitsWithAndWithout) {
  int count = 0;
  for (const Subject& subject : subjects(K))
    for (const Type type : {Type::f32, Type::f64})
      for (const int chunk : {0, 8, 11}) {
        Options options;
        options.type = type, options.chunk = chunk;
        const Plan plan =
            ttr::plan(subject.text, {2, 2, subject.info->grouped ? 1 : 2, K, subject.info->square ? K : V}, options);
        if (plan.footprint(61).saved == 0) continue;
        SCOPED_TRACE(testing::Message() << subject.text << ", chunk " << chunk << ", " << to_string(type));
        ++count;
        const Problem p = batch_problem(plan, 61, 3);
        for (const Form form : forms_of(plan, 61)) expect_same(p, form);
        expect_same(p, Form::best, Layout::padded);
      }
  EXPECT_GT(count, 60);
  for (const char* layer : leave_something) EXPECT_GT(wide_plan(layer, 1, 64).footprint(256).saved, 0u) << layer;
  EXPECT_EQ(wide_plan("softmax-attention", 1, 64).footprint(256).saved, 0u);
  EXPECT_EQ(wide_plan("deltanet", 1, 64).footprint(256, Form::recurrent).saved, 0u);
  // Decayed sums of small states go back by sweeps, which read none, with vectors of 64 bytes.
  EXPECT_GT(wide_plan("retnet", 1, 128).footprint(256).saved, 0u);
  if (simd_targets().front().starts_with("AVX3")) {
    EXPECT_EQ(wide_plan("retnet", 1, 64).footprint(256).saved, 0u);
  }
  EXPECT_EQ(wide_plan("deltanet", 1, 64).footprint(4).saved, 0u);
}

TEST(Saved, PackedSequencesAndOddSizes) {
  for (const char* layer : {"retnet", "mamba-2", "gla", "kda", "rwkv-7", "deltanet", "gated-deltanet"})
    for (const int width : {17, 33}) {
      SCOPED_TRACE(testing::Message() << layer << " " << width);
      const Plan plan = wide_plan(layer, 5, width);
      Problem p = bare(plan, 210, {0, 3, 3, 68, 70, 210}, 210, 2);
      expect_same(p, Form::best);
    }
}

TEST(Saved, CallsThatGoInBlocksAndPieces) {
  for (const char* layer : {"rwkv-7", "kda", "mamba-2", "gated-deltanet"})
    for (const int time : {1024, 1031, 2113}) {
      SCOPED_TRACE(testing::Message() << layer << " " << time);
      expect_same(batch_problem(wide_plan(layer, 1, 16), time, 5), Form::best);
    }
}

TEST(Saved, EveryNumberOfThreadsAndInstructionSet) {
  for (const char* layer : {"retnet", "mamba-2", "gla", "kda", "rwkv-7", "deltanet", "gated-deltanet"}) {
    SCOPED_TRACE(layer);
    const auto problem = [&](int threads, const std::string& target) {
      Options options;
      options.threads = threads, options.target = target;
      return batch_problem(plan(layer, {1, 3, 3, 48, 40}, options), 300, 0);
    };
    const Result one = run(problem(1, ""), Form::best, Layout::dense, true);
    for (const int threads : {2, 5}) {
      const Result many = run(problem(threads, ""), Form::best, Layout::dense, true);
      EXPECT_TRUE(same_bits(one.values(), many.values())) << threads;
      EXPECT_TRUE(same_bits(one.gradients(), many.gradients())) << threads;
    }
    for (const std::string& target : simd_targets()) expect_same(problem(1, target), Form::best);
  }
}

TEST(Saved, StrongGates) {
  for (const char* layer : {"gla", "kda", "rwkv-7", "gated-deltanet", "mamba-2"}) {
    SCOPED_TRACE(layer);
    Problem p = batch_problem(wide_plan(layer, 1, 16), 200, 0);
    for (const char* gate : {"g", "gk", "w"})
      if (const auto found = p.inputs.find(gate); found != p.inputs.end())
        for (std::size_t i = 0; i < found->second.size(); i += 37) found->second[i] = -70;
    expect_same(p, Form::best);
  }
}

// A call with everything it needs.
struct Whole {
  Problem p;
  std::map<std::string, Held> held;
  Inputs in, d_out;
  Outputs out, d_in;
  StateMemory state, initial;
  std::vector<double> room;
  Footprint bytes;
  Guarded work;

  explicit Whole(const Problem& problem)
      : p(problem),
        state(p.initial),
        initial(p.initial),
        bytes(p.plan.footprint(p.time)),
        work(std::max(bytes.workspace, bytes.backward)) {
    const auto tensor = [&](const std::string& key, const InputInfo& info, const Numbers* numbers) {
      const Extents e = p.extents(info.shape);
      const Type type = p.plan.options().type;
      return held
          .emplace(key, numbers ? Held(type, e, info.shape, Layout::dense, *numbers)
                                : Held(type, e, info.shape, Layout::dense))
          .first->second.tensor();
    };
    for (const InputInfo& info : p.plan.inputs()) {
      in[info.name] = tensor(info.name, info, &p.inputs.at(info.name));
      d_in[info.name] = tensor("d " + info.name, info, nullptr);
    }
    for (const InputInfo& info : p.plan.outputs()) {
      out[info.name] = tensor("-> " + info.name, info, nullptr);
      d_out[info.name] = tensor("d -> " + info.name, info, &p.d_outputs.at(info.name));
    }
    in.cu_seqlens = p.cu;
    room.assign(bytes.saved / sizeof(double) + 1, 0.0);
  }
  Saved saved() { return {room.data(), bytes.saved}; }
  Status forward(Saved saved, Form form = Form::best) {
    state = p.initial;
    return p.plan.forward(in, state_of(state), out, work.workspace(), form, saved);
  }
  Status backward(Saved saved, Form form = Form::best) {
    return p.plan.backward(in, state_of(initial), d_out, {}, d_in, {}, work.workspace(), form, Gradients::write,
                           saved);
  }
  std::string why(Saved saved, Form form = Form::best) {
    return p.plan.diagnose(in, state_of(initial), d_out, {}, d_in, {}, work.workspace(), form, saved);
  }
};

TEST(Saved, WrongBuffersAreRefused) {
  Whole call(batch_problem(wide_plan("gated-deltanet", 1, 32), 100, 0));
  ASSERT_GT(call.bytes.saved, 0u);
  EXPECT_EQ(call.backward(call.saved()), Status::bad_saved);  // no forward has filled it
  EXPECT_NE(call.why(call.saved()).find("no forward has filled it"), std::string::npos) << call.why(call.saved());
  ASSERT_EQ(call.forward(call.saved()), Status::ok);
  EXPECT_EQ(call.backward(call.saved()), Status::ok);
  EXPECT_EQ(call.why(call.saved()), "");

  Saved small = call.saved();
  small.bytes -= 8;
  EXPECT_EQ(call.forward(small), Status::small_saved);
  EXPECT_EQ(call.backward(small), Status::small_saved);
  EXPECT_NE(call.why(small).find(std::to_string(call.bytes.saved)), std::string::npos) << call.why(small);
  const Saved odd{reinterpret_cast<std::byte*>(call.room.data()) + 4, call.bytes.saved};
  EXPECT_EQ(call.forward(odd), Status::misaligned);
  const Saved shared{call.in["q"].data ? const_cast<void*>(call.in["q"].data) : nullptr, call.bytes.saved};
  EXPECT_EQ(call.forward(shared), Status::overlap);

  EXPECT_EQ(call.backward(call.saved(), Form::chunk), Status::bad_saved);
  EXPECT_NE(call.why(call.saved(), Form::chunk).find("form best"), std::string::npos);
  Whole longer(batch_problem(wide_plan("gated-deltanet", 1, 32), 101, 0)),
      other(batch_problem(wide_plan("deltanet", 1, 32), 100, 0)),
      packed(bare(wide_plan("gated-deltanet", 2, 32), 100, {0, 50, 100}, 100, 1)),
      cut(bare(wide_plan("gated-deltanet", 2, 32), 100, {0, 36, 100}, 100, 1));
  const auto filled_by = [](Whole& from, Whole& to) {
    from.room.resize(std::max(from.room.size(), to.room.size()));
    EXPECT_EQ(from.forward({from.room.data(), from.room.size() * sizeof(double)}), Status::ok);
    const Saved buffer{from.room.data(), from.room.size() * sizeof(double)};
    EXPECT_EQ(to.backward(buffer), Status::bad_saved);
    return to.why(buffer);
  };
  EXPECT_NE(filled_by(longer, call).find("had 101 tokens"), std::string::npos);
  EXPECT_NE(filled_by(other, call).find("another plan"), std::string::npos);
  EXPECT_NE(filled_by(packed, cut).find("other lengths"), std::string::npos);

  // A call that leaves nothing takes no notice.
  Whole few(batch_problem(wide_plan("gated-deltanet", 1, 32), 4, 0));
  std::vector<double> anything(64, 1.0);
  EXPECT_EQ(few.forward({anything.data(), 8}), Status::ok);
  EXPECT_EQ(few.backward({anything.data(), 8}), Status::ok);
}

TEST(Saved, PreparedCallsTakeIt) {
  for (const char* layer : {"kda", "linear-attention", "rwkv-7"}) {
    SCOPED_TRACE(layer);
    Whole call(batch_problem(wide_plan(layer, 2, 24), 130, 0));
    Prepared forward = call.p.plan.prepare(call.in, call.out);
    PreparedBackward backward = call.p.plan.prepare_backward(call.in, call.d_out, call.d_in);
    std::vector<const void*> reads, d_reads;
    std::vector<void*> writes, d_writes;
    for (const InputInfo& info : call.p.plan.inputs())
      reads.push_back(call.in[info.name].data), d_writes.push_back(call.d_in[info.name].data);
    for (const InputInfo& info : call.p.plan.outputs())
      writes.push_back(call.out[info.name].data), d_reads.push_back(call.d_out[info.name].data);
    const auto gradients = [&] {
      NamedNumbers all;
      for (const InputInfo& info : call.p.plan.inputs()) all[info.name] = call.held.at("d " + info.name).numbers();
      return all;
    };
    call.room.assign(call.bytes.saved / sizeof(double) + 1, 0.0);
    EXPECT_EQ(backward(reads, state_of(call.initial), d_reads, {}, d_writes, {}, call.work.workspace(), call.saved()),
              Status::bad_saved);
    ASSERT_EQ(call.forward(call.saved()), Status::ok);
    ASSERT_EQ(call.backward({}), Status::ok);
    const NamedNumbers expected = gradients();
    call.room.assign(call.room.size(), 0.0);
    call.state = call.p.initial;
    ASSERT_EQ(forward(reads, writes, state_of(call.state), call.work.workspace(), call.saved()), Status::ok);
    ASSERT_EQ(backward(reads, state_of(call.initial), d_reads, {}, d_writes, {}, call.work.workspace(), call.saved()),
              Status::ok);
    EXPECT_TRUE(same_bits(gradients(), expected));
  }
}

}  // namespace
}  // namespace ttr_layer_test
