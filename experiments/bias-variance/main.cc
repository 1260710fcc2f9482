// Bias and variance of the three regressions that the layers are: constant near the query (softmax attention with a Gaussian
// kernel), linear near the query (local linear attention), linear everywhere (RLS with a bias).
//
//   y_i = f(x_i) + sigma eps_i ,  x_i uniform on [-1, 1]^d ,  f(x) = sum_j sin(2 x_j - 1) / sqrt(d) ,  weights exp(-|x - q|^2 / 2h^2)
//   bias at a point inside h^2, at the edge h (constant) or h^2 (linear);  variance 1 / (n h^d)
//   mean squared error over the cube, best h:  constant n^-3/(d+3), local linear n^-4/(d+4), linear everywhere n^0
//
// Sources: Fan 1993, Ruppert and Wand 1994 (bias at the edge); arXiv 2510.01450 (rates of the layers); arXiv 2501.12352.
// The answers are linear in the values: with f in one column of the values and the noise in the other, one call gives bias
// and variance apart.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "experiment.h"

namespace {

using namespace ttr::experiment;
using ttr::cli::Line;
using ttr::cli::Plot;
using ttr::cli::Random;

constexpr double sigma = 0.3;

double target(const double* x, int d) {
  double sum = 0;
  for (int j = 0; j < d; ++j) sum += std::sin(2 * x[j] - 1);
  return sum / std::sqrt(d);
}

struct Sample {
  Numbers x, values;  // [n, d]; [n, 2]: f and noise
  Sample(Random& random, int n, int d) : x(static_cast<std::size_t>(n) * d), values(static_cast<std::size_t>(n) * 2) {
    for (double& e : x) e = 2 * random.uniform() - 1;
    for (int i = 0; i < n; ++i) values[2 * i] = target(&x[i * d], d), values[2 * i + 1] = sigma * random.normal();
  }
};

std::string near(double h) { return fmt::format("near(gauss, bandwidth={:.9g})", 2 * h * h); }
std::string local_constant(double h) { return near(h) + " / constant / exact"; }
// A ridge far below the noise: a few queries see too few points for a plane.
std::string local_linear(double h) { return near(h) + " / local(1) / exact(ridge=1e-6, relative)"; }

Numbers with_one(const Numbers& x, int d) {
  Numbers out;
  for (std::size_t i = 0; i < x.size(); i += d) {
    out.push_back(1);
    out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(i), x.begin() + static_cast<std::ptrdiff_t>(i + d));
  }
  return out;
}

// ---- Bias and variance at a point, against h ----------------------------------------------------------------------------

void at_a_point(const Settings& s, Page& page) {
  const std::vector<double> widths = {0.06, 0.085, 0.12, 0.17, 0.24};
  page.table +=
      "## At one point, against the bandwidth\n\nInside: 0.3 in every coordinate; at the edge: 1 in the first, 0.3 "
      "in the "
      "others. Slopes of log |bias| and log variance\nagainst log h, five h from 0.06 to 0.24; in brackets the "
      "theory's.\n\n" +
      header({"d", "n", "regression", "bias inside", "bias at the edge", "variance inside", "variance at the edge"});
  Plot plot;
  plot.title = "Bias against bandwidth, d = 1", plot.x_label = "bandwidth h", plot.y_label = "|bias|";
  plot.log_x = plot.log_y = plot.whole_range = plot.legend_by_end = true, plot.height = 380;
  for (int d : {1, 2}) {
    const int n = s.quick ? 800 : d == 1 ? 2000 : 6000, designs = s.quick ? 60 : d == 1 ? 400 : 150;
    Numbers points(2 * static_cast<std::size_t>(d), 0.3);
    points[d] = 1;
    for (bool linear : {false, true}) {
      std::array<Numbers, 2> bias, variance;
      for (double h : widths) {
        std::array<double, 2> mean{}, squares{};
        for (int r = 0; r < designs; ++r) {
          Random random(s.seed, 20 + static_cast<std::uint64_t>(r));
          const Sample sample(random, n, d);
          const Numbers y = ask(linear ? local_linear(h) : local_constant(h), d, 2, sample.x, sample.values, points);
          for (int p = 0; p < 2; ++p) {
            mean[p] += (y[2 * p] - target(&points[p * d], d)) / designs;
            squares[p] += y[2 * p + 1] * y[2 * p + 1] / designs;
          }
        }
        for (int p = 0; p < 2; ++p) bias[p].push_back(std::abs(mean[p])), variance[p].push_back(squares[p]);
      }
      const auto slope = [&](const Numbers& y, double theory) {
        return fmt::format("{:+.2f} ({:+.0f})", log_slope(widths, y), theory);
      };
      const double edge = linear ? 2 : 1;
      page.table += row({std::to_string(d), std::to_string(n), linear ? "local linear" : "local constant",
                         slope(bias[0], 2), slope(bias[1], edge), slope(variance[0], -d), slope(variance[1], -d)});
      if (d == 1)
        for (int p = 0; p < 2; ++p) {
          const double fitted = log_slope(widths, bias[p]), theory = p == 0 ? 2 : edge;
          if (std::abs(fitted - theory) > 0.5)
            page.wrong.push_back(
                fmt::format("the bias of local {} regression {} grows like h^{}, and not like h^{:.2f}",
                            linear ? "linear" : "constant", p == 0 ? "inside" : "at the edge", theory, fitted));
          Line line;
          line.label =
              fmt::format("{}, {}", linear ? "local linear" : "local constant", p == 0 ? "inside" : "at the edge");
          line.hue = linear ? 3 : 2, line.dash = p, line.x = widths, line.y = bias[p];
          plot.lines.push_back(std::move(line));
        }
    }
  }
  page.table += "\n";
  page.plots.push_back(std::move(plot));
}

