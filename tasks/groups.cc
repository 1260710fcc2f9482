// State tracking in groups: word problems, and objects that change places.
//
// word-problem: elements 0 .. |G|-1, 0 the identity; the label of every token is the product so far, g_1 g_2 .. g_t, where
//   (g h)(x) = g(h(x)). With bos a token |G| comes first, whose label is itself: without one that writes the first state a
//   layer without convolution does not learn S3. Groups are products of Zn, Sn and An ("A4xZ5"). `moves` restricts the
//   tokens, not the answers: the identity and the swaps, or all that move three points at most (Grazzi et al. 2024). With
//   `tokens` = n an element is its token and n-1 blanks, and its label stands under the last: n steps of a memory for one
//   element. The published code for that is not known; blanks are our choice.
//   `curriculum` = n: lengths from 2 on, one more every n steps. DeltaProduct's code adds one whenever an epoch's loss falls
//   below 0.3, which would be state outside of a checkpoint.
// permutation-tracking: n places, each with an object; then swaps of two places, "i j"; then places, whose labels are the
//   objects there. A reconstruction: Zuo et al. 2025 (arXiv 2510.01450) track permutations, but do not publish how.
#include <algorithm>
#include <numeric>

#include "tasks/task.h"

namespace ttr::model {
namespace {

using Permutation = std::vector<int>;

// Zn as turns of a ring, Sn and An in the order of the alphabet: the identity is first in all of them.
std::vector<Permutation> elements_of(char kind, int n) {
  std::vector<Permutation> all;
  Permutation points(static_cast<std::size_t>(n));
  std::iota(points.begin(), points.end(), 0);
  if (kind == 'Z') {
    for (int i = 0; i < n; ++i) {
      all.push_back(points);
      std::rotate(points.begin(), points.begin() + 1, points.end());
    }
    return all;
  }
  do {
    int inversions = 0;
    for (std::size_t i = 0; i < points.size(); ++i)
      for (std::size_t j = i + 1; j < points.size(); ++j) inversions += points[i] > points[j];
    if (kind == 'S' || inversions % 2 == 0) all.push_back(points);
  } while (std::next_permutation(points.begin(), points.end()));
  return all;
}

// Every element as a permutation of all points of all factors, so that there is one kind of group.
std::vector<Permutation> group_of(const TaskSettings& settings, const std::string& text) {
  std::vector<Permutation> group = {{}};
  std::size_t at = 0;
  const auto refuse = [&] {
    settings.fail("group", "is '" + text +
                               "'; it is Z60, S3, S4, S5, A4, A5 or a product such as A4xZ5, of at most 720 "
                               "elements: Z2 .. Z720, S2 .. S6, A3 .. A6");
  };
  while (at < text.size()) {
    const char kind = text[at];
    std::size_t end = ++at;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    if (end == at || end - at > 3 || (kind != 'Z' && kind != 'S' && kind != 'A')) refuse();
    const int n = std::stoi(text.substr(at, end - at));
    if (n < (kind == 'A' ? 3 : 2) || n > (kind == 'Z' ? 720 : 6)) refuse();
    const std::vector<Permutation> factor = elements_of(kind, n);
    if (group.size() * factor.size() > 720) refuse();
    std::vector<Permutation> product;
    for (const Permutation& g : group)
      for (const Permutation& h : factor) {
        Permutation both = g;
        for (const int x : h) both.push_back(x + static_cast<int>(g.size()));
        product.push_back(std::move(both));
      }
    group = std::move(product);
    at = end;
    if (at == text.size()) break;
    if (text[at] != 'x' || ++at == text.size()) refuse();
  }
  if (group.size() < 2) refuse();
  return group;
}

class WordProblem : public Task {
 public:
  int size = 0, per_element = 1, curriculum = 0, length = 16, test_length = 64;
  bool bos = true;
  std::vector<std::int32_t> products;  // [size, size]
  std::vector<std::int32_t> moves;     // elements that are drawn
  std::vector<Permutation> elements;

  std::string symbol(std::int32_t token) const override {
    if (token == size) return bos ? "bos" : "blank";
    if (token > size) return "blank";
    std::string text;  // where the points go, as digits or letters; those of a ring as a number
    if (elements[0].size() > 9) return std::to_string(token);
    for (const int x : elements[static_cast<std::size_t>(token)]) text += static_cast<char>('1' + x);
    return text;
  }
  void multiply() {
    size = static_cast<int>(elements.size());
    std::vector<std::pair<Permutation, std::int32_t>> sorted;
    sorted.reserve(elements.size());
    for (int i = 0; i < size; ++i) sorted.emplace_back(elements[static_cast<std::size_t>(i)], i);
    std::sort(sorted.begin(), sorted.end());
    Permutation both(elements[0].size());
    for (const Permutation& g : elements)
      for (const Permutation& h : elements) {
        for (std::size_t x = 0; x < both.size(); ++x) both[x] = g[static_cast<std::size_t>(h[x])];
        products.push_back(std::lower_bound(sorted.begin(), sorted.end(), std::pair(both, 0))->second);
      }
  }
  int tokens_of(int elements_count) const { return elements_count * per_element + (bos ? 1 : 0); }

