// Slots of every layer: sequences that are reset, copied, swapped, rewound, saved, loaded and moved between plans of other
// batch sizes in random order, with tokens in between, have the bits of runs that nothing was done to, in recurrent form.
#include "cli/random.h"
#include "layer_harness.h"

namespace ttr_layer_test {
namespace {

constexpr std::int64_t longest = 24;  // tokens of a sequence
constexpr int most_back = 3;          // tokens that may be taken back

// Inputs of whole sequences, one row each: row n is what the sequence called n is given.
struct Streams {
  Plan plan;  // of one sequence
  std::vector<NamedNumbers> inputs, outputs;
};

struct Batch {
  Plan plan;
  StateMemory state;
  std::vector<int> sequence;           // which one is in a slot
  std::vector<std::int64_t> position;  // how far it is
  std::vector<std::int64_t> undo;      // and how far it can go back

  Batch(Plan p, std::int64_t room) : plan(std::move(p)), state(plan.footprint(room).state / sizeof(double) + 1) {
    EXPECT_EQ(plan.reset(state_of(state)), Status::ok);
    sequence.assign(static_cast<std::size_t>(plan.shape().batch), 0);
    position.assign(sequence.size(), 0), undo = position;
  }
  void take(std::size_t slot, const Batch& other, std::size_t from, bool with_undo = true) {
    sequence[slot] = other.sequence[from], position[slot] = other.position[from];
    undo[slot] = with_undo ? other.undo[from] : 0;
  }
};

// Extents of a tensor of `tokens` tokens out of `longest`, which has as many levels as the whole needs.
Extents extents_of(const Plan& plan, const std::string& shape, std::int64_t tokens) {
  Extents e = plan.extents(shape, longest);
  const Axes axes(shape);
  for (std::size_t d = 0; d < e.size(); ++d)
    if (axes[d] == 'T' || axes[d] == 'P') e[d] = e[d] / longest * tokens;
  return e;
}

// The next `tokens` tokens of every slot.
NamedNumbers advance_slots(const Streams& streams, Batch& batch, std::int64_t tokens) {
  const Plan& plan = batch.plan;
  const Type type = plan.options().type;
  std::map<std::string, Held> held;
  Inputs in;
  Outputs out;
  for (const InputInfo& info : plan.inputs()) {
    Numbers numbers;
    for (std::size_t slot = 0; slot < batch.sequence.size(); ++slot) {
      const Numbers& all = streams.inputs[static_cast<std::size_t>(batch.sequence[slot])].at(info.name);
      const Numbers own =
          cli::tokens_of(streams.plan, all, info.shape, longest, batch.position[slot], batch.position[slot] + tokens);
      numbers.insert(numbers.end(), own.begin(), own.end());
      if (!info.shape.starts_with("B")) break;  // a parameter
    }
    in[info.name] =
        held.emplace(info.name, Held(type, extents_of(plan, info.shape, tokens), info.shape, Layout::dense, numbers))
            .first->second.tensor();
  }
  for (const InputInfo& info : plan.outputs())
    out[info.name] =
        held.emplace("out " + info.name, Held(type, extents_of(plan, info.shape, tokens), info.shape, Layout::dense))
            .first->second.tensor();
  Guarded work(plan.footprint(64, Form::recurrent).workspace);
  const Status status = plan.forward(in, state_of(batch.state), out, work.workspace(), Form::recurrent);
  EXPECT_EQ(status, Status::ok) << plan.diagnose(in, state_of(batch.state), out, work.workspace(), Form::recurrent);
  NamedNumbers answers;
  for (const InputInfo& info : plan.outputs()) answers[info.name] = held.at("out " + info.name).numbers();
  for (std::int64_t& position : batch.position) position += tokens;
  for (std::int64_t& undo : batch.undo)
    undo = std::min<std::int64_t>(most_back, (tokens > most_back ? 0 : undo) + tokens);
  return answers;
}

void expect_answers(const Streams& streams, const Batch& batch, const NamedNumbers& answers, std::int64_t tokens) {
  for (const auto& [name, numbers] : answers) {
    const std::size_t one = numbers.size() / batch.sequence.size();
    for (std::size_t slot = 0; slot < batch.sequence.size(); ++slot) {
      const std::string& shape = [&]() -> const std::string& {
        for (const InputInfo& info : batch.plan.outputs())
          if (info.name == name) return info.shape;
        return name;
      }();
      const Numbers plain =
          cli::tokens_of(streams.plan, streams.outputs[static_cast<std::size_t>(batch.sequence[slot])].at(name),
                         shape, longest, batch.position[slot] - tokens, batch.position[slot]);
      const Numbers here(numbers.begin() + static_cast<std::ptrdiff_t>(slot * one),
                         numbers.begin() + static_cast<std::ptrdiff_t>((slot + 1) * one));
      ASSERT_EQ(here.size(), plain.size());
      EXPECT_EQ(0, std::memcmp(here.data(), plain.data(), here.size() * sizeof(double)))
          << name << " of slot " << slot << ", sequence " << batch.sequence[slot] << " up to token "
          << batch.position[slot];
    }
  }
}

// What the library says of the slots is what was done to them.
void expect_counts(const Batch& batch, bool lists) {
  const Plan& plan = batch.plan;
  StateMemory memory = batch.state;
  const State state = state_of(memory);
  for (std::size_t slot = 0; slot < batch.sequence.size(); ++slot) {
    const int n = static_cast<int>(slot);
    EXPECT_EQ(plan.tokens_seen(state, n), batch.position[slot]);
    EXPECT_EQ(plan.rewindable(state, n), lists ? batch.position[slot] : batch.undo[slot]);
    if (lists) {
      EXPECT_EQ(plan.tokens_kept(state, n), batch.position[slot]);
    }
  }
}

Plan undoable(const Subject& subject, int batch, Type type) {
  const Plan plain = plan_of(subject, batch, type);
  Options options = plain.options();
  options.rewind = most_back;
  return plan(subject.text, plain.shape(), options);
}

TEST(Slots, EveryLayerHasTheBitsOfPlainRuns) {
  std::uint64_t seed = 1;
  for (const Subject& subject : subjects(K)) {
    SCOPED_TRACE(subject.text);
    for (const Type type : {Type::f32, Type::f64}) {
      const Plan single = plan_of(subject, 1, type);
      if (!single.options().causal || subject.info->recipe.empty()) continue;  // no state
      Streams streams{single, {}, {}};
      for (int n = 0; n < 3; ++n) {
        streams.inputs.push_back(inputs_of(single, longest, false, static_cast<std::uint64_t>(n) + 1));
        streams.outputs.emplace_back();
      }
      // Kernels that keep pairs take the queries of a call in tiles: another cut, another order of sums. Where that is
      // so, calls have one token.
      bool any_cut = true;
      for (int n = 0; n < 3; ++n) {
        Batch plain(single, longest), whole(single, longest);
        plain.sequence[0] = whole.sequence[0] = n;
        NamedNumbers& all = streams.outputs[static_cast<std::size_t>(n)];
        for (std::int64_t t = 0; t < longest; ++t)
          for (const auto& [name, numbers] : advance_slots(streams, plain, 1))
            all[name].insert(all[name].end(), numbers.begin(), numbers.end());
        any_cut = any_cut && all == advance_slots(streams, whole, longest);
      }
      Batch three(undoable(subject, 3, type), longest), two(undoable(subject, 2, type), longest + 9);
      // Without the option, lists that nothing leaves and nothing else can be taken back too.
      const bool lists = [&] {
        Batch plain(single, longest);
        plain.sequence[0] = 0;
        advance_slots(streams, plain, 1);
        return single.rewindable(state_of(plain.state)) == 1;
      }();
      three.sequence = {0, 1, 2}, two.sequence = {2, 0};
      cli::SplitMix random(seed++);
      const auto below = [&](std::size_t n) {
        return static_cast<std::size_t>(random.uniform() * static_cast<double>(n));
      };
      for (int round = 0; round < 20 && !::testing::Test::HasFailure(); ++round) {
        Batch& here = below(3) == 0 ? two : three;
        Batch& there = &here == &two ? three : two;
        const std::size_t slots = here.sequence.size(), a = below(slots), b = below(slots);
        const int at = static_cast<int>(a), other = static_cast<int>(b);
        const auto c = below(there.sequence.size());
        switch (below(8)) {
          case 0:
            ASSERT_EQ(here.plan.reset(state_of(here.state), at), Status::ok);
            here.position[a] = here.undo[a] = 0, here.sequence[a] = static_cast<int>(below(3));
            break;
          case 1:
            ASSERT_EQ(here.plan.copy(here.plan, state_of(here.state), at, state_of(here.state), other), Status::ok);
            here.take(b, here, a);
            break;
          case 2: {
            ASSERT_EQ(here.plan.swap(state_of(here.state), at, other), Status::ok);
            const Batch before = here;
            here.take(a, before, b), here.take(b, before, a);
            break;
          }
          case 3:
            ASSERT_EQ(
                here.plan.copy(there.plan, state_of(there.state), static_cast<int>(c), state_of(here.state), at),
                Status::ok);
            here.take(a, there, c);
            break;
          case 4:  // one slot in memory, to the other plan
            load_state(save_state(there.plan, state_of(there.state), static_cast<int>(c)), here.plan,
                       state_of(here.state), at);
            here.take(a, there, c, false);
            break;
          case 5: {  // all of them, one of which comes back
            const auto saved = save_state(here.plan, state_of(here.state));
            const Batch before = here;
            load_state(saved, here.plan, state_of(here.state), at, other);
            here.take(a, before, b, false);
            break;
          }
          case 6:
          case 7: {
            const std::int64_t back = static_cast<std::int64_t>(below(static_cast<std::size_t>(here.undo[a]) + 1));
            ASSERT_EQ(here.plan.rewind(state_of(here.state), at, back), Status::ok);
            here.position[a] -= back, here.undo[a] -= back;
            break;
          }
          default:
            break;
        }
        std::int64_t room = longest;
        for (const std::int64_t position : here.position) room = std::min(room, longest - position);
        expect_counts(here, lists);
        const std::int64_t tokens =
            std::min<std::int64_t>(room, !any_cut ? 1 : 1 + static_cast<std::int64_t>(below(5)));
        if (tokens > 0) expect_answers(streams, here, advance_slots(streams, here, tokens), tokens);
      }
    }
  }
}

// A prompt in the form that is best for it, then tokens that are taken back: the bits of the prompt alone, in a batch and
// packed.
TEST(Slots, TokensBehindAPromptAreTakenBack) {
  for (const char* text : {"gated-deltanet", "mamba-2", "mesanet", "titans", "window-rls",
                           "softmax-attention:window=7", "rwkv-7", "log-linear-attention", "kernel-regression",
                           "equal / kernel(gauss) / sgd(beta)", "window(5) / kernel(gauss) / sgd(beta)",
                           "equal / linear / descend(2, step=0.03)", "gated-deltaproduct", "deltaformer"}) {
    SCOPED_TRACE(text);
    for (const bool packed : {false, true}) {
      Options options;
      options.rewind = 4;
      const Plan p = plan(text, {.batch = 2, .heads = 2, .key_dim = 5, .value_dim = 3}, options);
      const std::vector<std::int64_t> first = {0, 70, 100}, second = {0, 3, 7};
      Problem prompt = packed ? bare(p, 100, first, 120, 1) : bare(p, 50, {}, 120, 1);
      Problem tried = packed ? bare(p, 7, second, 120, 2) : bare(p, 4, {}, 120, 2);
      const auto go = [&](StateMemory& state, const Problem& tokens) {
        std::map<std::string, Held> held;
        Inputs in;
        for (const InputInfo& info : p.inputs())
          in[info.name] = held.emplace(info.name, Held(Type::f32, tokens.extents(info.shape), info.shape,
                                                       Layout::dense, tokens.inputs.at(info.name)))
                              .first->second.tensor();
        in.cu_seqlens = tokens.cu;
        Guarded work(p.footprint(200).workspace);
        ASSERT_EQ(p.forward(in, state_of(state), {}, work.workspace()), Status::ok);
        EXPECT_TRUE(work.fence_stands());
      };
      StateMemory state = prompt.initial;
      go(state, prompt);
      const auto before = save_state(p, state_of(state));
      go(state, tried);
      EXPECT_NE(save_state(p, state_of(state)), before);
      for (std::size_t n = 0; n < 2; ++n) {
        EXPECT_EQ(p.rewind(state_of(state), static_cast<int>(n), 200), Status::not_supported);
        ASSERT_EQ(p.rewind(state_of(state), static_cast<int>(n), packed ? second[n + 1] - second[n] : 4), Status::ok);
      }
      EXPECT_EQ(save_state(p, state_of(state)), before) << (packed ? "packed" : "a batch");
    }
  }
}

// A plan with more sequences takes the state of one with fewer; the new ones are fresh.
TEST(Slots, BatchesGrow) {
  for (const char* text : {"gated-deltanet", "softmax-attention", "titans", "window-rls"}) {
    SCOPED_TRACE(text);
    const Shape shape{.batch = 2, .heads = 2, .key_dim = 5, .value_dim = 3};
    Shape larger = shape;
    larger.batch = 5;
    const Plan small = plan(text, shape), large = plan(text, larger);
    Problem p = batch_problem(small, 3, 6);
    StateMemory to(large.footprint(20).state / 8 + 1), fresh = to;
    ASSERT_EQ(large.grow(small, state_of(p.initial), state_of(to)), Status::ok);
    ASSERT_EQ(large.reset(state_of(fresh)), Status::ok);
    for (int n = 0; n < 5; ++n) {
      EXPECT_EQ(large.tokens_seen(state_of(to), n), n < 2 ? 6 : 0);
      const auto& plan_of_slot = n < 2 ? small : large;
      const StateMemory& from = n < 2 ? p.initial : fresh;
      StateMemory copy = from;
      EXPECT_EQ(save_state(large, state_of(to), n), save_state(plan_of_slot, state_of(copy), n)) << n;
    }
    EXPECT_EQ(small.grow(large, state_of(to), state_of(p.initial)), Status::bad_shape);
  }
}

// The layout of a state that keeps pairs is what its own header says, whatever bytes are passed.
TEST(Slots, RoomForPairsDoesNotDependOnTheBytesPassed) {
  const Plan p = plan("softmax-attention", {.batch = 2, .key_dim = 4, .value_dim = 4});
  StateMemory memory(p.footprint(9).state / 8 + 1);
  const State whole = state_of(memory), part{whole.data, p.footprint(6).state};
  ASSERT_EQ(p.reset(part), Status::ok);
  EXPECT_EQ(p.capacity(part), 6);
  EXPECT_EQ(p.capacity(whole), 6);
  EXPECT_EQ(p.state_tensor(whole, "v").data, p.state_tensor(part, "v").data);
  EXPECT_EQ(p.state_tensor({whole.data, p.footprint(5).state}, "v").data, nullptr) << "shorter than it says";
  EXPECT_EQ(p.reset({whole.data, p.footprint(5).state}, 0), Status::small_state);
  EXPECT_EQ(plan("gated-deltanet", {}).capacity(whole), -1);
}

TEST(Slots, WhatCannotBeIsRefused) {
  const Shape shape{.batch = 2, .key_dim = 4, .value_dim = 4};
  const Plan p = plan("softmax-attention", shape), other = plan("deltanet", shape);
  StateMemory full(p.footprint(8).state / 8 + 1), small(p.footprint(2).state / 8 + 1),
      s(other.footprint(8).state / 8 + 1);
  ASSERT_EQ(p.reset(state_of(full)), Status::ok);
  ASSERT_EQ(p.reset(state_of(small)), Status::ok);
  ASSERT_EQ(other.reset(state_of(s)), Status::ok);
  EXPECT_EQ(p.reset(state_of(full), 2), Status::bad_shape);
  EXPECT_EQ(p.swap(state_of(full), 0, -1), Status::bad_shape);
  EXPECT_EQ(p.copy(other, state_of(s), 0, state_of(full), 0), Status::not_supported);
  static_cast<std::int64_t*>(p.state_tensor(state_of(full), "kept").data)[1] = 5;  // five pairs, of zeros
  EXPECT_EQ(p.tokens_kept(state_of(full), 1), 5);
  EXPECT_EQ(p.copy(p, state_of(full), 1, state_of(small), 0), Status::state_full);
  EXPECT_EQ(p.tokens_kept(state_of(small), 0), 0);
  EXPECT_EQ(p.truncate(state_of(full), 1, 2), Status::ok);
  EXPECT_EQ(p.copy(p, state_of(full), 1, state_of(small), 0), Status::ok);
  EXPECT_EQ(p.tokens_kept(state_of(small), 0), 2);
  EXPECT_EQ(other.truncate(state_of(s), 0, 1), Status::not_supported);
}

}  // namespace
}  // namespace ttr_layer_test
