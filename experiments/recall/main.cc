// The program of the experiment: five tables and three plots; README.md says what they show.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "recall.h"
#include "ttr/ttr.h"
#include "whole_runs.h"

namespace {

using namespace ttr::recall;
using ttr::cli::Line;
using ttr::cli::Plot;
using ttr::cli::Random;
using ttr::experiment::ask;
using ttr::experiment::causal;
using ttr::experiment::header;
using ttr::experiment::Page;
using ttr::experiment::random_rows;
using ttr::experiment::row;
using ttr::experiment::Settings;
using ttr::experiment::shuffled;

struct Layer {
  const char *name, *recipe;
  int hue, dash = 0;
};
// Keys have length 1, so that softmax needs a factor above its usual 1/sqrt(d) to tell them apart.
constexpr std::array<Layer, 5> layers = {
    {{"linear attention", "equal / linear / gd(1)", 0},
     {"DeltaNet, step 1", "equal / linear / sgd(beta=1)", 4},
     {"RLS, ridge 1e-6", "equal / linear / exact(ridge=1e-6)", 1},
     {"softmax attention, scale 16", "near(exp, scale=16) / constant / exact", 2},
     {"local linear attention, scale 16", "near(exp, scale=16) / local(1) / exact(ridge=0.1, relative)", 3, 1}}};
constexpr int linear = 0, least_squares = 2;

std::string share(double x) { return fmt::format("{:.3f}", x); }

/// P cues and P responses, all different.
struct Vocabulary {
  std::vector<int> cues, responses;
  Vocabulary(Random& random, int size, int pairs) {
    const std::vector<int> order = shuffled(random, size);
    cues.assign(order.begin(), order.begin() + pairs);
    responses.assign(order.begin() + pairs, order.begin() + 2 * pairs);
  }
};

/// Asked only for cues that were stored: with repeats at random some never are.
double recalled(const char* recipe, const Numbers& table, const Pairs& pairs, const Vocabulary& words, int d) {
  std::vector<int> cues, responses;
  for (std::size_t i = 0; i < words.cues.size(); ++i)
    if (std::find(pairs.keys.begin(), pairs.keys.end(), words.cues[i]) != pairs.keys.end())
      cues.push_back(words.cues[i]), responses.push_back(words.responses[i]);
  const Numbers answers =
      ask(recipe, d, d, embed(table, pairs.keys, d), embed(table, pairs.values, d), embed(table, cues, d));
  return accuracy(read_out(table, answers, d), responses);
}

/// Every answer of a sequence of tokens: the keys are the tokens one place later, by the short convolution of the zoo.
Numbers shifted(const Numbers& x, int d) {
  const int T = static_cast<int>(x.size()) / d;
  const ttr::Plan p =
      ttr::plan("short-convolution:width=2,activation=none,bias=none", {.value_dim = d}, {.type = ttr::Type::f64});
  Numbers taps(static_cast<std::size_t>(d) * 2), y(x.size());
  for (int c = 0; c < d; ++c) taps[2 * static_cast<std::size_t>(c)] = 1;  // the older one
  const ttr::Footprint bytes = p.footprint(T);
  const ttr::cli::Buffer state(bytes.state), work(bytes.workspace);
  ttr::Inputs in;
  ttr::Outputs out;
  in["x"] = ttr::view(x.data(), 1, T, 1, d), in["w"] = ttr::view(taps.data(), 1, d, 2);
  out["y"] = ttr::view(y.data(), 1, T, 1, d);
  ttr::cli::run_whole(p, "short-convolution", "short-convolution", in, out, state, work);
  return y;
}

// ---- Eq. 57-58 on whole sequences: context of T tokens, then every cue once --------------------------------------------

void whole_sequences(const Settings& s, Page& page) {
  const int P = s.quick ? 8 : 32, d = 2 * P, sequences = s.quick ? 2 : 4;
  const std::vector<int> times = s.quick ? std::vector<int>{32, 64} : std::vector<int>{64, 256, 1024, 2048};
  page.table += fmt::format(
      "## One short convolution and one layer (Eq. 57-58)\n\n{} pairs drawn with repeats to fill T tokens, after "
      "each "
      "of them was there once; then every cue.\nKeys are the tokens one place later, made by `short-convolution`; "
      "queries and values the tokens; d = {}.\n\n",
      P, d);
  std::vector<std::string> names = {"embedding", "layer"};
  for (int T : times) names.push_back(fmt::format("T = {}", T));
  page.table += header(names);
  for (bool orthonormal : {true, false})
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::vector<std::string> cells = {orthonormal ? "orthonormal" : "random, unit", layers[l].name};
      for (int T : times) {
        double sum = 0;
        for (int n = 0; n < sequences; ++n) {
          Random random(s.seed, 100 + static_cast<std::uint64_t>(n));
          const int size = 2 * P;
          Numbers table = random_rows(random, size, d, true);
          if (orthonormal)
            for (int i = 0; i < size; ++i)
              for (int j = 0; j < d; ++j) table[static_cast<std::size_t>(i) * d + j] = i == j;
          const Vocabulary words(random, size, P);
          std::vector<int> tokens;
          for (int i = 0; i < T / 2; ++i) {
            const int j = i < P ? i : static_cast<int>(random.bits() % static_cast<std::uint64_t>(P));
            tokens.push_back(words.cues[j]), tokens.push_back(words.responses[j]);
          }
          tokens.insert(tokens.end(), words.cues.begin(), words.cues.end());
          const Numbers x = embed(table, tokens, d);
          const Numbers answers = causal(layers[l].recipe, d, d, shifted(x, d), x, x);
          const Numbers last(answers.end() - static_cast<std::ptrdiff_t>(P) * d, answers.end());
          sum += accuracy(read_out(table, last, d), words.responses) / sequences;
        }
        cells.push_back(share(sum));
        // The claim of the paper.
        if (orthonormal && (l == linear || l == least_squares) && sum < 1)
          page.wrong.push_back(
              fmt::format("{} recalls every pair of orthonormal tokens at T = {}", layers[l].name, T));
      }
      page.table += row(cells);
    }
  page.table += "\n";
}

