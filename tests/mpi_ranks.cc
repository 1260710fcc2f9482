// ttr::mpi on as many ranks as mpirun has started, against one process: every layer and variant of the table, every way
// that it has, forwards and backwards, with pieces of different lengths and ranks without tokens, batches and packed
// sequences that cross ranks, states before and after. Every rank makes the whole problem and compares its own piece.
//
//   mpirun --oversubscribe --allow-run-as-root -n 3 build/tests/ttr_mpi_ranks [--gtest_filter=...]
#include <gtest/gtest.h>

#include "layer_harness.h"
#include "simd/simd.h"
#include "ttr/mpi.h"

namespace ttr_layer_test {
namespace {

int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int ranks_of_world() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

// Uneven pieces of `time` tokens; with three or more ranks some have none.
std::vector<std::int64_t> cuts_of(std::int64_t time, int ranks, int pattern) {
  const int weights[2][7] = {{3, 1, 0, 4, 2, 1, 3}, {0, 5, 2, 0, 3, 1, 0}};
  std::vector<std::int64_t> cuts = {0};
  int total = 0, sum = 0;
  for (int r = 0; r < ranks; ++r) total += weights[pattern][r % 7];
  total = std::max(total, 1);
  for (int r = 0; r < ranks; ++r) {
    sum += weights[pattern][r % 7];
    cuts.push_back(time * sum / total);
  }
  return cuts;
}

// A window on the tokens of this rank, or all of a tensor that has no time.
Tensor piece_of(Tensor t, const std::string& shape, std::int64_t begin, std::int64_t end, std::int64_t pairs) {
  const std::size_t axis = Axes(shape).find_any("TP");
  if (axis == Axes::npos) return t;
  const std::int64_t unit = Axes(shape)[axis] == 'P' ? pairs : 1;
  t.data =
      static_cast<std::byte*>(t.data) + begin * unit * t.stride[axis] * static_cast<std::ptrdiff_t>(size_of(t.type));
  t.extent[axis] = (end - begin) * unit;
  if (begin == end) t.data = nullptr;  // as an empty vector has it
  return t;
}

NamedNumbers numbers_of(const Tensor& whole, const std::string& shape, std::int64_t begin, std::int64_t end,
                        std::int64_t pairs, const std::string& name) {
  // Copies what belongs to the piece, in order.
  const Tensor t = piece_of(whole, shape, begin, end, pairs);
  NamedNumbers result;
  Numbers& out = result[name];
  std::array<std::ptrdiff_t, max_rank> at{};
  for (int d = 0; d < t.rank; ++d)
    if (t.extent[static_cast<std::size_t>(d)] == 0) return result;
  for (;;) {
    std::ptrdiff_t offset = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) offset += at[d] * t.stride[d];
    out.push_back(number_at(t, static_cast<std::size_t>(offset)));
    int d = t.rank;
    while (d > 0 && ++at[static_cast<std::size_t>(d - 1)] == t.extent[static_cast<std::size_t>(d - 1)])
      at[static_cast<std::size_t>(--d)] = 0;
    if (d == 0) return result;
  }
}

// The call of `p` on all ranks; what this rank has of it.
Result split_run(const Problem& p, const std::vector<std::int64_t>& cuts, const mpi::Settings& settings) {
  const int rank = rank_of_world(), last = ranks_of_world() - 1;
  const std::int64_t begin = cuts[static_cast<std::size_t>(rank)], end = cuts[static_cast<std::size_t>(rank) + 1];
  const Type type = p.plan.options().type;
  std::map<std::string, Held> read, written;
  Inputs in, d_out;
  Outputs out, d_in;
  const auto pairs = static_cast<std::int64_t>(p.plan.extents("P", 1)[0]);
  for (const InputInfo& info : p.plan.inputs()) {
    const Extents e = p.extents(info.shape);
    const auto cut = [&](Held& held) { return piece_of(held.tensor(), info.shape, begin, end, pairs); };
    in[info.name] =
        cut(read.emplace(info.name, Held(type, e, info.shape, Layout::dense, p.inputs.at(info.name))).first->second);
    if (info.differentiable)
      d_in[info.name] =
          cut(written.emplace("d " + info.name, Held(type, e, info.shape, Layout::dense)).first->second);
  }
  in.cu_seqlens = p.cu;
  for (const InputInfo& info : p.plan.outputs()) {
    const Extents e = p.extents(info.shape);
    const auto cut = [&](Held& held) { return piece_of(held.tensor(), info.shape, begin, end, pairs); };
    if (info.differentiable)
      d_out[info.name] =
          cut(read.emplace("d " + info.name, Held(type, e, info.shape, Layout::dense, p.d_outputs.at(info.name)))
                  .first->second);
    out[info.name] = cut(written.emplace(info.name, Held(type, e, info.shape, Layout::dense)).first->second);
  }
  Result r;
  mpi::Split split(p.plan, MPI_COMM_WORLD, settings);
  StateMemory state = p.initial, start(p.initial.size()), d_final = p.d_final, d_initial(p.initial.size());
  if (rank > 0) {  // what the others give is not read
    std::memset(state.data(), 0xff, state.size() * sizeof(double));
    EXPECT_EQ(p.plan.reset(state_of(state)), Status::ok);
  }
  split.forward(in, state_of(state), out, state_of(start));
  const bool final_too = rank == last && settings.way != mpi::Way::ring;
  split.backward(in, state_of(start), d_out, final_too ? ConstState(state_of(d_final)) : ConstState(), d_in,
                 state_of(d_initial));
  for (const InputInfo& info : p.plan.outputs())
    r.outputs.merge(numbers_of(written.at(info.name).tensor(), info.shape, begin, end, pairs, info.name));
  for (const InputInfo& info : p.plan.inputs())
    if (info.differentiable)
      r.d_inputs.merge(numbers_of(written.at("d " + info.name).tensor(), info.shape, begin, end, pairs, info.name));
  if (rank == last && settings.way != mpi::Way::ring) r.state = parts_of(p.plan, state);
  if (rank == 0) r.d_state = parts_of(p.plan, d_initial);
  if (settings.way == mpi::Way::ring)  // the pairs of the piece, and before the first those of the initial state
    for (int n = 0; n < p.plan.shape().batch; ++n) {
      const std::int64_t from = p.cu.empty() ? 0 : p.cu[static_cast<std::size_t>(n)],
                         to = p.cu.empty() ? p.time : p.cu[static_cast<std::size_t>(n) + 1];
      const std::int64_t own = std::max<std::int64_t>(0, std::min(to, end) - std::max(from, begin));
      StateMemory initial = p.initial;
      EXPECT_EQ(p.plan.tokens_kept(state_of(state), n), own + (rank ? 0 : p.plan.tokens_kept(state_of(initial), n)));
    }
  return r;
}

// The piece of this rank of a result of one process.
Result piece_of(const Problem& p, const Result& whole, const std::vector<std::int64_t>& cuts) {
  const int rank = rank_of_world(), last = ranks_of_world() - 1;
  const std::int64_t begin = cuts[static_cast<std::size_t>(rank)], end = cuts[static_cast<std::size_t>(rank) + 1];
  const auto pairs = static_cast<std::int64_t>(p.plan.extents("P", 1)[0]);
  Result r;
  const auto take = [&](const NamedNumbers& from, const InputInfo& info, NamedNumbers& to) {
    Held held(Type::f64, p.extents(info.shape), info.shape, Layout::dense, from.at(info.name));
    to.merge(numbers_of(held.tensor(), info.shape, begin, end, pairs, info.name));
  };
  for (const InputInfo& info : p.plan.outputs()) take(whole.outputs, info, r.outputs);
  for (const InputInfo& info : p.plan.inputs())
    if (info.differentiable) take(whole.d_inputs, info, r.d_inputs);
  if (rank == last) r.state = whole.state;
  if (rank == 0) r.d_state = whole.d_state;
  return r;
}

// As expect_near, with sizes of the whole: a piece of small numbers is not held to its own size.
void expect_piece(const Problem& p, const Result& actual, const Result& whole, const std::vector<std::int64_t>& cuts,
                  double tolerance, double gradient_tolerance, const std::string& what) {
  const Result expected = piece_of(p, whole, cuts);
  const auto largest = [](const Numbers& numbers) {
    double most = 0;
    for (const double x : numbers) most = std::max(most, std::abs(x));
    return most;
  };
  const auto compare = [&](const NamedNumbers& a, const NamedNumbers& b, const NamedNumbers& all, double floor,
                           double bound) {
    for (const auto& [name, numbers] : b)
      EXPECT_LE(cli::relative_error(a.at(name), numbers, std::max(floor, largest(all.at(name)))), bound)
          << name << ", " << what << ", rank " << rank_of_world();
  };
  compare(actual.values(), expected.values(), whole.values(), 0, tolerance);
  compare(actual.gradients(), expected.gradients(), whole.gradients(), gradient_floor(whole.gradients()),
          gradient_tolerance);
}

// A head for itself in a batch, so that groups of heads are relayed; heads in groups where sequences are packed.
Plan plan_for(const Subject& subject, bool packed, Type type) {
  if (packed) return plan_of(subject, 3, type);
  Options options;
  options.type = type, options.chunk = 4;
  return plan(subject.text, {2, 2, 2, K, subject.info->square ? K : V}, options);
}

// The sentence of an Error, which every rank must have.
template <class Call>
std::string sentence_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A call of a small plan with room for a few tokens.
struct Small {
  Plan plan;
  std::vector<float> numbers, o;
  std::vector<std::byte> state;
  Inputs in;
  Outputs out;
  Small(const std::string& layer, int tokens, const Shape& shape = {1, 2, 2, 4, 3})
      : plan(ttr::plan(layer, shape)), numbers(4096, 0.1f), o(4096), state(1 << 16) {
    for (const InputInfo& info : plan.inputs())
      in[info.name] =
          cli::dense_tensor<ConstTensor>(plan, static_cast<const float*>(numbers.data()), info.shape, tokens);
    for (const InputInfo& info : plan.outputs())
      out[info.name] = cli::dense_tensor<Tensor>(plan, o.data(), info.shape, tokens);
    EXPECT_EQ(plan.reset(of_state()), Status::ok);
  }
  State of_state() { return {state.data(), state.size()}; }
};

void expect_words(const std::string& sentence, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(sentence.find(word), std::string::npos) << word << " is not in: " << sentence;
}

class EveryLayerOnRanks : public ::testing::TestWithParam<Subject> {};

TEST_P(EveryLayerOnRanks, IsOneProcess) {
  const Subject& subject = GetParam();
  const double magnified = subject.info->conditioning;
  for (const bool packed : {false, true}) {
    const Plan plan = plan_for(subject, packed, Type::f64);
    const std::int64_t time = packed ? 15 : 12;
    if (!has_steps(plan)) {
      EXPECT_THROW(mpi::Split(plan, MPI_COMM_WORLD), Error);
      continue;
    }
    Problem p = packed ? bare(plan, time, {0, 5, 6, time}, time + 2, 1) : bare(plan, time, {}, time + 2, 1);
    // Two tokens went before.
    advance(p, packed ? bare(plan, 6, {0, 2, 4, 6}, 1, 2) : bare(plan, 2, {}, 1, 2));
    const Result whole = run(p, Form::best);
    expect_ok(whole, Form::best);
    const std::vector<std::int64_t> cuts = cuts_of(time, ranks_of_world(), packed ? 1 : 0);
    for (const mpi::Way way : mpi::Split::ways(plan)) {
      if (way == mpi::Way::ring) continue;  // below
      mpi::Settings settings;
      settings.way = way, settings.patience = 60;
      const std::string what = std::string(to_string(way)) + (packed ? ", packed" : "");
      const Result pieces = split_run(p, cuts, settings);
      expect_piece(p, pieces, whole, cuts, 10 * form_tolerance(Type::f64) * magnified,
                   10 * form_gradient_tolerance(Type::f64) * magnified, what);
      if (packed) continue;
      const Result again = split_run(p, cuts, settings);
      EXPECT_TRUE(same_bits(pieces.values(), again.values())) << what;
      EXPECT_TRUE(same_bits(pieces.gradients(), again.gradients())) << what;
    }
  }
}

// The ring has no gradient of the final state. `change` may change the problem.
template <class Change>
void expect_ring(const std::string& text, Type type, bool packed, Change&& change, std::int64_t more = 0) {
  Options options;
  options.type = type;
  const Plan plan = ttr::plan(text, {packed ? 3 : 2, 4, 2, K, V}, options);
  const std::int64_t time = (packed ? 35 : 32) + more;
  Problem p = packed ? bare(plan, time, {0, 5, 6, time}, time + 2, 1) : bare(plan, time, {}, time + 2, 1);
  advance(p, packed ? bare(plan, 6, {0, 2, 4, 6}, 1, 2) : bare(plan, 2, {}, 1, 2));
  EXPECT_EQ(plan.zero(state_of(p.d_final)), Status::ok);
  change(p);
  const auto without_counts = [](Result r) {  // which are no gradients
    r.d_state.erase("kept"), r.d_state.erase("tokens");
    return r;
  };
  Result whole = without_counts(run(p, Form::best));
  whole.state.clear();
  for (const int pattern : {0, 1}) {
    const std::vector<std::int64_t> cuts = cuts_of(time, ranks_of_world(), pattern);
    mpi::Settings settings;
    settings.way = mpi::Way::ring, settings.patience = 60;
    const Result pieces = without_counts(split_run(p, cuts, settings));
    expect_piece(p, pieces, whole, cuts, 10 * form_tolerance(type), 10 * form_gradient_tolerance(type),
                 text + (packed ? ", ring, packed" : ", ring") + (pattern ? ", other pieces" : ""));
    const Result again = without_counts(split_run(p, cuts, settings));
    EXPECT_TRUE(same_bits(pieces.values(), again.values())) << text;
    EXPECT_TRUE(same_bits(pieces.gradients(), again.gradients())) << text;
  }
}

class RingOfBlocks : public ::testing::TestWithParam<std::string> {};

TEST_P(RingOfBlocks, IsOneProcess) {
  for (const Type type : {Type::f64, Type::f32})
    for (const bool packed : {false, true}) expect_ring(GetParam(), type, packed, [](Problem&) {});
}

std::vector<std::string> layers_with_rings() {
  std::vector<std::string> all = {"forgetting-attention:decay=0.9", "softmax-attention:sink=input,qk_norm=rms",
                                  "near(exp) / kernel(exp) / gd(1)"};
  for (const Subject& subject : subjects(K)) {
    const auto ways = mpi::Split::ways(plan_for(subject, false, Type::f64));
    if (std::find(ways.begin(), ways.end(), mpi::Way::ring) != ways.end()) all.push_back(subject.text);
  }
  return all;
}

// Pieces of several tiles of queries and blocks of pairs.
TEST(RingOfGates, MayBeLong) {
  for (const bool packed : {false, true})
    expect_ring(
        "forgetting-attention", Type::f64, packed, [](Problem&) {}, 250 * ranks_of_world());
}

// Gates that close, within a piece and where pieces meet.
TEST(RingOfGates, MayBeClosed) {
  for (const bool packed : {false, true})
    expect_ring("forgetting-attention", Type::f64, packed, [](Problem& p) {
      Numbers& g = p.inputs.at("g");
      for (std::size_t i = 0; i < g.size(); ++i) {
        if (i % 23 == 7 || i % 64 == 40) g[i] = -std::numeric_limits<double>::infinity();
        if (i % 19 == 3) g[i] = -1e4;
      }
    });
}

// Threads of a plan share its work on every way, and the one that calls looks after messages: the bits of one thread. Calls
// are long enough to be divided; this is what the thread sanitizer sees (`ctest --test-dir build-tsan -R '^mpi'`).
class ThreadsOnRanks : public ::testing::TestWithParam<std::pair<const char*, mpi::Way>> {};

TEST_P(ThreadsOnRanks, SameBits) {
  const auto& [text, way] = GetParam();
  const bool pairs = way == mpi::Way::gather;  // every query is a solve
  const Shape shape = {2, 4, 4, pairs ? 4 : 16, pairs ? 4 : 16};
  const std::int64_t time = (pairs ? 40 : 150) * ranks_of_world();
  Options options;
  Problem p = bare(ttr::plan(text, shape, options), time, {}, time, 1);
  EXPECT_TRUE(way != mpi::Way::ring || p.plan.zero(state_of(p.d_final)) == Status::ok);
  mpi::Settings settings;
  settings.way = way, settings.patience = 60;
  settings.form = Form::recurrent;
  for (const Form form : p.plan.forms())
    if (form == Form::chunk) settings.form = form;
  std::vector<std::int64_t> cuts = cuts_of(time, ranks_of_world(), 0);
  for (int r = 1; way == mpi::Way::halo && r < ranks_of_world(); ++r)  // a piece of no tokens would be relayed
    cuts[static_cast<std::size_t>(r)] = 150 * r;
  const Result one = split_run(p, cuts, settings);
  options.threads = 3;
  p.plan = ttr::plan(text, shape, options);
  const Result three = split_run(p, cuts, settings);
  EXPECT_TRUE(same_bits(one.values(), three.values()));
  EXPECT_TRUE(same_bits(one.gradients(), three.gradients()));
}

// Pieces that are long enough for the last tokens to be all of a state, whose calls are not relayed: nobody waits for the
// state of a piece, so that as many messages go as ranks have neighbours.
TEST(HaloOfTokens, IsOneProcess) {
  const int ranks = ranks_of_world(), rank = rank_of_world();
  for (const Type type : {Type::f64, Type::f32})
    for (const char* text : {"short-convolution", "short-convolution:width=7", "rotary", "feature-cosformer",
                             "softmax-attention:window=4", "forgetting-attention:window=4"}) {
      Options options;
      options.type = type;
      const Plan plan = ttr::plan(text, {2, 2, 2, 6, 6}, options);
      const auto ways = mpi::Split::ways(plan);
      ASSERT_NE(std::find(ways.begin(), ways.end(), mpi::Way::halo), ways.end()) << text;
      std::vector<std::int64_t> cuts = {0};
      for (int r = 0; r < ranks; ++r) cuts.push_back(cuts.back() + 7 + r % 3);
      Problem p = bare(plan, cuts.back(), {}, cuts.back() + 5, 1);
      advance(p, bare(plan, 5, {}, 1, 2));
      const Result whole = run(p, Form::best);
      expect_ok(whole, Form::best);
      mpi::Settings settings;
      settings.patience = 60;
      EXPECT_EQ(mpi::Split(plan, MPI_COMM_WORLD, settings).way(), mpi::Way::halo) << text;
      const Result pieces = split_run(p, cuts, settings);
      expect_piece(p, pieces, whole, cuts, 10 * form_tolerance(type), 10 * form_gradient_tolerance(type), text);
      const Result again = split_run(p, cuts, settings);
      EXPECT_TRUE(same_bits(pieces.values(), again.values())) << text;
      EXPECT_TRUE(same_bits(pieces.gradients(), again.gradients())) << text;
    }
  Small call("short-convolution", 5, {2, 1, 1, 4, 4});
  mpi::Split split(call.plan, MPI_COMM_WORLD, {.patience = 60});
  split.forward(call.in, call.of_state(), call.out);
  EXPECT_EQ(split.counts().messages, rank + 1 < ranks ? 1 : 0);
  EXPECT_EQ(split.counts().bytes, rank + 1 < ranks ? static_cast<std::int64_t>(call.plan.footprint(3).state) : 0);
}

// Slots of log-linear attention are merged by the number of the token: long sequences that have begun elsewhere, each with
// a count of its own, cut anywhere. Counts and digits are those of a carry over many slots (63, 64, 31).
TEST(ScanOfLevels, IsOneProcess) {
  const int ranks = ranks_of_world();
  for (const Type type : {Type::f64, Type::f32})
    for (const char* text : {"log-linear-attention:levels=10", "gate(beta) * levels(9) / linear / gd(1)",
                             "levels(9) / linear / gd(1)", "decay(0.9) * levels(9) / linear(taylor2) / gd(1)"})
      for (const bool packed : {false, true}) {
        Options options;
        options.type = type;
        const Plan plan = ttr::plan(text, {3, 4, 2, K, V}, options);
        const auto ways = mpi::Split::ways(plan);
        ASSERT_NE(std::find(ways.begin(), ways.end(), mpi::Way::scan), ways.end()) << text;
        const std::int64_t time = packed ? 190 : 97;
        Problem p = packed ? bare(plan, time, {0, 66, 93, time}, 1, 1) : bare(plan, time, {}, 1, 1);
        advance(p, bare(plan, 96, {0, 1, 33, 96}, 1, 2));  // 1, 32 and 63 tokens
        const Result whole = run(p, Form::best);
        expect_ok(whole, Form::best);
        for (int pattern = 0; pattern < 4; ++pattern) {
          std::vector<std::int64_t> cuts = cuts_of(time, ranks, pattern % 2);
          if (pattern == 2) std::fill(cuts.begin() + 1, cuts.end(), time);   // the first rank has all
          if (pattern == 3) std::fill(cuts.begin() + 1, cuts.end() - 1, 0);  // the last one
          mpi::Settings settings;
          settings.way = mpi::Way::scan, settings.patience = 60, settings.groups = pattern % 2;
          const std::string what =
              std::string(text) + (packed ? ", packed" : "") + ", pieces " + std::to_string(pattern);
          const Result pieces = split_run(p, cuts, settings);
          expect_piece(p, pieces, whole, cuts, 10 * form_tolerance(type), 10 * form_gradient_tolerance(type), what);
          if (pattern > 0) continue;
          const Result again = split_run(p, cuts, settings);
          EXPECT_TRUE(same_bits(pieces.values(), again.values())) << what;
          EXPECT_TRUE(same_bits(pieces.gradients(), again.gradients())) << what;
        }
      }
}

// More tokens than levels have room for, of all ranks together: one sentence on every rank.
TEST(ScanOfLevels, HaveRoomForSoMany) {
  Small call("log-linear-attention:levels=4", 5);
  mpi::Split split(call.plan, MPI_COMM_WORLD, {.way = mpi::Way::scan, .patience = 20});
  expect_words(sentence_of([&] { split.forward(call.in, call.of_state(), call.out); }),
               {"rank 1 of", "has 4 levels, which weigh 8 tokens"});
}

std::string name_of(std::string text, std::size_t index) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text + "_" + std::to_string(index);
}
INSTANTIATE_TEST_SUITE_P(All, EveryLayerOnRanks, ::testing::ValuesIn(subjects(K)),
                         [](const auto& test) { return name_of(test.param.text, test.index); });
