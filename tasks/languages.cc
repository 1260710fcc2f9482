// Formal languages of state tracking: parity and modular arithmetic (Grazzi et al. 2024, arXiv 2411.12537).
//
// parity: n-1 symbols of 1 and 2; the answer at the last of them is 1 + (number of twos mod 2).
// modular: digit, operator, digit, .. `=`; * before + and -; the answer modulo 5 at the `=`. Ids: pad 0, + - * = 1 .. 4,
//   digits 5 .. 9. With brackets: digits 0 .. 4, + - * ( ) = pad 5 .. 11; expr(1) digit, expr(2) - digit, expr(3) ( digit ),
//   expr(4) ( - digit ), expr(L) ( left op right ) with left of 1 .. L-4.
//   n is uniform in 3 .. longest for training, longest .. test for the test, odd without brackets; sequences have n-1 tokens.
#include <algorithm>

#include "tasks/task.h"

namespace ttr::model {
namespace {

class Language : public Task {
 public:
  int longest = 40, test_longest = 256;
  bool odd = false;
  void lengths(const TaskSettings& settings) {
    longest = settings.number("longest", 3, 1 << 16);
    test_longest = settings.number("test", longest, 1 << 16);
    if (odd && (longest % 2 == 0 || test_longest % 2 == 0))
      settings.fail("longest", "and test are odd: a digit more than operators");
    time = longest - 1, test_time = test_longest - 1;
  }

 private:
  virtual LabelledTokens one(Random&, int n) const = 0;
  virtual int pad() const = 0;
  void make(Random& random, int sequences, bool test, std::int64_t, Examples& out) const override {
    const int low = test ? longest : 3, high = test ? test_longest : longest;
    std::vector<LabelledTokens> all(static_cast<std::size_t>(sequences));
    for (LabelledTokens& sequence : all)
      sequence = one(random, odd ? low + 2 * between(random, 0, (high - low) / 2) : between(random, low, high));
    put_together(out, all, pad());
  }
};

class Parity : public Language {
 public:
  bool all = false;

 private:
  int pad() const override { return 0; }
  LabelledTokens one(Random& random, int n) const override {
    LabelledTokens sequence;
    std::int32_t answer = 1;
    for (int t = 0; t < n - 1; ++t) {
      const int symbol = between(random, 1, 2);
      if (symbol == 2) answer = 3 - answer;
      sequence.add(symbol, all || t == n - 2 ? answer : -100);
    }
    return sequence;
  }
};

class Arithmetic : public Language {
 public:
  bool brackets = false;
  std::string symbol(std::int32_t token) const override {
    constexpr const char *plain[] = {"pad", "+", "-", "*", "=", "0", "1", "2", "3", "4"},
                         *bracketed[] = {"0", "1", "2", "3", "4", "+", "-", "*", "(", ")", "=", "pad"};
    if (token < 0 || token >= vocabulary) return std::to_string(token);
    return brackets ? bracketed[token] : plain[token];
  }

 private:
  int pad() const override { return brackets ? 11 : 0; }
  LabelledTokens one(Random& random, int n) const override {
    LabelledTokens sequence;
    const int answer =
        brackets ? expression(random, std::max(n, 5) - 3, sequence.tokens) : plain(random, n - 2, sequence.tokens);
    sequence.tokens.push_back(brackets ? 10 : 4);
    sequence.labels.assign(sequence.tokens.size(), -100);
    sequence.labels.back() = (answer % 5 + 5) % 5 + (brackets ? 0 : 5);
    return sequence;
  }
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

std::unique_ptr<Task> make_parity(const TaskSettings& settings) {
  auto task = std::make_unique<Parity>();
  task->vocabulary = 3, task->chance = 0.5;
  task->lengths(settings);
  task->all = settings.word("labels", {"answer", "all"}) == "all";
  return task;
}

std::unique_ptr<Task> make_arithmetic(const TaskSettings& settings, bool brackets) {
  auto task = std::make_unique<Arithmetic>();
  task->brackets = brackets, task->odd = !brackets;
  task->vocabulary = brackets ? 12 : 10, task->chance = 0.2;
  task->lengths(settings);
  return task;
}

std::vector<TaskSettingInfo> lengths(const char* train, const char* test) {
  return {{"longest", train, "longest training sequence, the answer included; shorter ones from 3 on"},
          {"test", test, "longest test sequence; shorter ones from `longest` on"}};
}

}  // namespace

std::vector<TaskEntry> language_tasks() {
  std::vector<TaskSettingInfo> parity = lengths("40", "256");
  parity.push_back({"labels", "answer", "at the last symbol (answer), or at every one (all)"});
  return {
      {"parity", "is the number of twos odd (Grazzi et al. 2024, arXiv 2411.12537)", parity,
       "Symbols 1 and 2, each equally likely. The label at the last symbol is 1 if the number of twos is even and 2 "
       "if it\n"
       "is odd. Test sequences are longer than those of training. The scaled accuracy is published, (a - 1/2) / "
       "(1/2).",
       make_parity},
      {"modular", "digits and + - * modulo 5, without brackets (Grazzi et al. 2024)", lengths("39", "255"),
       "A digit of 0 to 4, an operator, a digit, ..., then =, whose label is the result modulo 5; * binds before + "
       "and -.\n"
       "Lengths are odd. The scaled accuracy is published, (a - 1/5) / (4/5).",
       [](const TaskSettings& s) { return make_arithmetic(s, false); }},
      {"modular-brackets", "digits, + and - modulo 5 with brackets (Grazzi et al. 2024)", lengths("40", "256"),
       "An expression of digits of 0 to 4, + and - with brackets around every sum, then =, whose label is the "
       "result\n"
       "modulo 5. The scaled accuracy is published, (a - 1/5) / (4/5).",
       [](const TaskSettings& s) { return make_arithmetic(s, true); }},
  };
}

}  // namespace ttr::model
