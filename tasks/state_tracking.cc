// State tracking: parity, modular arithmetic, word problems of groups.
//
// parity: n-1 symbols of 1 and 2; the answer at the last of them is 1 + (number of twos mod 2).
// modular: digit, operator, digit, .. `=`; * before + and -; the answer modulo 5 at the `=`. Ids: pad 0, + - * = 1 .. 4,
//   digits 5 .. 9. With brackets: digits 0 .. 4, + - * ( ) = pad 5 .. 11; expr(1) digit, expr(2) - digit, expr(3) ( digit ),
//   expr(4) ( - digit ), expr(L) ( left op right ) with left of 1 .. L-4.
//   n is uniform in 3 .. longest for training, longest .. test for the test, odd without brackets; sequences have n-1 tokens.
// word-problem: elements 0 .. |G|-1, 0 the identity; the label of every token is the product so far, g_1 g_2 .. g_t, where
//   (g h)(x) = g(h(x)). With bos a token |G| comes first, whose label is itself: without one that writes the first state a
//   layer without convolution does not learn S3.
#include <algorithm>
#include <numeric>

#include "tasks/task.h"

namespace ttr::model {
namespace {

int between(Random& random, int low, int high) {
  return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1)));
}

class Lengths : public Task {
 public:
  int longest = 40, test_longest = 256;
  bool odd = false;
  int length(Random& random, bool test) const {
    const int low = test ? longest : 3, high = test ? test_longest : longest;
    if (!odd) return between(random, low, high);
    return low + 2 * between(random, 0, (high - low) / 2);
  }
  void lengths(TaskSettings& settings, int train, int test) {
    longest = settings.number("longest", train, 3, 1 << 16);
    test_longest = settings.number("test", test, longest, 1 << 16);
    if (odd && (longest % 2 == 0 || test_longest % 2 == 0))
      settings.fail("longest", "and test are odd: a digit more than operators");
    time = longest - 1, test_time = test_longest - 1;
  }
  // Sequences of one length each, then as long as the longest: padding has no label.
  template <class One>
  void fill(Random& random, int sequences, bool test, Examples& out, int pad, One&& one) const {
    std::vector<std::vector<std::int32_t>> tokens(static_cast<std::size_t>(sequences)), labels(tokens.size());
    std::size_t most = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      one(length(random, test), tokens[i], labels[i]);
      most = std::max(most, tokens[i].size());
    }
    begin(out, sequences, static_cast<int>(most), pad);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::copy(tokens[i].begin(), tokens[i].end(), out.tokens.begin() + static_cast<std::ptrdiff_t>(i * most));
      std::copy(labels[i].begin(), labels[i].end(), out.labels.begin() + static_cast<std::ptrdiff_t>(i * most));
    }
  }
};

class Parity : public Lengths {
 public:
  bool all = false;
  void draw(Random& random, int sequences, bool test, Examples& out) const override {
    fill(random, sequences, test, out, 0, [&](int n, auto& tokens, auto& labels) {
      std::int32_t answer = 1;
      for (int t = 0; t < n - 1; ++t) {
        tokens.push_back(between(random, 1, 2));
        if (tokens.back() == 2) answer = 3 - answer;
        labels.push_back(all || t == n - 2 ? answer : -100);
      }
    });
  }
};

class Arithmetic : public Lengths {
 public:
  bool brackets = false;
  void draw(Random& random, int sequences, bool test, Examples& out) const override {
    fill(random, sequences, test, out, brackets ? 11 : 0, [&](int n, auto& tokens, auto& labels) {
      const int answer = brackets ? expression(random, std::max(n, 5) - 3, tokens) : plain(random, n - 2, tokens);
      tokens.push_back(brackets ? 10 : 4);
      labels.assign(tokens.size(), -100);
      labels.back() = (answer % 5 + 5) % 5 + (brackets ? 0 : 5);
    });
  }