INSTANTIATE_TEST_SUITE_P(All, ThreadsOnRanks,
                         ::testing::Values(std::pair("gated-deltanet", mpi::Way::relay),
                                           std::pair("gated-deltanet", mpi::Way::scan),
                                           std::pair("mamba-2", mpi::Way::scan), std::pair("mesanet", mpi::Way::scan),
                                           std::pair("log-linear-attention", mpi::Way::scan),
                                           std::pair("short-convolution", mpi::Way::halo),
                                           std::pair("softmax-attention:window=4", mpi::Way::halo),
                                           std::pair("local-linear-attention", mpi::Way::gather),
                                           std::pair("forgetting-attention", mpi::Way::ring)),
                         [](const auto& test) { return name_of(test.param.first, test.index); });
INSTANTIATE_TEST_SUITE_P(All, RingOfBlocks, ::testing::ValuesIn(layers_with_rings()),
                         [](const auto& test) { return name_of(test.param, test.index); });

TEST(RankChecks, PlansThatDiffer) {
  const int last = ranks_of_world() - 1;
  const Plan plan = ttr::plan(rank_of_world() == last ? "deltanet" : "gla", {1, 2, 2, 4, 3});
  expect_words(sentence_of([&] { mpi::Split(plan, MPI_COMM_WORLD); }),
               {("rank " + std::to_string(last)).c_str(), "the plan differs from that of rank 0", "deltanet", "gla"});
}