// ---- Mean squared error over the cube, best bandwidth, against n --------------------------------------------------------

/// Samples, and queries of each.
struct Grid {
  int designs, queries;
};

double error_of(const std::string& recipe, const Settings& s, const Grid& grid, int n, int d, bool everywhere,
                double scale = 1, double per_token = -1, double h = 1) {
  double sum = 0;
  for (int r = 0; r < grid.designs; ++r) {
    Random random(s.seed, 4000 + static_cast<std::uint64_t>(r));
    Sample sample(random, n, d);
    const Sample asked(random, grid.queries, d);
    Numbers x = sample.x, q = asked.x;
    for (double& e : x) e *= scale;
    for (double& e : q) e *= scale;
    Numbers ridge;
    if (per_token >= 0)  // in units of the weighted spread of the keys around the query
      for (int i = 0; i < grid.queries; ++i) {
        double spread = 0;
        for (int t = 0; t < n; ++t) {
          double distance = 0;
          for (int j = 0; j < d; ++j) distance += (x[t * d + j] - q[i * d + j]) * (x[t * d + j] - q[i * d + j]);
          spread += std::exp(-distance / (2 * h * h)) * distance / d;
        }
        ridge.push_back(per_token * spread);
      }
    const Numbers y = everywhere ? ask(recipe, d + 1, 2, with_one(x, d), sample.values, with_one(q, d))
                                 : ask(recipe, d, 2, x, sample.values, q, ridge);
    for (int i = 0; i < grid.queries; ++i) {
      const double e = y[2 * i] + y[2 * i + 1] - asked.values[2 * i];
      sum += e * e / (grid.queries * grid.designs);
    }
  }
  return sum;
}

void against_n(const Settings& s, Page& page) {
  const Grid grid = s.quick ? Grid{8, 64} : Grid{16, 64};
  const std::vector<int> counts =
      s.quick ? std::vector<int>{100, 400} : std::vector<int>{100, 200, 400, 800, 1600, 3200};
  const Numbers widths = {0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8};
  page.table += fmt::format(
      "## Over the cube, against the number of pairs\n\nMean squared error at {} random queries of {} samples, noise "
      "{:g}, the best h of {} for each n.\n\n",
      grid.queries, grid.designs, sigma, widths.size());
  std::vector<std::string> names = {"d", "regression"};
  for (int n : counts) names.push_back(fmt::format("n = {}", n));
  names.insert(names.end(), {"slope", "theory"});
  page.table += header(names);
  Plot plot;
  plot.title = "Mean squared error against the number of pairs, best bandwidth";
  plot.x_label = "pairs n", plot.y_label = "mean squared error", plot.height = 420;
  plot.log_x = plot.log_y = plot.whole_range = plot.legend_by_end = true;
  const std::vector<int> dims = s.quick ? std::vector<int>{1} : std::vector<int>{1, 2, 3};
  const Numbers x(counts.begin(), counts.end());
  for (int d : dims) {
    std::array<double, 3> last{};
    for (int kind = 0; kind < 3; ++kind) {
      constexpr std::array<const char*, 3> titles = {"local constant", "local linear", "linear everywhere"};
      const double theory = kind == 0 ? -3.0 / (d + 3) : kind == 1 ? -4.0 / (d + 4) : 0;
      std::vector<std::string> cells = {std::to_string(d), titles[kind]};
      Numbers errors;
      for (int n : counts) {
        double best = INFINITY;
        if (kind == 2) best = error_of("equal / linear / exact(ridge=1e-6)", s, grid, n, d, true);
        else
          for (double h : widths)
            best = std::min(best, error_of(kind == 0 ? local_constant(h) : local_linear(h), s, grid, n, d, false));
        errors.push_back(best);
        cells.push_back(fmt::format("{:.3g}", best));
      }
      last[kind] = errors.back();
      cells.push_back(fmt::format("{:+.2f}", log_slope(x, errors)));
      cells.push_back(fmt::format("{:+.2f}", theory));
      page.table += row(cells);
      Line line;
      line.label = fmt::format("{}, d = {}", titles[kind], d), line.hue = kind == 0 ? 2 : kind == 1 ? 3 : 1;
      line.dash = d - 1, line.x = x, line.y = errors;
      plot.lines.push_back(std::move(line));
    }
    if (!(last[1] < last[0] && last[1] < last[2]))
      page.wrong.push_back(fmt::format("local linear regression is best at the largest n, d = {}", d));
  }
  page.table += "\n";
  page.plots.push_back(std::move(plot));
}

