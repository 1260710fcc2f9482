// The recurrence of sLSTM against its equations without a stabiliser, written out in double; its state; very open gates; and
// that a block learns parity, which no memory without mixing of its own answer does.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/slstm.h"
#include "ttr/optimiser.h"
#include "ttr/tasks.h"

namespace {

using namespace ttr::model;

template <class T>
struct Pass {
  std::vector<T> gates, cells, slope, c, n, h, state, work;
  SlstmTrace<T> trace() { return {gates.data(), cells.data(), slope.data(), c.data(), n.data(), h.data()}; }
};

template <class T>
Pass<T> run(int B, int time, int H, int d, const std::vector<double>& gates, const std::vector<double>& cells,
            const std::vector<double>& gate_R, const std::vector<double>& cell_R, const std::vector<int>& pieces,
            int threads = 1) {
  const int inner = H * d, all = B * time * inner;
  const Gemm<T> gemm(1);
  const std::vector<T> gr(gate_R.begin(), gate_R.end()), cr(cell_R.begin(), cell_R.end());
  Pass<T> whole;
  whole.h.resize(static_cast<std::size_t>(all));
  whole.state.resize(static_cast<std::size_t>(B * 4 * inner)),
      whole.work.resize(static_cast<std::size_t>(B * 6 * inner));
  slstm_reset<T>(B, H, d, whole.state.data());
  int begin = 0;
  for (const int length : pieces) {
    Pass<T> piece;
    const auto size = static_cast<std::size_t>(B * length * inner);
    piece.gates.resize(2 * size), piece.cells.resize(2 * size);
    piece.slope.resize(size), piece.c.resize(size), piece.n.resize(size), piece.h.resize(size);
    for (int b = 0; b < B; ++b)
      for (int i = 0; i < length * 2 * inner; ++i) {
        const auto from = static_cast<std::size_t>((b * time + begin) * 2 * inner + i),
                   to = static_cast<std::size_t>(b * length * 2 * inner + i);
        piece.gates[to] = static_cast<T>(gates[from]), piece.cells[to] = static_cast<T>(cells[from]);
      }
    slstm_forward<T>(threads, gemm.simd(), B, length, H, d, gr.data(), cr.data(), piece.trace(), whole.state.data(),
                     whole.work.data());
    for (int b = 0; b < B; ++b)
      std::copy_n(piece.h.data() + b * length * inner, length * inner, whole.h.data() + (b * time + begin) * inner);
    begin += length;
  }
  return whole;
}

struct Case {
  int B = 2, time = 9, H = 2, d = 3;
  std::vector<double> gates, cells, gate_R, cell_R;
  explicit Case(double shift = 0, double scale = 1) {
    ttr::model::Random random(4);
    for (int i = 0; i < B * time * 2 * H * d; ++i)
      gates.push_back(shift + scale * random.normal()), cells.push_back(random.normal());
    for (int i = 0; i < H * d * 2 * d; ++i) gate_R.push_back(random.normal()), cell_R.push_back(random.normal());
  }
  // Weights exp(i~) and factors sigmoid(f~), as they are.
  std::vector<double> literal() const {
    const int inner = H * d;
    std::vector<double> answers(static_cast<std::size_t>(B * time * inner));
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    for (int b = 0; b < B; ++b)
      for (int head = 0; head < H; ++head) {
        std::vector<double> h(static_cast<std::size_t>(d)), c(h), n(h);
        for (int t = 0; t < time; ++t) {
          std::vector<double> next(h);
          for (int j = 0; j < d; ++j) {
            double sum[4];
            for (int gate = 0; gate < 4; ++gate) {
              const auto& x = gate < 2 ? gates : cells;
              const auto& R = gate < 2 ? gate_R : cell_R;
              const int column = gate % 2 * d + j;
              sum[gate] = x[static_cast<std::size_t>((b * time + t) * 2 * inner + head * 2 * d + column)];
              for (int k = 0; k < d; ++k)
                sum[gate] +=
                    R[static_cast<std::size_t>((head * d + k) * 2 * d + column)] * h[static_cast<std::size_t>(k)];
            }
            const auto at = static_cast<std::size_t>(j);
            c[at] = sigmoid(sum[1]) * c[at] + std::exp(sum[0]) * std::tanh(sum[2]);
            n[at] = sigmoid(sum[1]) * n[at] + std::exp(sum[0]);
            next[at] = sigmoid(sum[3]) * c[at] / n[at];
            answers[static_cast<std::size_t>((b * time + t) * inner + head * d + j)] = next[at];
          }
          h = next;
        }
      }
    return answers;
  }
};

TEST(Slstm, FollowsItsEquations) {
  const Case c;
  const std::vector<double> expected = c.literal();
  const Pass<double> whole = run<double>(c.B, c.time, c.H, c.d, c.gates, c.cells, c.gate_R, c.cell_R, {9});
  const Pass<float> single = run<float>(c.B, c.time, c.H, c.d, c.gates, c.cells, c.gate_R, c.cell_R, {9});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(whole.h[i], expected[i], 1e-14);
    EXPECT_NEAR(static_cast<double>(single.h[i]), expected[i], 2e-6);
  }
  const Pass<double> split = run<double>(c.B, c.time, c.H, c.d, c.gates, c.cells, c.gate_R, c.cell_R, {1, 5, 3}, 2);
  EXPECT_EQ(split.h, whole.h);
  EXPECT_EQ(split.state, whole.state);
}

TEST(Slstm, OpenAndClosedGates) {
  for (const double shift : {-200.0, 200.0}) {  // exp(200) has no float
    const Case c(shift, 30);
    const Pass<float> single = run<float>(c.B, c.time, c.H, c.d, c.gates, c.cells, c.gate_R, c.cell_R, {9});
    const std::vector<double> expected = c.literal();  // within double
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(static_cast<double>(single.h[i]), expected[i], 1e-4) << shift;
  }
}

TEST(Slstm, LearnsParity) {
  Config config;
  const auto task = make_task("parity(longest=6, test=6, labels=all)");
  task->apply(config);
  config.stack = "slstm", config.width = 16, config.heads = 2;
  Model<float> model(config, 1);
  Session<float> session(model, 64, task->time, 2);
  OptimiserConfig how;
  how.rate = 1e-2, how.steps = 300, how.warmup = 20, how.decay = 0;
  Optimiser<float> optimiser(model.parameters(), how);
  ttr::model::Random random(1);
  Examples examples;
  Measure last;
  for (int step = 0; step < how.steps; ++step) {
    task->draw(random, 64, false, examples);
    last = session.gradient(examples.batch());
    optimiser.step(model.values(), session.gradients());
  }
  EXPECT_EQ(last.correct, last.counted);
}

TEST(Slstm, Errors) {
  Config config;
  config.vocabulary = 4, config.width = 6;
  const auto error = [&](const std::string& stack) -> std::string {
    config.stack = stack;
    try {
      Model<float> model(config);
    } catch (const ttr::Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("slstm(window=3)").find("heads, value_dim, conv and out"), std::string::npos);
  EXPECT_NE(error("slstm(value_dim=4, out=no)").find("not the width 6"), std::string::npos);
  EXPECT_EQ(error("slstm(value_dim=4)"), "");
}

}  // namespace