// What a plan is made with, each of them on one rank only.
TEST(RankChecks, OptionsThatDiffer) {
  const auto with = [&](const char* text, const Options& other) {
    const Plan plan =
        ttr::plan("softmax-attention", {1, 2, 2, 8, 8}, rank_of_world() == 1 ? other : Options{.scale = 0.3});
    expect_words(sentence_of([&] { mpi::Split(plan, MPI_COMM_WORLD, {.patience = 20}); }),
                 {"rank 1 of", "the plan differs from that of rank 0", text});
  };
  with("scale=", {.scale = 0.3000000001});
  with("tensors=bf16", {.tensors = Type::bf16, .scale = 0.3});
  with("rewind=2", {.scale = 0.3, .rewind = 2});
  with("state_type=bf16", {.scale = 0.3, .state_type = Type::bf16});
  const std::string target(simd_targets().back());
  with(("target=" + target).c_str(), {.scale = 0.3, .target = target});
}

TEST(RankChecks, CallsThatDiffer) {
  Small call("gla", 3);
  mpi::Split split(call.plan, MPI_COMM_WORLD, {.patience = 20});
  const std::int64_t other[] = {0, rank_of_world() == 0 ? 3 : 4};
  call.in.cu_seqlens = other;
  expect_words(sentence_of([&] { split.forward(call.in, call.of_state(), call.out); }), {"cu_seqlens", "differs"});
}

