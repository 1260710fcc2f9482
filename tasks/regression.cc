// Regression in context, and text.
//
// linear-regression: x, w ~ N(0, I), y = w.x + noise N(0, 1), one w per sequence. Tokens x_1, (y_1, 0 ..), x_2, .. ; at x_i
//   the target is y_i. The least-norm solution has the squared error max(0, 1 - i/d) d after i points.
// piecewise-regression: in segment s keys N(c_s, I) with |c_s| = 1.5 sqrt(d), v = W_s k + noise N(0, I), W_s of N(0, 1/d).
//   Token t is (k_t, v_t, k_{t+1}), its target v_{t+1}. A reconstruction: the published generator is not known.
// text: tokens are bytes, a label is the next byte. Windows begin anywhere in the part of the file they belong to.
#include <cmath>
#include <fstream>
#include <iterator>

#include "tasks/task.h"

namespace ttr::model {
namespace {

void begin_rows(Examples& out, int sequences, int time, int in, int targets) {
  const auto rows = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(time);
  out.sequences = sequences, out.time = time;
  out.tokens.clear(), out.labels.clear();
  out.rows.assign(rows * static_cast<std::size_t>(in), 0.0f);
  out.targets.assign(rows * static_cast<std::size_t>(targets), 0.0f);
  out.counted.assign(rows, 0);
}

class LinearRegression : public Task {
 public:
  int points = 41;
  double noise = 0;
  void draw(Random& random, int sequences, bool, Examples& out) const override {
    const auto d = static_cast<std::size_t>(input_dim);
    begin_rows(out, sequences, time, input_dim, 1);
    std::vector<double> w(d);
    for (int i = 0; i < sequences; ++i) {
      for (double& x : w) x = random.normal();
      for (int p = 0; p < points; ++p) {
        const auto at = static_cast<std::size_t>(i * time + 2 * p);
        double y = noise > 0 ? noise * random.normal() : 0;
        for (std::size_t j = 0; j < d; ++j) {
          const double x = random.normal();
          out.rows[at * d + j] = static_cast<float>(x);
          y += w[j] * x;
        }
        out.rows[(at + 1) * d] = out.targets[at] = static_cast<float>(y);
        out.counted[at] = 1;
      }
    }
  }
};

class PiecewiseRegression : public Task {
 public:
  int dim = 16, segment = 64;
  double noise = 0.05;
  void draw(Random& random, int sequences, bool, Examples& out) const override {
    const auto d = static_cast<std::size_t>(dim);
    begin_rows(out, sequences, time, input_dim, dim);
    std::vector<double> centre(d), W(d * d), k(d), v(d);
    for (int i = 0; i < sequences; ++i)
      for (int t = 0; t <= time; ++t) {  // pair t of time + 1
        if (t % segment == 0) {
          double length = 0;
          for (double& x : centre) x = random.normal(), length += x * x;
          for (double& x : centre) x *= 1.5 * std::sqrt(static_cast<double>(dim) / length);
          for (double& x : W) x = random.normal() / std::sqrt(static_cast<double>(dim));
        }
        for (std::size_t j = 0; j < d; ++j) k[j] = centre[j] + random.normal();
        for (std::size_t a = 0; a < d; ++a) {
          v[a] = noise * random.normal();
          for (std::size_t j = 0; j < d; ++j) v[a] += W[a * d + j] * k[j];
        }
        const auto at = static_cast<std::size_t>(i * time + t);
        for (std::size_t j = 0; j < d; ++j) {
          if (t < time)
            out.rows[at * 3 * d + j] = static_cast<float>(k[j]),
                                  out.rows[at * 3 * d + d + j] = static_cast<float>(v[j]);
          if (t > 0)
            out.rows[(at - 1) * 3 * d + 2 * d + j] = static_cast<float>(k[j]),
                                                out.targets[(at - 1) * d + j] = static_cast<float>(v[j]);
        }
        if (t < time) out.counted[at] = 1;
      }
  }
};

class Text : public Task {
 public:
  std::vector<unsigned char> bytes;
  std::size_t train = 0;
  std::span<const unsigned char> text(bool test) const override {
    return std::span(bytes).subspan(test ? train : 0, test ? bytes.size() - train : train);
  }
  void draw(Random& random, int sequences, bool test, Examples& out) const override {
    begin(out, sequences, time, 0);
    const std::size_t first = test ? train : 0, size = test ? bytes.size() - train : train;
    for (int i = 0; i < sequences; ++i) {
      const std::size_t from = first + random.below(size - static_cast<std::size_t>(time));
      for (std::size_t t = 0; t < static_cast<std::size_t>(time); ++t) {
        out.tokens[static_cast<std::size_t>(i * time) + t] = bytes[from + t];
        out.labels[static_cast<std::size_t>(i * time) + t] = bytes[from + t + 1];
      }
    }
  }
};

}  // namespace

std::unique_ptr<Task> make_linear_regression(TaskSettings& settings) {
  auto task = std::make_unique<LinearRegression>();
  task->input_dim = settings.number("dim", 20, 1, 4096), task->output_dim = 1, task->squared = true;
  task->points = settings.number("points", 41, 1, 1 << 16);
  task->noise = settings.real("noise", 0, 0, 1e6);
  task->time = task->test_time = 2 * task->points;
  return task;
}

std::unique_ptr<Task> make_piecewise_regression(TaskSettings& settings) {
  auto task = std::make_unique<PiecewiseRegression>();
  task->dim = settings.number("dim", 16, 1, 4096);
  task->time = task->test_time = settings.number("length", 256, 1, 1 << 16);
  task->segment = settings.number("segment", 64, 1, 1 << 16);
  task->noise = settings.real("noise", 0.05, 0, 1e6);
  task->input_dim = 3 * task->dim, task->output_dim = task->dim, task->squared = true;
  return task;
}

std::unique_ptr<Task> make_text(TaskSettings& settings) {
  auto task = std::make_unique<Text>();
  const std::string file = settings.text("file", "");
  if (file.empty()) settings.fail("file", "is not given; text(file=PATH)");
  std::ifstream in(file, std::ios::binary);
  if (!in) settings.fail("file", "is '" + file + "', which cannot be read");
  task->bytes.assign(std::istreambuf_iterator<char>(in), {});
  task->time = task->test_time = settings.number("time", 256, 1, 1 << 16);
  const double held = settings.real("held", 0.1, 0, 1);
  task->train = static_cast<std::size_t>(static_cast<double>(task->bytes.size()) * (1 - held));
  const auto least = static_cast<std::size_t>(task->time) + 1;
  if (task->train < least || task->bytes.size() - task->train < least)
    settings.fail("file", "'" + file + "' has " + std::to_string(task->bytes.size()) +
                              " bytes; both of its parts need " + std::to_string(least) + " or more");
  task->vocabulary = 256;
  return task;
}

}  // namespace ttr::model