 private:
  // `length` tokens, odd: sums of products. The product at hand is kept modulo 5, with its sign.
  static int plain(Random& random, int length, std::vector<std::int32_t>& tokens) {
    int sum = 0, product = 0, sign = 1;
    for (int t = 0; t < length; t += 2) {
      const int op = t == 0 ? 1 : between(random, 1, 3), digit = between(random, 0, 4);
      if (t > 0) tokens.push_back(op);
      tokens.push_back(5 + digit);
      if (op == 3) {
        product = product * digit % 5;
      } else {
        sum += sign * product;
        sign = op == 1 ? 1 : -1, product = digit;
      }
    }
    return sum + sign * product;
  }
  static int expression(Random& random, int length, std::vector<std::int32_t>& tokens) {
    constexpr int minus = 6, open = 8, close = 9;
    if (length <= 4) {
      const int digit = between(random, 0, 4);
      if (length >= 3) tokens.push_back(open);
      if (length % 2 == 0) tokens.push_back(minus);
      tokens.push_back(digit);
      if (length >= 3) tokens.push_back(close);
      return length % 2 == 0 ? -digit : digit;
    }
    tokens.push_back(open);
    const int left = between(random, 1, length - 4);
    const int a = expression(random, left, tokens);
    const int op = between(random, 5, 6);
    tokens.push_back(op);
    const int b = expression(random, length - 3 - left, tokens);
    tokens.push_back(close);
    return (op == minus ? a - b : a + b) % 5;
  }
};

class WordProblem : public Task {
 public:
  int size = 0;
  bool bos = true;
  std::vector<std::int32_t> products;  // [size, size]

  void make_group(const std::string& group) {
    if (group == "Z60") {
      size = 60;
      for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j) products.push_back((i + j) % size);
      return;
    }
    std::vector<int> points(static_cast<std::size_t>(group[1] - '0'));
    std::iota(points.begin(), points.end(), 0);
    std::vector<std::vector<int>> elements;  // in the order of the alphabet: the identity first
    do {
      int inversions = 0;
      for (std::size_t i = 0; i < points.size(); ++i)
        for (std::size_t j = i + 1; j < points.size(); ++j) inversions += points[i] > points[j];
      if (group[0] == 'S' || inversions % 2 == 0) elements.push_back(points);
    } while (std::next_permutation(points.begin(), points.end()));
    size = static_cast<int>(elements.size());
    for (const std::vector<int>& g : elements)
      for (const std::vector<int>& h : elements) {
        for (std::size_t x = 0; x < points.size(); ++x) points[x] = g[static_cast<std::size_t>(h[x])];
        const auto found = std::lower_bound(elements.begin(), elements.end(), points);
        products.push_back(static_cast<std::int32_t>(found - elements.begin()));
      }
  }
  void draw(Random& random, int sequences, bool test, Examples& out) const override {
    const int length = test ? test_time : time;
    begin(out, sequences, length, 0);
    for (int i = 0; i < sequences; ++i) {
      std::int32_t product = 0;
      for (int t = 0; t < length; ++t) {
        const auto at = static_cast<std::size_t>(i * length + t);
        if (bos && t == 0) {
          out.tokens[at] = out.labels[at] = size;
          continue;
        }
        out.tokens[at] = between(random, 0, size - 1);
        out.labels[at] = product = products[static_cast<std::size_t>(product * size + out.tokens[at])];
      }
    }
  }
};

}  // namespace

std::unique_ptr<Task> make_parity(TaskSettings& settings) {
  auto task = std::make_unique<Parity>();
  task->vocabulary = 3, task->chance = 0.5;
  task->lengths(settings, 40, 256);
  task->all = settings.word("labels", "answer", {"answer", "all"}) == "all";
  return task;
}

std::unique_ptr<Task> make_arithmetic(TaskSettings& settings, bool brackets) {
  auto task = std::make_unique<Arithmetic>();
  task->brackets = brackets, task->odd = !brackets;
  task->vocabulary = brackets ? 12 : 10, task->chance = 0.2;
  task->lengths(settings, brackets ? 40 : 39, brackets ? 256 : 255);
  return task;
}

std::unique_ptr<Task> make_word_problem(TaskSettings& settings) {
  auto task = std::make_unique<WordProblem>();
  task->make_group(settings.word("group", "S3", {"S3", "S4", "S5", "A5", "Z60"}));
  task->bos = settings.word("bos", "yes", {"yes", "no"}) == "yes";
  task->vocabulary = task->size + (task->bos ? 1 : 0), task->chance = 1.0 / task->size;
  task->time = settings.number("length", 16, 1, 1 << 16) + (task->bos ? 1 : 0);
  task->test_time = settings.number("test", 64, 1, 1 << 16) + (task->bos ? 1 : 0);
  return task;
}

}  // namespace ttr::model