TEST(RankChecks, MoreRanksThanTokens) {
  Small call("gla", rank_of_world() == 0 ? 1 : 0);
  mpi::Split split(call.plan, MPI_COMM_WORLD);
  expect_words(sentence_of([&] { split.forward(call.in, call.of_state(), call.out); }),
               {"ranks and 1 tokens in all; take no more ranks than tokens"});
}

TEST(RankChecks, AStateThatIsTooSmall) {
  Small call("softmax-attention", 200);
  const int last = ranks_of_world() - 1;
  mpi::Split split(call.plan, MPI_COMM_WORLD);
  const std::size_t bytes = split.state_bytes(200);
  call.state.resize(rank_of_world() == last ? 512 : bytes);
  EXPECT_EQ(call.plan.reset(call.of_state()), Status::ok);
  expect_words(sentence_of([&] { split.forward(call.in, call.of_state(), call.out); }),
               {("rank " + std::to_string(last)).c_str(), "the state has 512 bytes; it needs"});
}

TEST(RankChecks, ANameThatThePlanDoesNotHave) {
  Small call("gla", 3);
  mpi::Split split(call.plan, MPI_COMM_WORLD, {.patience = 20});
  if (rank_of_world() == 1) call.in["keys"] = call.in.get("k");
  expect_words(sentence_of([&] { split.forward(call.in, call.of_state(), call.out); }),
               {"rank 1 of", "gla has no input 'keys'"});
}

