// Saved states: files that a later version must load, and damage that nobody may load.
//
// tests/saved_states holds files written by version 0.1.0; they stay as they are. TTR_WRITE_SAVED_STATES=FOLDER writes
// those that are missing there (a new layout, a new kind of state).
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "cli/random.h"
#include "layer_harness.h"

namespace ttr_layer_test {
namespace {

struct Kept {
  const char* file;
  const char* text;
};
// Of fixed size, lists of pairs, counts of a kernel, of the oracle.
constexpr Kept kept[] = {{"gated-deltanet", "gated-deltanet"},
                         {"softmax-attention", "softmax-attention"},
                         {"titans", "titans:batch=4"},
                         {"rls", "rls:ridge=0.1,decay=0.9,ridge_kind=fading"},
                         {"recipe", "equal / linear / sgd(beta, adam)"}};

Plan plan_named(const char* text, int batch = 2) {
  return plan(text, {.batch = batch, .heads = 2, .key_dim = 3, .value_dim = 2}, {.type = Type::f64});
}

// Numbers that every version can make again, in every input.
NamedNumbers numbers_for(const Plan& p, std::int64_t time, int shift) {
  NamedNumbers inputs;
  for (const InputInfo& info : p.inputs()) {
    std::size_t n = 1;
    for (const std::ptrdiff_t e : p.extents(info.shape, time)) n *= static_cast<std::size_t>(e);
    for (std::size_t i = 0; i < n; ++i) {
      const double x =
          static_cast<double>((i * 37 + static_cast<std::size_t>(shift) * 11 + info.name.size()) % 101) / 101;
      inputs[info.name].push_back(info.range == Range::log_gate ? -x
                                  : info.range == Range::normal ? x - 0.5
                                                                : 0.1 * x + 0.05);
    }
  }
  return inputs;
}

StateMemory state_after(const Plan& p, std::int64_t tokens, std::int64_t room = 12) {
  StateMemory state(p.footprint(room).state / 8 + 1);
  EXPECT_EQ(p.reset(state_of(state)), Status::ok);
  std::map<std::string, Held> held;
  Inputs in;
  const NamedNumbers numbers = numbers_for(p, tokens, 1);
  for (const InputInfo& info : p.inputs())
    in[info.name] = held.emplace(info.name, Held(Type::f64, p.extents(info.shape, tokens), info.shape, Layout::dense,
                                                 numbers.at(info.name)))
                        .first->second.tensor();
  Guarded work(p.footprint(room).workspace);
  EXPECT_EQ(p.forward(in, state_of(state), {}, work.workspace(), Form::recurrent), Status::ok);
  return state;
}

std::string sentence_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SavedState, FilesOfEarlierVersionsLoad) {
  const std::filesystem::path folder = std::filesystem::path(TTR_SOURCE_DIR) / "tests" / "saved_states";
  for (const Kept& k : kept) {
    SCOPED_TRACE(k.text);
    const Plan p = plan_named(k.text);
    StateMemory expected = state_after(p, 5);
    const std::string file = std::string(k.file) + "-1.safetensors";
    if (const char* const make = std::getenv("TTR_WRITE_SAVED_STATES"))
      if (const auto path = std::filesystem::path(make) / file; !std::filesystem::exists(path))
        save_state(path.string(), p, state_of(expected));
    StateMemory state(p.footprint(20).state / 8 + 1);  // with more room than the state that was saved
    ASSERT_EQ(p.reset(state_of(state)), Status::ok);
    load_state((folder / file).string(), p, state_of(state));
    for (int n = 0; n < 2; ++n) EXPECT_EQ(p.tokens_seen(state_of(state), n), 5);
    EXPECT_EQ(p.tokens_kept(state_of(state), 1), p.tokens_kept(state_of(expected), 1));
    StateMemory grown(state.size());
    ASSERT_EQ(p.grow(state_of(expected), state_of(grown)), Status::ok);
    const NamedNumbers a = parts_of(p, state), b = parts_of(p, grown);
    for (const auto& [name, x] : b)  // other machines round otherwise
      EXPECT_LT(cli::relative_error(a.at(name), x), 1e-12) << name;
    const SavedState about = read_saved_state((folder / file).string());
    EXPECT_EQ(about.about.at("layout"), "1");
    EXPECT_EQ(about.about.at("library"), "0.1.0");
    EXPECT_EQ(about.tokens, (std::vector<std::int64_t>{5, 5}));
  }
}

TEST(SavedState, SlotsFindTheirPlace) {
  const Plan p = plan_named("softmax-attention"), four = plan_named("softmax-attention", 4);
  StateMemory state = state_after(p, 5), other(four.footprint(8).state / 8 + 1);
  ASSERT_EQ(four.reset(state_of(other)), Status::ok);
  const auto whole = save_state(p, state_of(state)), one = save_state(p, state_of(state), 1);
  load_state(whole, four, state_of(other), 2);
  load_state(whole, four, state_of(other), 0, 1);
  for (const auto& [slot, from] : {std::pair{2, 0}, {3, 1}, {0, 1}})
    EXPECT_EQ(save_state(four, state_of(other), slot), save_state(p, state_of(state), from)) << slot;
  EXPECT_EQ(four.tokens_seen(state_of(other), 1), 0);
  load_state(one, four, state_of(other), 1);
  EXPECT_EQ(save_state(four, state_of(other), 1), one);
}

TEST(SavedState, WhatIsNotThePlansIsRefused) {
  const Plan p = plan_named("gated-deltanet");
  StateMemory state = state_after(p, 3);
  const auto saved = save_state(p, state_of(state));
  const StateMemory before = state;
  const auto says = [&](const Plan& other, std::initializer_list<const char*> words, int to = 0,
                        int from = all_sequences) {
    StateMemory memory(other.footprint(8).state / 8 + 1);
    ASSERT_EQ(other.reset(state_of(memory)), Status::ok);
    const StateMemory fresh = memory;
    const std::string said = sentence_of([&] { load_state(saved, other, state_of(memory), to, from); });
    for (const char* word : words) EXPECT_NE(said.find(word), std::string::npos) << word << " in: " << said;
    EXPECT_EQ(0, std::memcmp(memory.data(), fresh.data(), fresh.size() * 8)) << said;
  };
  says(plan_named("deltanet"), {"layer", "gated-deltanet", "deltanet"});
  says(plan("gated-deltanet", {.batch = 2, .heads = 2, .key_dim = 4, .value_dim = 2}, {.type = Type::f64}),
       {"key_dim", "'3'", "'4'"});
  says(plan("gated-deltanet", {.batch = 2, .heads = 2, .key_dim = 3, .value_dim = 2}), {"type", "f64", "f32"});
  says(plan("gated-deltanet", {.batch = 2, .heads = 2, .key_dim = 3, .value_dim = 2},
            {.type = Type::f64, .kernel = "oracle"}),
       {"solver", "oracle"});
  says(p, {"2 sequences", "number 1"}, 1);
  says(p, {"none with number 7"}, 0, 7);
  EXPECT_NE(sentence_of([&] { save_state(p, state_of(state), 2); }).find("no sequence 2"), std::string::npos);
  EXPECT_NE(sentence_of([&] { load_state("nowhere.safetensors", p, state_of(state)); }).find("nowhere.safetensors"),
            std::string::npos);
  EXPECT_EQ(0, std::memcmp(state.data(), before.data(), before.size() * 8));
  // Lists that do not fit.
  const Plan lists = plan_named("softmax-attention");
  StateMemory five = state_after(lists, 5), small(lists.footprint(4).state / 8);
  ASSERT_EQ(lists.reset(state_of(small)), Status::ok);
  const std::string said =
      sentence_of([&] { load_state(save_state(lists, state_of(five)), lists, state_of(small)); });
  EXPECT_NE(said.find("keeps 5 pairs and the state has room for 4"), std::string::npos) << said;
  EXPECT_EQ(lists.tokens_kept(state_of(small)), 0);
}

// 10,000 damages of each file: bits, bytes, pieces that are cut, doubled, moved or blank. None loads, none crashes, and the
// state stays.
TEST(SavedState, NoDamageLoads) {
  cli::SplitMix random(7);
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random.uniform() * static_cast<double>(n));
  };
  for (const char* text : {"gated-deltanet", "softmax-attention"}) {
    const Plan p = plan_named(text);
    StateMemory state = state_after(p, 4);
    const std::vector<std::byte> good = save_state(p, state_of(state));
    const StateMemory before = state;
    int loaded = 0;
    for (int trial = 0; trial < 10000; ++trial) {
      std::vector<std::byte> bad = good;
      const std::size_t at = below(bad.size()), length = 1 + below(40);
      const auto begin = bad.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = bad.begin() + static_cast<std::ptrdiff_t>(std::min(at + length, bad.size()));
      switch (trial % 8) {
        case 0:
          *begin ^= std::byte(1 << below(8));
          break;
        case 1:
          *begin = std::byte(below(256));
          break;
        case 2:
          bad.resize(at);
          break;
        case 3:
          bad.erase(begin, end);
          break;
        case 4: {
          const std::vector<std::byte> piece(begin, end);
          bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(below(bad.size())), piece.begin(), piece.end());
          break;
        }
        case 5:
          std::fill(begin, end, std::byte(trial % 3 ? 0x20 : 0));
          break;
        case 6:
          for (auto b = begin; b < end; ++b) *b = std::byte(below(256));
          break;
        default:  // digits for digits: shapes, offsets, counts
          for (std::size_t i = at; i < bad.size(); ++i)
            if (std::isdigit(static_cast<int>(bad[i]))) {
              bad[i] = std::byte('0' + below(10));
              break;
            }
      }
      if (bad == good) continue;
      const std::string said = sentence_of([&] { load_state(bad, p, state_of(state)); });
      loaded += said.empty();
      ASSERT_EQ(0, std::memcmp(state.data(), before.data(), before.size() * 8)) << said;
    }
    EXPECT_EQ(loaded, 0);
  }
}

}  // namespace
}  // namespace ttr_layer_test