 private:
  void make(Random& random, int sequences, bool test, std::int64_t step, Examples& out) const override {
    int count = test ? test_length : length;
    if (curriculum > 0 && step != ended)
      count = static_cast<int>(std::min<std::int64_t>(count, 2 + step / curriculum));
    const int all = tokens_of(count), blank = size + (bos ? 1 : 0);
    begin(out, sequences, all, blank);
    for (int i = 0; i < sequences; ++i) {
      auto at = static_cast<std::size_t>(i) * static_cast<std::size_t>(all);
      if (bos) out.tokens[at] = out.labels[at] = size, ++at;
      std::int32_t product = 0;
      for (int t = 0; t < count; ++t, at += static_cast<std::size_t>(per_element)) {
        const std::int32_t element = moves[random.below(moves.size())];
        product = products[static_cast<std::size_t>(product * size + element)];
        out.tokens[at] = element;
        out.labels[at + static_cast<std::size_t>(per_element) - 1] = product;
      }
    }
  }
};

std::unique_ptr<Task> make_word_problem(const TaskSettings& settings) {
  auto task = std::make_unique<WordProblem>();
  task->elements = group_of(settings, settings.text("group"));
  task->multiply();
  const std::string& moves = settings.word("moves", {"all", "swaps", "three"});
  const std::size_t most = moves == "all" ? task->elements[0].size() : moves == "swaps" ? 2 : 3;
  for (std::size_t i = 0; i < task->elements.size(); ++i) {
    const Permutation& g = task->elements[i];
    std::size_t moved = 0;
    for (std::size_t x = 0; x < g.size(); ++x) moved += g[x] != static_cast<int>(x);
    if (moved <= most) task->moves.push_back(static_cast<std::int32_t>(i));
  }
  if (task->moves.size() < 2)
    settings.fail("moves", "is " + moves + "; no element of " + settings.text("group") + " moves so few points");
  task->bos = settings.flag("bos");
  task->per_element = settings.number("tokens", 1, 64);
  task->curriculum = settings.number("curriculum", 0);
  task->length = settings.number("length", 1, 1 << 16), task->test_length = settings.number("test", 1, 1 << 16);
  task->vocabulary = task->size + (task->bos ? 1 : 0) + (task->per_element > 1 ? 1 : 0);
  task->chance = 1.0 / task->size, task->metric = "sequences";
  task->time = task->tokens_of(task->length), task->test_time = task->tokens_of(task->test_length);
  return task;
}

class PermutationTracking : public Task {
 public:
  int places = 5, swaps = 16, test_swaps = 64, queries = 5;
  std::string symbol(std::int32_t token) const override {
    if (token >= places) return std::string(1, static_cast<char>('a' + (token - places) % 26));
    return std::to_string(token + 1);
  }
  int tokens_of(int swap_count) const { return places + 2 * swap_count + queries; }

 private:
  void make(Random& random, int sequences, bool test, std::int64_t, Examples& out) const override {
    const int count = test ? test_swaps : swaps, all = tokens_of(count);
    begin(out, sequences, all, 0);
    for (int i = 0; i < sequences; ++i) {
      auto at = static_cast<std::size_t>(i) * static_cast<std::size_t>(all);
      std::vector<std::int32_t> objects = distinct(random, places, 2 * places, places);
      for (const std::int32_t one : objects) out.tokens[at++] = one;
      for (int s = 0; s < count; ++s) {
        const std::vector<std::int32_t> two = distinct(random, 0, places, 2);
        out.tokens[at++] = two[0], out.tokens[at++] = two[1];
        std::swap(objects[static_cast<std::size_t>(two[0])], objects[static_cast<std::size_t>(two[1])]);
      }
      for (const std::int32_t place : distinct(random, 0, places, queries))
        out.tokens[at] = place, out.labels[at++] = objects[static_cast<std::size_t>(place)];
    }
  }
};

std::unique_ptr<Task> make_permutation_tracking(const TaskSettings& settings) {
  auto task = std::make_unique<PermutationTracking>();
  task->places = settings.number("places", 2, 4096), task->queries = settings.number("queries", 1, task->places);
  task->swaps = settings.number("swaps", 0, 1 << 16), task->test_swaps = settings.number("test", 0, 1 << 16);
  task->vocabulary = 2 * task->places, task->chance = 1.0 / task->places, task->metric = "tokens";
  task->time = task->tokens_of(task->swaps), task->test_time = task->tokens_of(task->test_swaps);
  return task;
}

}  // namespace

std::vector<TaskEntry> group_tasks() {
  return {
      {"word-problem",
       "products of the elements of a group (Merrill et al. 2024, arXiv 2404.08819)",
       {{"group", "S3", "Z60, S3, S4, S5, A5, or a product such as A4xZ5"},
        {"moves", "all",
         "elements that are drawn: all, the identity and swaps, or those that move at most three points"},
        {"length", "16", "elements of a training sequence"},
        {"test", "64", "elements of a test sequence"},
        {"bos", "yes", "a token before the first element, with itself as its label"},
        {"tokens", "1", "tokens per element: itself and blanks, the label under the last"},
        {"curriculum", "0", "lengths from 2 on, one more every so many steps; 0: no"}},
       "Elements of a group, uniformly; the label under each is the product of all so far, g1 g2 .. gt. A sequence "
       "is\n"
       "right if all its labels are: the published accuracy. A permutation is shown by where its points go.",
       make_word_problem},
      {"permutation-tracking",
       "objects that change places by swaps (after arXiv 2510.01450; a reconstruction)",
       {{"places", "5", "places, and objects"},
        {"swaps", "16", "swaps of a training sequence"},
        {"test", "64", "swaps of a test sequence"},
        {"queries", "5", "places that are asked for at the end"}},
       "An object in every place, then swaps of two places, then places. The label under such a place is the object "
       "that\n"
       "is there after all swaps. The paper names the task and does not describe its data: this is a reconstruction.",
       make_permutation_tracking},
  };
}

}  // namespace ttr::model
