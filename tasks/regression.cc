// Regression in context.
//
// linear-regression: x, w ~ N(0, I), y = f(x) + noise N(0, 1), one f per sequence. Tokens x_1, (y_1, 0 ..), x_2, .. ; at x_i
//   the target is y_i. After i points the least-norm solution of the linear f has the squared error max(0, d - i).
//   Functions of Garg et al. 2022, arXiv 2208.01066, at their scales:
//     linear     w.x                            sparse  w with all but `sparsity` coordinates zero
//     quadratic  sum w_j x_j^2 / sqrt(3)        relu    sqrt(2/h) sum_i b_i max(0, a_i.x), a and b of N(0, 1)
//     tree       a binary tree of `depth`: node n asks whether a coordinate of its own is above 0; leaves of N(0, 1)
//     sign       the class w.x > 0, as a label
//   `curriculum` = n (published: 2000): coordinates from 5 on, one more every n steps, the others of x being 0; points from 11
//   on, two more every n steps.
// piecewise-regression: in segment s keys N(c_s, I) with |c_s| = 1.5 sqrt(d), v = W_s k + noise N(0, I), W_s of N(0, 1/d).
//   Token t is (k_t, v_t, k_{t+1}), its target v_{t+1}. A reconstruction: the published generator is not known.
#include <algorithm>
#include <cmath>

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

enum class Function { linear, sparse, quadratic, relu, tree, sign };

// One function, drawn for a sequence.
class Drawn {
 public:
  Drawn(Function kind, std::size_t dim, int sparsity, int hidden, int depth)
      : kind_(kind), dim_(dim), sparsity_(sparsity), hidden_(static_cast<std::size_t>(hidden)), depth_(depth) {}

  void draw(Random& random) {
    if (kind_ == Function::tree) {
      weights_.resize(std::size_t{2} << depth_), coordinates_.resize(weights_.size());
      for (std::size_t n = 0; n < weights_.size(); ++n)
        weights_[n] = random.normal(), coordinates_[n] = random.below(dim_);
      return;
    }
    weights_.resize(kind_ == Function::relu ? hidden_ * (dim_ + 1) : dim_);
    for (double& w : weights_) w = random.normal();
    if (kind_ != Function::sparse) return;
    std::vector<bool> kept(dim_);
    for (const std::int32_t j : distinct(random, 0, static_cast<int>(dim_), sparsity_))
      kept[static_cast<std::size_t>(j)] = true;
    for (std::size_t j = 0; j < dim_; ++j)
      if (!kept[j]) weights_[j] = 0;
  }
  double operator()(const std::vector<double>& x) const {
    double y = 0;
    if (kind_ == Function::tree) {
      std::size_t node = 0;
      for (int level = 0; level < depth_; ++level) node = 2 * node + 1 + (x[coordinates_[node]] > 0 ? 1 : 0);
      return weights_[node];
    }
    if (kind_ == Function::relu) {
      for (std::size_t i = 0; i < hidden_; ++i) {
        double inner = 0;
        for (std::size_t j = 0; j < dim_; ++j) inner += weights_[i * (dim_ + 1) + j] * x[j];
        y += weights_[i * (dim_ + 1) + dim_] * std::max(0.0, inner);
      }
      return y * std::sqrt(2 / static_cast<double>(hidden_));
    }
    for (std::size_t j = 0; j < dim_; ++j) y += weights_[j] * (kind_ == Function::quadratic ? x[j] * x[j] : x[j]);
    return kind_ == Function::quadratic ? y / std::sqrt(3.0) : y;
  }

 private:
  Function kind_;
  std::size_t dim_;
  int sparsity_;
  std::size_t hidden_;
  int depth_;
  std::vector<double> weights_;
  std::vector<std::uint64_t> coordinates_;
};

class InContext : public Task {
 public:
  Function function = Function::linear;
  int points = 41, curriculum = 0, sparsity = 3, hidden = 100, depth = 4;
  double noise = 0;