// Of states whose size is fixed, on any way, forwards and backwards.
TEST(RankChecks, StatesThatAreTooSmall) {
  const int last = ranks_of_world() - 1;
  const std::string who = "rank " + std::to_string(last) + " of";
  for (const mpi::Way way : {mpi::Way::relay, mpi::Way::scan, mpi::Way::gather}) {
    Small call(way == mpi::Way::gather ? "local-linear-attention" : "gla", 3);
    const auto cut = [&](State state, std::size_t bytes) {
      return State{state.data, rank_of_world() == last ? bytes : state.bytes};
    };
    const mpi::Settings settings = {.way = way, .patience = 20};
    expect_words(
        sentence_of([&] {
          mpi::Split(call.plan, MPI_COMM_WORLD, settings).forward(call.in, cut(call.of_state(), 16), call.out);
        }),
        {who.c_str(), "the state has 16 bytes; it needs"});
    std::vector<double> start(1 << 13);
    const State begin{start.data(), start.size() * sizeof(double)};
    mpi::Split split(call.plan, MPI_COMM_WORLD, settings);
    split.forward(call.in, call.of_state(), call.out, begin);
    Inputs d_out;
    d_out["o"] = call.in.get("v");
    Outputs d_in;
    d_in["v"] = call.out.get("o");
    expect_words(sentence_of([&] { split.backward(call.in, cut(begin, 8), d_out, {}, d_in); }),
                 {who.c_str(), "start has 8 bytes; it needs"});
  }
}