// ---- The table without training -----------------------------------------------------------------------------------------

struct Reference {
  int vocabulary, pairs;
  std::array<double, 5> linear, squares;
};
// Measured by another program (numpy, other random numbers, 10 repetitions of 30 sequences).
constexpr std::array<Reference, 6> references = {
    {{512, 32, {1.000, 1.000, 1.000, .995, .995}, {1.000, 1.000, 1.000, 1.000, 1.000}},
     {512, 64, {1.000, .977, 1.000, .906, .917}, {1.000, 1.000, 1.000, .979, 1.000}},
     {512, 128, {.974, .729, .974, .674, .714}, {1.000, .867, .995, .777, .896}},
     {8192, 32, {1.000, .998, 1.000, .988, .991}, {1.000, 1.000, 1.000, 1.000, 1.000}},
     {8192, 64, {.999, .921, .999, .864, .883}, {1.000, .999, 1.000, .963, 1.000}},
     {8192, 128, {.918, .494, .918, .574, .631}, {.999, .696, .980, .701, .856}}}};

void without_training(const Settings& s, Page& page) {
  const int d = 64;
  constexpr std::array<const char*, 5> names = {"cue -> response only", "all bigrams, each pair once",
                                                "the same, after a response: zero", "T = 1024 repeated, all bigrams",
                                                "T = 1024 repeated, cue -> response"};
  page.table += fmt::format(
      "## What is stored decides\n\nd = 64, random unit tokens; linear attention / RLS (ridge 1e-6); {}. In brackets "
      "the same by another program.\n\n",
      s.quick ? "3 sequences" : "three repetitions of 30 sequences (two for 8192 tokens)");
  page.table += header({"V", "P", names[0], names[1], names[2], names[3], names[4]});
  double worst = 0;
  for (const Reference& reference : references) {
    if (s.quick && reference.vocabulary > 512) continue;
    std::vector<std::string> cells = {std::to_string(reference.vocabulary), std::to_string(reference.pairs)};
    for (int c = 0; c < 5; ++c) {
      const int repetitions = s.quick ? 1 : reference.vocabulary > 512 ? 2 : 3, sequences = s.quick ? 3 : 30;
      double share_linear = 0, share_squares = 0;
      for (int r = 0; r < repetitions; ++r) {
        Random random(s.seed, 1000 + static_cast<std::uint64_t>(r));
        const Numbers table = random_rows(random, reference.vocabulary, d, true);
        for (int n = 0; n < sequences; ++n) {
          const Vocabulary words(random, reference.vocabulary, reference.pairs);
          const Pairs pairs = contents(static_cast<Content>(c), words.cues, words.responses, 1024, random);
          const double weight = 1.0 / (repetitions * sequences);
          share_linear += weight * recalled(layers[linear].recipe, table, pairs, words, d);
          share_squares += weight * recalled(layers[least_squares].recipe, table, pairs, words, d);
        }
      }
      cells.push_back(fmt::format("{:.3f} / {:.3f} ({:.3f} / {:.3f})", share_linear, share_squares,
                                  reference.linear[c], reference.squares[c]));
      worst = std::max(
          {worst, std::abs(share_linear - reference.linear[c]), std::abs(share_squares - reference.squares[c])});
      if (share_squares < share_linear - 1e-9)
        page.wrong.push_back(fmt::format("RLS recalls no less than linear attention, V = {}, P = {}, {}",
                                         reference.vocabulary, reference.pairs, names[c]));
    }
    page.table += row(cells);
  }
  page.table += fmt::format("\nThe largest difference from the other program is {:.3f}.\n\n", worst);
  if (worst > (s.quick ? 0.08 : 0.02)) page.wrong.push_back("every cell is within 0.02 of the other program's");
}

