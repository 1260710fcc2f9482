// Sessions whose sequences lie in pieces on the ranks of mpirun, against the session of one process: losses, what is
// predicted, and the gradient of every parameter, which is a sum over the ranks. Part of ttr_mpi_ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/pieces_mpi.h"
#include "ttr/model.h"
#include "ttr/random.h"

namespace ttr::model {
namespace {

struct World {
  int rank = 0, ranks = 1;
  std::unique_ptr<Pieces> pieces;
  World() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    pieces = cli::make_pieces(own, [](MPI_Request& request) { MPI_Wait(&request, MPI_STATUS_IGNORE); });
  }
};

Config config_of(const std::string& stack, int time) {
  Config c;
  c.stack = stack, c.vocabulary = 11, c.width = 16, c.heads = 2, c.time = time;
  return c;
}

// `batch` sequences of `time` tokens; some have no label.
struct Tokens {
  std::vector<std::int32_t> tokens, labels;
  Tokens(int batch, int time) {
    Random random(7, "tokens");
    for (int i = 0; i < batch * time; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random.below(11)));
      labels.push_back(i % 5 == 3 ? -1 : static_cast<std::int32_t>(random.below(11)));
    }
  }
  Batch<double> batch(int sequences, int time) const {
    return {.batch = sequences, .time = time, .tokens = tokens.data(), .labels = labels.data()};
  }
};

template <class Numbers>
Numbers columns_of(const Numbers& all, int time, int begin, int end) {
  Numbers some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int t = static_cast<int>(i) % time;
    if (t >= begin && t < end) some.push_back(all[i]);
  }
  return some;
}

class StackInPieces : public ::testing::TestWithParam<const char*> {};

TEST_P(StackInPieces, IsOneProcess) {
  const World world;
  const int batch = 3, time = 23;
  const Model<double> model(config_of(GetParam(), time), 3);
  const Tokens all(batch, time);
  Session<double> whole(model, batch, time);
  const Measure expected = whole.gradient(all.batch(batch, time));

  const int begin = time * world.rank / world.ranks, end = time * (world.rank + 1) / world.ranks;
  Tokens own = all;
  own.tokens = columns_of(all.tokens, time, begin, end), own.labels = columns_of(all.labels, time, begin, end);
  Session<double> session(model, batch, (time + world.ranks - 1) / world.ranks, 1, *world.pieces);
  const Measure measure = session.gradient(own.batch(batch, end - begin));
  EXPECT_NEAR(measure.loss, expected.loss, 1e-12 * std::abs(expected.loss));
  EXPECT_EQ(measure.counted, expected.counted);
  EXPECT_EQ(measure.correct, expected.correct);
  const auto predicted = whole.predicted();
  const std::vector<std::int32_t> of_piece =
      columns_of(std::vector<std::int32_t>(predicted.begin(), predicted.end()), time, begin, end);
  EXPECT_TRUE(std::equal(of_piece.begin(), of_piece.end(), session.predicted().begin(), session.predicted().end()));

  const std::vector<double> share(session.gradients().begin(), session.gradients().end());
  std::vector<double> sum(share.size());
  MPI_Allreduce(share.data(), sum.data(), static_cast<int>(sum.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (const Parameter& p : model.parameters()) {
    if (!p.trained) continue;
    double error = 0, largest = 0;
    for (std::size_t i = p.offset; i < p.offset + p.size; ++i) {
      error = std::max(error, std::abs(sum[i] - whole.gradients()[i]));
      largest = std::max(largest, std::abs(whole.gradients()[i]));
    }
    EXPECT_GT(largest, 0) << p.name;
    EXPECT_LE(error, 1e-9 * largest + 1e-15) << p.name << " of " << GetParam();
  }
  // The next call with the same numbers has the same bits, and a forward alone the same loss.
  const Measure again = session.gradient(own.batch(batch, end - begin));
  EXPECT_EQ(again.loss, measure.loss);
  EXPECT_TRUE(std::equal(share.begin(), share.end(), session.gradients().begin()));
  EXPECT_EQ(session.forward(own.batch(batch, end - begin)).loss, measure.loss);
  whole.forward(all.batch(batch, time));
  EXPECT_NEAR(session.logit_bound(), whole.logit_bound(), 1e-12 * whole.logit_bound());
}

INSTANTIATE_TEST_SUITE_P(Stacks, StackInPieces,
                         ::testing::Values("gated-deltanet*2", "mamba-2", "mamba-1", "rwkv-7", "gla(shift=yes)",
                                           "softmax(rotary=yes)*2", "softmax(window=5)", "gla, softmax",
                                           "forgetting-attention", "ttt-linear", "mesanet", "log-linear-attention",
                                           "hgrn-2(conv=4)"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

// Several threads of a rank have the bits of one, with sequences in pieces too.
TEST(StacksInPieces, ThreadsHaveTheBitsOfOne) {
  const World world;
  const int batch = 2, time = 96 * world.ranks;
  for (const char* stack : {"gated-deltanet, softmax(rotary=yes), gla(shift=yes)", "log-linear-attention, mamba-1"}) {
    const Model<float> model(config_of(stack, time), 3);
    const Tokens all(batch, time);
    Tokens own = all;
    const int begin = time * world.rank / world.ranks, end = time * (world.rank + 1) / world.ranks;
    own.tokens = columns_of(all.tokens, time, begin, end), own.labels = columns_of(all.labels, time, begin, end);
    const Batch<float> piece = {
        .batch = batch, .time = end - begin, .tokens = own.tokens.data(), .labels = own.labels.data()};
    Session<float> one(model, batch, end - begin, 1, *world.pieces),
        three(model, batch, end - begin, 3, *world.pieces);
    EXPECT_EQ(one.gradient(piece).loss, three.gradient(piece).loss) << stack;
    EXPECT_TRUE(std::equal(one.gradients().begin(), one.gradients().end(), three.gradients().begin())) << stack;
  }
}

TEST(StacksInPieces, BlocksThatCannotBeDivided) {
  const World world;
  const auto sentence = [&](Config config) {
    const Model<double> model(config, 1);
    try {
      Session<double>(model, 2, 8, 1, *world.pieces);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(sentence(config_of("slstm", 16)).find("'slstm' reads its own last answer"), std::string::npos);
  Config last = config_of("gla", 16);
  last.read_out = "last";
  EXPECT_NE(sentence(last).find("read_out is last"), std::string::npos);
}

}  // namespace
}  // namespace ttr::model