TEST(RankChecks, WaysAndFormsThatAreNotThere) {
  const Plan mlp = ttr::plan("ttt-mlp", {1, 1, 1, 4, 4});
  expect_words(sentence_of([&] { mpi::Split(mlp, MPI_COMM_WORLD, {.way = mpi::Way::scan}); }),
               {"ttt-mlp cannot be split by the way 'scan'", "relay"});
  const Plan whole = ttr::plan("softmax-attention", {1, 1, 1, 4, 4}, {.causal = false});
  expect_words(sentence_of([&] { mpi::Split(whole, MPI_COMM_WORLD); }), {"without causality"});
}

TEST(RankChecks, CommunicatorsThatAreGone) {
  const Plan plan = ttr::plan("gla", {1, 2, 2, 4, 3});
  expect_words(sentence_of([&] { mpi::Split(plan, MPI_COMM_NULL); }), {"MPI_COMM_NULL"});
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  MPI_Comm_free(&own);  // a copy of the handle would lead MPI itself astray
  expect_words(sentence_of([&] { mpi::Split(plan, own); }), {"MPI_COMM_NULL", "freed"});
}

TEST(RankChecks, ThreadsWithoutSupport) {
  int level = 0;
  MPI_Query_thread(&level);
  if (level > MPI_THREAD_SINGLE) GTEST_SKIP() << "run with --single";
  const Plan plan = ttr::plan("gla", {1, 2, 2, 4, 3}, {.threads = 2});
  expect_words(sentence_of([&] { mpi::Split(plan, MPI_COMM_WORLD); }), {"MPI_THREAD_SINGLE", "MPI_Init_thread"});
}