// ---- Capacity, not length -----------------------------------------------------------------------------------------------

/// Mean accuracy of a layer with P random pairs, each stored `copies` times in random order.
double capacity(const Settings& s, const char* recipe, int d, int P, int copies, int sequences) {
  double sum = 0;
  for (int n = 0; n < sequences; ++n) {
    Random random(s.seed, 5000 + static_cast<std::uint64_t>(n));
    const int size = std::max(1024, 2 * P);
    const Numbers table = random_rows(random, size, d, true);
    const Vocabulary words(random, size, P);
    Pairs pairs;
    for (int c = 0; c < copies; ++c)
      for (int i : shuffled(random, P)) pairs.add(words.cues[i], words.responses[i]);
    sum += recalled(recipe, table, pairs, words, d) / sequences;
  }
  return sum;
}

void by_capacity(const Settings& s, Page& page) {
  const int sequences = s.quick ? 1 : 6, d = s.quick ? 16 : 64;
  Plot plot;
  plot.title = fmt::format("Recall against the number of pairs, d = {}, each stored once", d);
  plot.x_label = "pairs", plot.y_label = "share of cues answered right", plot.legend_by_end = true;
  plot.height = 380;
  for (const Layer& layer : layers) {
    Line line;
    line.label = layer.name, line.hue = layer.hue, line.dash = layer.dash;
    for (double ratio : {0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0}) {
      const int P = static_cast<int>(ratio * d);
      line.x.push_back(P), line.y.push_back(capacity(s, layer.recipe, d, P, 1, sequences));
    }
    plot.lines.push_back(std::move(line));
  }
  page.plots.push_back(std::move(plot));

  const int P = 2 * d;
  const std::vector<int> copies = s.quick ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 4, 8, 16, 32};
  page.table += fmt::format(
      "## Length does not matter\n\nP = {} random pairs at d = {}, each stored the same number of times, cue -> "
      "response "
      "only, read among 1024 tokens.\n\n",
      P, d);
  std::vector<std::string> names = {"layer"};
  for (int c : copies) names.push_back(fmt::format("T = {}", 2 * P * c));
  page.table += header(names);
  Plot length;
  length.title = fmt::format("Recall against length, {} pairs at d = {}, all stored equally often", P, d);
  length.x_label = "tokens", length.y_label = "share of cues answered right", length.legend_by_end = true;
  length.height = 380;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<std::string> cells = {layers[l].name};
    Line line;
    line.label = layers[l].name, line.hue = layers[l].hue, line.dash = layers[l].dash;
    for (int c : copies) {
      const double x = capacity(s, layers[l].recipe, d, P, c, sequences);
      cells.push_back(share(x));
      line.x.push_back(2.0 * P * c), line.y.push_back(x);
    }
    if (l == linear && std::abs(line.y.front() - line.y.back()) > 1e-9)
      page.wrong.push_back("equal repeats change nothing for linear attention");
    page.table += row(cells);
    length.lines.push_back(std::move(line));
  }
  page.plots.push_back(std::move(length));

  const std::vector<int> dims = s.quick ? std::vector<int>{8, 16} : std::vector<int>{16, 32, 64, 128};
  const std::vector<double> ratios = {0.25, 0.5, 1, 1.5, 2, 3};
  page.table +=
      "\n## Capacity grows with d\n\nLinear attention / RLS, each pair stored once, read among 1024 tokens.\n\n";
  names = {"d"};
  for (double ratio : ratios) names.push_back(fmt::format("P = {:g} d", ratio));
  page.table += header(names);
  for (int dim : dims) {
    std::vector<std::string> cells = {std::to_string(dim)};
    for (double ratio : ratios) {
      const int pairs = static_cast<int>(ratio * dim);
      cells.push_back(share(capacity(s, layers[linear].recipe, dim, pairs, 1, sequences)) + " / " +
                      share(capacity(s, layers[least_squares].recipe, dim, pairs, 1, sequences)));
    }
    page.table += row(cells);
  }
  page.table += "\n";
}

// ---- Fuzzy recall: q = k_i + noise --------------------------------------------------------------------------------------

