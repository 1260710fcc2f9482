// How large the answers of a linear memory get, and what keeps them small.
//
//   Eq. 13 of arXiv 2501.12352:   |y| <= |q| sum_i |v_i| |k_i| / lambda_min(K'K)   for y = V'K (K'K)^-1 q
//   linear attention leaves the inverse out:   y = V'K q   grows with T
//   dot loss      -<S'k, v>          S <- S + beta k v'               |S'k| grows with every repeat of k
//   squared loss  |S'k - v|^2 / 2    S <- S + beta k (v - S'k)'       |S'k| tends to |v|
//   decay         S <- a S before the step: the dot loss too stays finite, at |v| / (1 - a^P) for P keys in turn
//
// Keys [T, d], values [T, d]. Trap: the bound needs K'K of full rank, so T >= d.
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

/// A layer in a table and as a line of a plot.
struct Layer {
  const char *name, *recipe;
  int hue, dash;
  double limit = INFINITY;  // of |S'k| / |v| after many rounds; infinity: it grows
};

std::string number(double x) { return fmt::format("{:.3g}", x); }

/// The least eigenvalue of K'K, by cyclic Jacobi rotations.
double least_eigenvalue(const Numbers& keys, int rows, int d) {
  Numbers a(static_cast<std::size_t>(d) * d);
  for (int t = 0; t < rows; ++t)
    for (int i = 0; i < d; ++i)
      for (int j = 0; j < d; ++j) a[i * d + j] += keys[t * d + i] * keys[t * d + j];
  for (int sweep = 0; sweep < 30; ++sweep)
    for (int p = 0; p < d; ++p)
      for (int q = p + 1; q < d; ++q) {
        if (a[p * d + q] == 0) continue;
        const double theta = (a[q * d + q] - a[p * d + p]) / (2 * a[p * d + q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::hypot(theta, 1));
        const double c = 1 / std::hypot(t, 1), s = t * c;
        for (int i = 0; i < d; ++i) {
          const double x = a[i * d + p], y = a[i * d + q];
          a[i * d + p] = c * x - s * y, a[i * d + q] = s * x + c * y;
        }
        for (int i = 0; i < d; ++i) {
          const double x = a[p * d + i], y = a[q * d + i];
          a[p * d + i] = c * x - s * y, a[q * d + i] = s * x + c * y;
        }
      }
  double least = a[0];
  for (int i = 1; i < d; ++i) least = std::min(least, a[i * d + i]);
  return least;
}

// ---- Eq. 13 beside what is measured -------------------------------------------------------------------------------------

void bound(const Settings& s, Page& page) {
  const int d = 16, sequences = s.quick ? 16 : 64;
  const std::vector<int> times =
      s.quick ? std::vector<int>{16, 64, 1024} : std::vector<int>{16, 20, 32, 64, 256, 1024, 4096};
  constexpr std::array<Layer, 4> layers = {
      {{"linear attention", "equal / linear / gd(1)", 0, 0},
       {"linear attention, elu1, key sum", "equal / linear(elu1) / gd(1) | normalise(keysum)", 0, 1},
       {"DeltaNet, step 1/d", "equal / linear / sgd(beta=0.0625)", 4, 0},
       {"RLS", "equal / linear / exact", 1, 0}}};
  page.table += fmt::format(
      "## Eq. 13\n\nKeys and queries N(0, I), d = {}; mean over {} sequences of |y| for a query after T pairs, and "
      "the "
      "bound of Eq. 13\nfor RLS with its least eigenvalue. Values: W k + 0.1 N(0, I) with |W k| about |k|, or N(0, "
      "I) "
      "without any relation to the keys.\n\n",
      d, sequences);
  Plot plot;
  plot.title = "Length of the answer against the number of pairs; values are W k + noise", plot.log_y = true;
  plot.x_label = "pairs", plot.y_label = "|y|", plot.height = 380;
  plot.legend_by_end = plot.whole_range = plot.log_x = true;
  for (bool related : {true, false}) {
    std::vector<std::string> names = {related ? "values W k + noise" : "values unrelated"};
    for (int T : times) names.push_back(fmt::format("T = {}", T));
    names.emplace_back("slope in T, from 64");
    page.table += header(names);
    std::array<Numbers, layers.size()> length;
    Numbers bounds(times.size());
    for (Numbers& l : length) l.resize(times.size());
    for (std::size_t i = 0; i < times.size(); ++i)
      for (int n = 0; n < sequences; ++n) {
        Random random(s.seed, 10 + static_cast<std::uint64_t>(n));
        const int T = times[i];
        const Numbers map = random_rows(random, d, d, false), keys = random_rows(random, T, d, false),
                      noise = random_rows(random, T, d, false), query = random_rows(random, 1, d, false);
        Numbers values = noise;
        if (related)
          for (int t = 0; t < T; ++t)
            for (int r = 0; r < d; ++r)
              values[t * d + r] = dot(&map[r * d], &keys[t * d], d) / std::sqrt(d) + 0.1 * noise[t * d + r];
        double sum = 0;
        for (int t = 0; t < T; ++t) sum += norm(&keys[t * d], d) * norm(&values[t * d], d);
        const double most = norm(query.data(), d) * sum / least_eigenvalue(keys, T, d);
        bounds[i] += most / sequences;
        for (std::size_t l = 0; l < layers.size(); ++l) {
          const double y = norm(ask(layers[l].recipe, d, d, keys, values, query).data(), d);
          length[l][i] += y / sequences;
          if (l == layers.size() - 1 && y > most * (1 + 1e-6))
            page.wrong.push_back(fmt::format("|y| of RLS is below the bound of Eq. 13, T = {}", T));
        }
      }
    const auto from_64 = [&](const Numbers& y) {
      Numbers at, of;
      for (std::size_t i = 0; i < times.size(); ++i)
        if (times[i] >= 64) at.push_back(times[i]), of.push_back(y[i]);
      return log_slope(at, of);
    };
    const auto add = [&](const char* name, const Numbers& y, int hue, int dash) {
      std::vector<std::string> cells = {name};
      for (double x : y) cells.push_back(number(x));
      cells.push_back(fmt::format("{:+.2f}", from_64(y)));
      page.table += row(cells);
      if (!related) return;
      Line line;
      line.label = name, line.hue = hue, line.dash = dash, line.y = y;
      for (int T : times) line.x.push_back(T);
      plot.lines.push_back(std::move(line));
    };
    for (std::size_t l = 0; l < layers.size(); ++l) add(layers[l].name, length[l], layers[l].hue, layers[l].dash);
    add("bound of Eq. 13", bounds, -1, 2);
    page.table += "\n";
    const double slope = from_64(length[0]);
    if (std::abs(slope - (related ? 1 : 0.5)) > 0.15)
      page.wrong.push_back(fmt::format("linear attention grows like T^{}", related ? "1" : "0.5"));
  }
  page.plots.push_back(std::move(plot));
}

// ---- Saturation ---------------------------------------------------------------------------------------------------------

void saturation(const Settings& s, Page& page) {
  const int d = 64, T = s.quick ? 256 : 2048, sequences = s.quick ? 2 : 8, back = 8;
  constexpr std::array<Layer, 4> layers = {
      {{"linear attention", "equal / linear / gd(1)", 0, 0},
       {"decay 0.98", "decay(0.98) / linear / gd(1)", 0, 1},
       {"DeltaNet, step 1", "equal / linear / sgd(beta=1)", 4, 0},
       {"Gated DeltaNet, 0.98", "equal / linear / sgd(beta=1, decay=0.02)", 4, 1}}};
  page.table += fmt::format(
      "## Saturation\n\nEvery token brings a new random unit key and a value, d = {}; after token t the layer is "
      "asked "
      "for the pair {} tokens back.\nCosine between the answer and the value, mean over {} sequences and 32 "
      "tokens.\n\n",
      d, back, sequences);
  std::vector<int> ends;
  for (int t = 64; t <= T; t *= 2) ends.push_back(t);
  std::vector<std::string> names = {"layer"};
  for (int t : ends) names.push_back(fmt::format("t = {}", t));
  names.emplace_back("theory at the last");
  page.table += header(names);
  Plot plot;
  plot.title = fmt::format("A memory that forgets nothing fills up: the pair {} tokens back, d = {}", back, d);
  plot.x_label = "tokens", plot.y_label = "cosine of answer and value", plot.height = 380;
  plot.legend_by_end = plot.whole_range = true;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    Numbers mean(T);
    for (int n = 0; n < sequences; ++n) {
      Random random(s.seed, 300 + static_cast<std::uint64_t>(n));
      const Numbers keys = random_rows(random, T, d, true), values = random_rows(random, T, d, true);
      Numbers queries(keys.size());
      for (int t = back; t < T; ++t) std::copy_n(&keys[(t - back) * d], d, &queries[t * d]);
      const Numbers y = causal(layers[l].recipe, d, d, keys, values, queries);
      for (int t = back; t < T; ++t)
        mean[t] += dot(&y[t * d], &values[(t - back) * d], d) / norm(&y[t * d], d) / sequences;
    }
    Line line;
    line.label = layers[l].name, line.hue = layers[l].hue, line.dash = layers[l].dash;
    for (int t = 32; t + 16 <= T; t += 16) {
      double sum = 0;
      for (int u = t - 16; u < t + 16; ++u) sum += mean[u] / 32;
      line.x.push_back(t), line.y.push_back(sum);
    }
    plot.lines.push_back(std::move(line));
    std::vector<std::string> cells = {layers[l].name};
    double last = 0;
    for (int t : ends) {
      last = 0;
      for (int u = t - 32; u < t; ++u) last += mean[u] / 32;
      cells.push_back(fmt::format("{:.3f}", last));
    }
    // Signal 1 (or a^8), noise of the other pairs with inner products of variance 1/d.
    const double signal = l == 1 ? std::pow(0.98, 2 * back) : 1,
                 others = l == 1 ? 1 / (1 - 0.98 * 0.98) - signal : T - 1;
    const double theory = std::sqrt(signal / (signal + others / d));
    cells.push_back(l < 2 ? fmt::format("{:.3f}", theory) : "");
    if (l < 2 && std::abs(last - theory) > 0.05)
      page.wrong.push_back(fmt::format("{} recalls with the cosine of signal and noise", layers[l].name));
    page.table += row(cells);
  }
  page.table += "\n";
  page.plots.push_back(std::move(plot));
}