 private:
  void make(Random& random, int sequences, bool, std::int64_t step, Examples& out) const override {
    const auto d = static_cast<std::size_t>(input_dim);
    std::size_t active = d;
    int count = points;
    if (curriculum > 0 && step != ended) {
      active = static_cast<std::size_t>(std::min<std::int64_t>(input_dim, 5 + step / curriculum));
      count = static_cast<int>(std::min<std::int64_t>(points, 11 + 2 * (step / curriculum)));
    }
    const bool classes = function == Function::sign;
    begin_rows(out, sequences, 2 * count, input_dim, classes ? 0 : 1);
    if (classes) out.counted.clear(), out.labels.assign(static_cast<std::size_t>(sequences * 2 * count), -100);
    Drawn drawn(function, d, sparsity, hidden, depth);
    std::vector<double> x(d);
    for (int i = 0; i < sequences; ++i) {
      drawn.draw(random);
      for (int p = 0; p < count; ++p) {
        const auto at = static_cast<std::size_t>(i * 2 * count + 2 * p);
        for (std::size_t j = 0; j < d; ++j) x[j] = random.normal();
        std::fill(x.begin() + static_cast<std::ptrdiff_t>(active), x.end(), 0.0);
        const double y = drawn(x) + (noise > 0 ? noise * random.normal() : 0);
        for (std::size_t j = 0; j < d; ++j) out.rows[at * d + j] = static_cast<float>(x[j]);
        out.rows[(at + 1) * d] = static_cast<float>(classes ? (y > 0 ? 1 : -1) : y);
        if (classes) out.labels[at] = y > 0;
        else out.targets[at] = static_cast<float>(y), out.counted[at] = 1;
      }
    }
  }
};

class PiecewiseRegression : public Task {
 public:
  int dim = 16, segment = 64;
  double noise = 0.05;

 private:
  void make(Random& random, int sequences, bool, std::int64_t, Examples& out) const override {
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

std::unique_ptr<Task> make_in_context(const TaskSettings& settings) {
  auto task = std::make_unique<InContext>();
  const std::vector<std::string> functions = {"linear", "sparse", "quadratic", "relu", "tree", "sign"};
  const std::string& function = settings.word("function", functions);
  task->function = static_cast<Function>(std::find(functions.begin(), functions.end(), function) - functions.begin());
  task->input_dim = settings.number("dim", 1, 4096);
  task->points = settings.number("points", 1, 1 << 16);
  task->noise = settings.real("noise", 0, 1e6);
  task->sparsity = settings.number("sparsity", 1, 4096);
  task->hidden = settings.number("hidden", 1, 1 << 16);
  task->depth = settings.number("depth", 1, 16);
  task->curriculum = settings.number("curriculum", 0);
  if (task->function == Function::sparse && task->sparsity > task->input_dim)
    settings.fail("sparsity",
                  "is " + std::to_string(task->sparsity) + "; it is at most dim, " + std::to_string(task->input_dim));
  const bool classes = task->function == Function::sign;
  task->squared = !classes, task->output_dim = classes ? 2 : 1, task->chance = classes ? 0.5 : 0;
  task->time = task->test_time = 2 * task->points;
  return task;
}

std::unique_ptr<Task> make_piecewise_regression(const TaskSettings& settings) {
  auto task = std::make_unique<PiecewiseRegression>();
  task->dim = settings.number("dim", 1, 4096);
  task->time = task->test_time = settings.number("length", 1, 1 << 16);
  task->segment = settings.number("segment", 1, 1 << 16);
  task->noise = settings.real("noise", 0, 1e6);
  task->input_dim = 3 * task->dim, task->output_dim = task->dim, task->squared = true;
  return task;
}

}  // namespace

std::vector<TaskEntry> regression_tasks() {
  return {
      {"linear-regression",
       "y = f(x) from pairs x, y: linear and other functions (Garg et al. 2022, arXiv 2208.01066)",
       {{"function", "linear", "linear, sparse, quadratic, relu, tree or sign (a class)"},
        {"dim", "20", "coordinates of x"},
        {"points", "41", "pairs of a sequence"},
        {"noise", "0", "standard deviation of what is added to y"},
        {"sparsity", "3", "of sparse: coordinates that count"},
        {"hidden", "100", "of relu: hidden units"},
        {"depth", "4", "of tree: questions on the way to a leaf"},
        {"curriculum", "0", "5 coordinates and 11 points at first, 1 and 2 more every so many steps (2000); 0: no"}},
       "A function is drawn for every sequence. Tokens are x_1, (y_1, 0 ..), x_2, (y_2, 0 ..), .., and the target at "
       "x_i is\n"
       "y_i. With the linear function the least-norm solution has the mean squared error max(0, d - i) after i "
       "pairs.",
       make_in_context},
      {"piecewise-regression",
       "v = W k with another W and other keys in every segment (after arXiv 2510.01450; a reconstruction)",
       {{"dim", "16", "of keys and of values"},
        {"length", "256", "pairs of a sequence"},
        {"segment", "64", "pairs until the map changes"},
        {"noise", "0.05", "standard deviation of what is added to v"}},
       "In every segment keys have a centre of their own, of length 1.5 sqrt(d), and values are W k with a W of its "
       "own.\n"
       "Token t is (k_t, v_t, k_t+1) and its target v_t+1.",
       make_piecewise_regression},
  };
}

}  // namespace ttr::model