void fuzzy(const Settings& s, Page& page) {
  const int d = s.quick ? 16 : 64, P = d / 2, sequences = s.quick ? 2 : 12;
  const std::vector<double> sizes = {0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0};
  page.table += fmt::format(
      "## Fuzzy recall\n\nq = k_i + noise of length s; P = {} random unit pairs at d = {}. |y - v_i| / |v_i|, in "
      "brackets the accuracy among 1024 tokens.\n\n",
      P, d);
  std::vector<std::string> names = {"layer"};
  for (double size : sizes) names.push_back(fmt::format("s = {:g}", size));
  page.table += header(names);
  Plot plot;
  plot.title = fmt::format("Fuzzy recall: error of the answer to a noisy key, {} pairs, d = {}", P, d);
  plot.x_label = "length of the noise (keys have length 1)", plot.y_label = "relative error of the answer";
  plot.legend_by_end = true, plot.height = 380;
  for (const Layer& layer : layers) {
    std::vector<std::string> cells = {layer.name};
    Line line;
    line.label = layer.name, line.hue = layer.hue, line.dash = layer.dash;
    for (double size : sizes) {
      double error = 0, right = 0;
      for (int n = 0; n < sequences; ++n) {
        Random random(s.seed, 9000 + static_cast<std::uint64_t>(n));
        const Numbers table = random_rows(random, 1024, d, true);
        const Vocabulary words(random, 1024, P);
        const Numbers keys = embed(table, words.cues, d), values = embed(table, words.responses, d);
        Numbers queries = keys;
        const Numbers noise = random_rows(random, P, d, true);
        for (std::size_t i = 0; i < queries.size(); ++i) queries[i] += size * noise[i];
        const Numbers answers = ask(layer.recipe, d, d, keys, values, queries);
        right += accuracy(read_out(table, answers, d), words.responses) / sequences;
        Numbers difference = answers;
        for (std::size_t i = 0; i < answers.size(); ++i) difference[i] -= values[i];
        for (int i = 0; i < P; ++i)
          error += ttr::experiment::norm(&difference[static_cast<std::size_t>(i) * d], d) / (P * sequences);
      }
      cells.push_back(fmt::format("{:.3f} ({:.3f})", error, right));
      line.x.push_back(size), line.y.push_back(error);
    }
    page.table += row(cells);
    plot.lines.push_back(std::move(line));
  }
  page.table += "\n";
  page.plots.push_back(std::move(plot));
}

// ---- The induction head on a sentence -----------------------------------------------------------------------------------

void sentence(const Settings& s, Page& page) {
  const std::vector<std::string> text = {"they", "say",  "hakuna", "matata", "when",  "a",     "day",
                                         "is",   "long", "and",    "then",   "again", "hakuna"};
  std::vector<std::string> words;
  std::vector<int> tokens;
  for (const std::string& word : text) {
    const auto found = std::find(words.begin(), words.end(), word);
    tokens.push_back(static_cast<int>(found - words.begin()));
    if (found == words.end()) words.push_back(word);
  }
  const int d = 64;
  Random random(s.seed, 1);
  const Numbers table = random_rows(random, static_cast<int>(words.size()), d, true), x = embed(table, tokens, d);
  page.table += "## Hakuna ...\n\n\"";
  for (const std::string& word : text) page.table += word + (&word == &text.back() ? "\" is followed by\n\n" : " ");
  page.table += header({"layer", "word", "its score", "the next best"});
  for (const Layer& layer : layers) {
    const Numbers answers = causal(layer.recipe, d, d, shifted(x, d), x, x);
    const double* y = &answers[answers.size() - d];
    std::vector<std::pair<double, std::string>> scores;
    for (std::size_t w = 0; w < words.size(); ++w)
      scores.emplace_back(ttr::experiment::dot(&table[w * d], y, d), words[w]);
    std::sort(scores.rbegin(), scores.rend());
    page.table += row({layer.name, scores[0].second, fmt::format("{:.3f}", scores[0].first),
                       fmt::format("{}, {:.3f}", scores[1].second, scores[1].first)});
    if (scores[0].second != "matata") page.wrong.push_back(std::string(layer.name) + " says matata after hakuna");
  }
}

Page work(const Settings& s) {
  Page page;
  page.table = fmt::format(
      "# Recall without training: results\n\nWritten by `experiments/recall/run.sh`, seed {}.\n\n", s.seed);
  whole_sequences(s, page);
  without_training(s, page);
  by_capacity(s, page);
  fuzzy(s, page);
  sentence(s, page);
  return page;
}

}  // namespace

int main(int argc, char** argv) {
  return ttr::experiment::run_program(
      argc, argv, "recall", "Associative recall by layers whose tokens nobody has trained; see README.md.", work);
}