// ---- |S'k| under the two losses -----------------------------------------------------------------------------------------

void losses(const Settings& s, Page& page) {
  const int d = 64, P = 32, T = s.quick ? 512 : 2048;
  const double kept = 1 / (1 - std::pow(0.99, P));
  const std::array<Layer, 4> layers = {
      {{"dot loss", "equal / linear / sgd(beta=1) | dot", 0, 0, INFINITY},
       {"dot loss, decay 0.99", "equal / linear / sgd(beta=1, decay=0.01) | dot", 0, 1, kept},
       {"squared loss", "equal / linear / sgd(beta=1)", 4, 0, 1},
       {"squared loss, decay 0.99", "equal / linear / sgd(beta=1, decay=0.01)", 4, 1, 1}}};
  page.table += fmt::format(
      "## |S'k| under the two losses\n\n{} pairs of orthonormal keys and unit values, stored in turn, d = {}, step "
      "1; |S'k| "
      "of the pair just stored.\n\n",
      P, d);
  std::vector<int> ends;
  for (int t = 32; t <= T; t *= 4) ends.push_back(t);
  if (ends.back() != T) ends.push_back(T);
  std::vector<std::string> names = {"loss"};
  for (int t : ends) names.push_back(fmt::format("t = {}", t));
  names.emplace_back("limit");
  page.table += header(names);
  Plot plot;
  plot.title = fmt::format("Length of what the memory says about a key, {} pairs in turn", P);
  plot.x_label = "tokens", plot.y_label = "|S'k|", plot.height = 340;
  plot.log_y = plot.legend_by_end = plot.whole_range = true;
  Random random(s.seed, 700);
  const Numbers few = random_rows(random, P, d, true);
  Numbers keys(static_cast<std::size_t>(T) * d), values(keys.size());
  for (int t = 0; t < T; ++t) keys[t * d + t % P] = 1, std::copy_n(&few[t % P * d], d, &values[t * d]);
  for (const Layer& layer : layers) {
    const Numbers y = causal(layer.recipe, d, d, keys, values, keys);
    Line line;
    line.label = layer.name, line.hue = layer.hue, line.dash = layer.dash;
    for (int t = P - 1; t < T; t += P) line.x.push_back(t + 1), line.y.push_back(norm(&y[t * d], d));
    std::vector<std::string> cells = {layer.name};
    for (int t : ends) cells.push_back(number(norm(&y[(t - 1) * d], d)));
    cells.push_back(std::isfinite(layer.limit) ? number(layer.limit) : "grows, t / P");
    page.table += row(cells);
    const double last = line.y.back(), wanted = std::isfinite(layer.limit) ? layer.limit : double(T) / P;
    if (std::abs(last - wanted) > 0.02 * wanted)
      page.wrong.push_back(fmt::format("{}: |S'k| is {:.3g} at the end and not {:.3g}", layer.name, last, wanted));
    plot.lines.push_back(std::move(line));
  }
  page.table += "\n";
  page.plots.push_back(std::move(plot));
}

Page work(const Settings& s) {
  Page page;
  page.table =
      fmt::format("# Growth and bounds: results\n\nWritten by `experiments/stability/run.sh`, seed {}.\n\n", s.seed);
  bound(s, page);
  saturation(s, page);
  losses(s, page);
  return page;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, "stability", "How large the answers of linear memories get; see README.md.", work);
}
