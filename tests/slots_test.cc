// Slots of every layer: sequences that are reset, copied, swapped and moved between plans of other batch sizes in random
// order, with tokens in between, have the bits of runs that nothing was done to, in recurrent form.
#include "cli/random.h"
#include "layer_harness.h"

namespace ttr_layer_test {
namespace {

constexpr std::int64_t longest = 24;  // tokens of a sequence

// Inputs of whole sequences, one row each: row n is what the sequence called n is given.
struct Streams {
  Plan plan;  // of one sequence
  std::vector<NamedNumbers> inputs, outputs;
};

struct Batch {
  Plan plan;
  StateMemory state;
  std::vector<int> sequence;           // which one is in a slot
  std::vector<std::int64_t> position;  // and how far it is

  Batch(Plan p, std::int64_t room) : plan(std::move(p)), state(plan.footprint(room).state / sizeof(double) + 1) {
    EXPECT_EQ(plan.reset(state_of(state)), Status::ok);
    sequence.assign(static_cast<std::size_t>(plan.shape().batch), 0);
    position.assign(sequence.size(), 0);
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
      Batch three(plan_of(subject, 3, type), longest), two(plan_of(subject, 2, type), longest + 9);
      three.sequence = {0, 1, 2}, two.sequence = {2, 0};
      cli::SplitMix random(seed++);
      const auto below = [&](std::size_t n) {
        return static_cast<std::size_t>(random.uniform() * static_cast<double>(n));
      };
      for (int round = 0; round < 14 && !::testing::Test::HasFailure(); ++round) {
        Batch& here = below(3) == 0 ? two : three;
        Batch& there = &here == &two ? three : two;
        const std::size_t slots = here.sequence.size(), a = below(slots), b = below(slots);
        const int at = static_cast<int>(a), other = static_cast<int>(b);
        switch (below(5)) {
          case 0:
            ASSERT_EQ(here.plan.reset(state_of(here.state), at), Status::ok);
            here.position[a] = 0, here.sequence[a] = static_cast<int>(below(3));
            break;
          case 1:
            ASSERT_EQ(here.plan.copy(here.plan, state_of(here.state), at, state_of(here.state), other), Status::ok);
            here.position[b] = here.position[a], here.sequence[b] = here.sequence[a];
            break;
          case 2:
            ASSERT_EQ(here.plan.swap(state_of(here.state), at, other), Status::ok);
            std::swap(here.position[a], here.position[b]), std::swap(here.sequence[a], here.sequence[b]);
            break;
          case 3: {
            const std::size_t c = below(there.sequence.size());
            ASSERT_EQ(
                here.plan.copy(there.plan, state_of(there.state), static_cast<int>(c), state_of(here.state), at),
                Status::ok);
            here.position[a] = there.position[c], here.sequence[a] = there.sequence[c];
            break;
          }
          default:
            break;
        }
        std::int64_t room = longest;
        for (const std::int64_t position : here.position) room = std::min(room, longest - position);
        const std::int64_t tokens =
            std::min<std::int64_t>(room, !any_cut ? 1 : 1 + static_cast<std::int64_t>(below(3)));
        if (tokens > 0) expect_answers(streams, here, advance_slots(streams, here, tokens), tokens);
      }
    }
  }
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
  reinterpret_cast<std::int64_t*>(full.data())[1] = 5;  // five pairs, of zeros
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