// What is known of the table of maps: a family that loses its row fails here.
TEST(RankWays, LayersWithMaps) {
  for (const char* name : {"linear-attention",
                           "based",
                           "retnet",
                           "mamba-2",
                           "gla",
                           "rwkv-6",
                           "mamba-1",
                           "hgrn",
                           "rg-lru",
                           "deltanet",
                           "gated-deltanet",
                           "kda",
                           "rwkv-7",
                           "momentum-deltanet",
                           "deltaproduct",
                           "mesanet",
                           "rebased",
                           "longhorn",
                           "lru",
                           "log-linear-attention"}) {
    const auto ways = mpi::Split::ways(ttr::plan(name, {2, 2, 2, 8, 6}));
    EXPECT_NE(std::find(ways.begin(), ways.end(), mpi::Way::scan), ways.end()) << name;
  }
  for (const char* name : {"ttt-mlp", "rls", "softmax-attention", "gated-slot-attention"}) {
    const auto ways = mpi::Split::ways(ttr::plan(name, {2, 2, 2, 8, 8}));
    EXPECT_EQ(std::find(ways.begin(), ways.end(), mpi::Way::scan), ways.end()) << name;
  }
}

TEST(RankWays, LayersWithRings) {
  for (const char* name : {"softmax-attention", "softmax-attention:keys=unit", "softmax-attention:qk_norm=rms",
                           "softmax-attention:sink=input", "softmax-attention:kernel=gauss,bandwidth=input",
                           "forgetting-attention", "forgetting-attention:keys=rms", "unnormalised-softmax"}) {
    const auto ways = mpi::Split::ways(ttr::plan(name, {2, 2, 2, 8, 6}));
    EXPECT_NE(std::find(ways.begin(), ways.end(), mpi::Way::ring), ways.end()) << name;
  }
}