// ---- How the ridge of local linear attention is measured ----------------------------------------------------------------

void ridges(const Settings& s, Page& page) {
  const int d = 3;
  const Grid grid = s.quick ? Grid{8, 64} : Grid{16, 64};
  const Numbers sizes = {1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1, 10};
  struct Case {
    const char* name;
    int n;
    double h, scale;
    int hue;
  };
  constexpr std::array<Case, 3> cases = {{{"n = 60, h = 0.4", 60, 0.4, 1, 0},
                                          {"n = 960, h = 0.28", 960, 0.28, 1, 2},
                                          {"n = 60, keys x 10", 60, 0.4, 10, 1}}};
  page.table +=
      "## The ridge of local linear attention\n\nd = 3; mean squared error. Absolute: r; relative: r times the sum "
      "of the "
      "weights; per token: r times the weighted\nmean square distance of the keys from the query times the sum of "
      "the "
      "weights, given to `exact(ridge(token))`.\n\n";
  std::vector<std::string> names = {"data", "ridge"};
  for (double r : sizes) names.push_back(fmt::format("r = {:g}", r));
  names.emplace_back("best r");
  page.table += header(names);
  Plot plot;
  plot.title = "Local linear attention, d = 3: three ways to measure a ridge", plot.x_label = "r";
  plot.y_label = "mean squared error", plot.height = 420;
  plot.log_x = plot.whole_range = plot.legend_by_end = true;
  std::array<std::array<double, 3>, 3> best{};
  for (std::size_t c = 0; c < cases.size(); ++c)
    for (int way = 0; way < 3; ++way) {
      constexpr std::array<const char*, 3> titles = {"absolute", "relative", "per token"};
      const double h = cases[c].h * cases[c].scale;
      std::vector<std::string> cells = {cases[c].name, titles[way]};
      Line line;
      line.label = fmt::format("{}: {}", titles[way], cases[c].name), line.hue = cases[c].hue, line.dash = way,
      line.x = sizes;
      double least = INFINITY;
      for (double r : sizes) {
        const std::string recipe = near(h) + " / local(1) / " +
                                   (way == 2 ? "exact(ridge(token))"
                                             : fmt::format("exact(ridge={:.9g}{})", r, way == 1 ? ", relative" : ""));
        const double error = error_of(recipe, s, grid, cases[c].n, d, false, cases[c].scale, way == 2 ? r : -1, h);
        if (error < least) least = error, best[c][way] = r;
        line.y.push_back(error);
        cells.push_back(fmt::format("{:.3g}", error));
      }
      cells.push_back(fmt::format("{:g}", best[c][way]));
      page.table += row(cells);
      plot.lines.push_back(std::move(line));
    }
  page.plots.push_back(std::move(plot));
  if (best[0][2] != best[2][2])
    page.wrong.emplace_back("the ridge per token does not depend on the unit of the keys");
  if (best[0][0] == best[2][0]) page.wrong.emplace_back("the absolute ridge depends on the unit of the keys");
}

Page work(const Settings& s) {
  Page page;
  page.table = fmt::format(
      "# Bias and variance: results\n\nWritten by `experiments/bias-variance/run.sh`, seed {}.\n\n", s.seed);
  at_a_point(s, page);
  against_n(s, page);
  ridges(s, page);
  return page;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, "bias_variance",
                     "Bias and variance of constant, local linear and linear regression; see README.md.", work);
}