TEST(RankWays, LayersThatGather) {
  for (const char* name : {"local-linear-attention", "parallax", "kernel-regression", "path-attention",
                           "softmax-attention", "forgetting-attention"}) {
    const auto ways = mpi::Split::ways(ttr::plan(name, {1, 2, 2, 8, 6}));
    EXPECT_NE(std::find(ways.begin(), ways.end(), mpi::Way::gather), ways.end()) << name;
  }
  const auto ways = mpi::Split::ways(ttr::plan("deltaformer", {1, 2, 2, 8, 6}));  // its values depend on those before
  EXPECT_EQ(std::find(ways.begin(), ways.end(), mpi::Way::gather), ways.end());
  // One sequence: ranks of a relay would work one after another.
  const Plan one = ttr::plan("local-linear-attention", {1, 1, 1, 8, 6});
  EXPECT_EQ(mpi::Split(one, MPI_COMM_WORLD).way(), mpi::Way::gather);
}

// A call that one rank's plan refuses: the others are not left waiting in the ring.
TEST(RankChecks, ACallThatOnePlanRefuses) {
  Small call("softmax-attention", 3);
  mpi::Split split(call.plan, MPI_COMM_WORLD, {.way = mpi::Way::ring, .patience = 20});
  if (rank_of_world() == 0)
    call.in["k"] =
        cli::dense_tensor<ConstTensor>(call.plan, static_cast<const float*>(call.numbers.data()), "B T H V", 3);
  expect_words(sentence_of([&] { split.forward(call.in, call.of_state(), call.out); }), {"rank 0 of", "k"});
}

// A rank that does not come: the others say for what they have waited, and nobody hangs.
TEST(RankPatience, WhoDoesNotComeIsWaitedForOnlySoLong) {
  Small call("gla", 2);
  mpi::Split split(call.plan, MPI_COMM_WORLD);
  split.set_patience(2);  // the other ranks come together, however busy the processors are
  MPI_Barrier(MPI_COMM_WORLD);
  const std::string sentence =
      rank_of_world() == 0 ? "" : sentence_of([&] { split.forward(call.in, call.of_state(), call.out); });
  MPI_Barrier(MPI_COMM_WORLD);
  const std::string late =
      rank_of_world() > 0 ? "" : sentence_of([&] { split.forward(call.in, call.of_state(), call.out); });
  expect_words(rank_of_world() == 0 ? late : sentence, {"has waited 2", "seconds for"});
  std::vector<int> others;
  for (int r = 1; r < ranks_of_world(); ++r) others.push_back(r);
  expect_words(
      rank_of_world() == 0 ? late : sentence,
      {(mpi::ranks_text(rank_of_world() == 0 ? others : std::vector<int>{0}) + " do").c_str(), "not answer"});
}

}  // namespace
}  // namespace ttr_layer_test

int main(int argc, char** argv) {
  int provided = 0;
  const bool single = argc > 1 && std::string_view(argv[1]) == "--single";  // an MPI without threads
  MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED, &provided);
  ::testing::InitGoogleTest(&argc, argv);
  if (ttr_layer_test::rank_of_world() > 0) ::testing::GTEST_FLAG(brief) = true;
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
