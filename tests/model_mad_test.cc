// The generators of MAD, forgetting, restricted word problems, permutation tracking, curricula and accuracies: what every
// example must satisfy, worked out again from its tokens, and the statistics of many.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "ttr/tasks.h"

namespace {

using namespace ttr::model;

Examples drawn(const std::string& text, int sequences, bool test = false, std::int64_t step = Task::ended) {
  Examples e;
  ttr::model::Random random(1);
  make_task(text)->draw(random, sequences, test, e, step);
  return e;
}
struct One {
  const std::int32_t *tokens, *labels;
};
One sequence(const Examples& e, int i) {
  return {e.tokens.data() + static_cast<std::ptrdiff_t>(i) * e.time,
          e.labels.data() + static_cast<std::ptrdiff_t>(i) * e.time};
}
// Half of a hundred counts may be off by one standard deviation; none by five.
void expect_count(double count, double mean) { EXPECT_NEAR(count, mean, 5 * std::sqrt(mean)); }

TEST(MadTasks, RecallWithAndWithoutNoise) {
  const int N = 600;
  for (const bool noisy : {false, true})
    for (const bool test : {false, true}) {
      const Examples e = drawn(noisy ? "mad-noisy-recall(noise=0.4)" : "mad-recall", N, test);
      const int plain = 16, T = e.time;
      ASSERT_EQ(T, 127);
      double noise_pairs = 0;
      std::map<int, double> keys, first_values;
      for (int i = 0; i < N; ++i) {
        const One s = sequence(e, i);
        std::map<int, int> values;
        for (int t = 0; t < T; t += 2) {
          const int key = s.tokens[t];
          if (key >= plain) {
            ASSERT_TRUE(noisy && key < 32 && s.tokens[t + 1] >= plain && s.tokens[t + 1] < 32);
            ++noise_pairs;
            if (test) {
              ASSERT_TRUE(s.labels[t] < 0 && (t == 0 || s.labels[t - 1] < 0));
            }
            continue;
          }
          ASSERT_LT(key, plain / 2);
          const bool known = values.count(key) > 0, last = t == T - 1;
          if (!last) {
            const int value = s.tokens[t + 1];
            ASSERT_TRUE(value >= plain / 2 && value < plain);
            ASSERT_EQ(values.emplace(key, value).first->second, value);
            if (!known) ++first_values[value];
            ++keys[key];
          }
          if (test) {
            ASSERT_EQ(s.labels[t], known ? values.at(key) : -100);
            if (t > 0) {
              ASSERT_EQ(s.labels[t - 1], -100);
            }
          }
          if (last) {
            ASSERT_TRUE(known);
          }
        }
        if (!test) {
          for (int t = 0; t + 1 < T; ++t) ASSERT_EQ(s.labels[t], s.tokens[t + 1]);
          ASSERT_EQ(s.labels[T - 1], values.at(s.tokens[T - 1]));
        }
      }
      double all = 0, values = 0;
      for (const auto& [key, count] : keys) all += count;
      for (const auto& [value, count] : first_values) values += count;
      EXPECT_EQ(keys.size(), 8u);
      EXPECT_EQ(first_values.size(), 8u);
      for (const auto& [key, count] : keys) expect_count(count, all / 8);
      for (const auto& [value, count] : first_values) expect_count(count, values / 8);
      if (noisy) expect_count(noise_pairs, N * (63 - 63.0 / 64) * 0.4);  // one of 64 pairs is never noise
    }
}

TEST(MadTasks, FuzzyRecall) {
  for (const bool test : {false, true}) {
    const Examples e = drawn("mad-fuzzy-recall", 400, test);
    ASSERT_EQ(e.time, 128);
    std::map<std::size_t, double> key_sizes, value_sizes;
    for (int i = 0; i < 400; ++i) {
      const One s = sequence(e, i);
      int t = 0;
      while (s.tokens[t] == 15) ++t;
      ASSERT_LT(t, 12);
      std::vector<int> tokens(s.tokens + t, s.tokens + 128), wanted;
      for (int at = t; at < 128; ++at) wanted.push_back(s.labels[at]);
      if (!test) {
        for (int at = 0; at + 1 < 128; ++at) ASSERT_EQ(s.labels[at], s.tokens[at + 1]);
      }
      tokens.push_back(test ? s.labels[127] : wanted.back());  // the answer's last token is never an input
      std::map<std::vector<int>, std::vector<int>> values;
      std::size_t at = 0, repeats = 0;
      bool last_known = false;
      while (at < tokens.size()) {
        std::vector<int> key, value;
        const std::size_t begin = at;
        while (at < tokens.size() && tokens[at] < 7) key.push_back(tokens[at++]);
        while (at < tokens.size() && tokens[at] >= 7) value.push_back(tokens[at++]);
        ASSERT_TRUE(!key.empty() && !value.empty() && key.size() <= 3 && value.size() <= 3);
        ASSERT_EQ(std::set<int>(key.begin(), key.end()).size(), key.size());
        ASSERT_EQ(std::set<int>(value.begin(), value.end()).size(), value.size());
        last_known = values.count(key) > 0;
        repeats += last_known;
        ASSERT_EQ(values.emplace(key, value).first->second, value);
        if (!last_known) ++key_sizes[key.size()], ++value_sizes[value.size()];
        if (test)  // the label of a token stands one before it
          for (std::size_t j = 0; j < key.size() + value.size(); ++j) {
            if (begin + j == 0) continue;
            ASSERT_EQ(wanted[begin + j - 1], j < key.size() || !last_known ? -100 : value[j - key.size()]);
          }
      }
      ASSERT_TRUE(last_known);
    }
    if (test) {
      EXPECT_EQ(key_sizes.size(), 1u);
      const double all = value_sizes[1] + value_sizes[2] + value_sizes[3];
      for (const auto& [size, count] : value_sizes) expect_count(count, all / 3);
    } else {
      EXPECT_EQ(key_sizes.size(), 3u);
    }
  }
}

TEST(MadTasks, Copy) {
  const int N = 500;
  const Examples e = drawn("mad-copy", N);
  ASSERT_EQ(e.time, 256);
  double blanks_before_first = 0;
  std::vector<double> symbols(14);
  for (int i = 0; i < N; ++i) {
    const One s = sequence(e, i);
    std::vector<int> copied;
    for (int t = 0; t < 239; ++t) {
      ASSERT_LT(s.labels[t], 0);
      if (s.tokens[t] != 14) copied.push_back(s.tokens[t]), ++symbols.at(static_cast<std::size_t>(s.tokens[t]));
      else if (copied.empty()) ++blanks_before_first;
    }
    ASSERT_EQ(copied.size(), 16u);
    ASSERT_NE(s.tokens[238], 14);  // blanks come before symbols, none after the last
    ASSERT_EQ(s.tokens[239], 15);
    for (int j = 0; j < 16; ++j) {
      ASSERT_EQ(s.tokens[240 + j], 14);
      ASSERT_EQ(s.labels[240 + j], copied[static_cast<std::size_t>(j)]);
    }
  }
  expect_count(blanks_before_first, N * 223.0 / 16);
  for (const double count : symbols) expect_count(count, N * 16 / 14.0);
}

TEST(MadTasks, CompressionAndMemorisation) {
  const Examples c = drawn("mad-compression", 200);
  ASSERT_EQ(c.time, 32);
  for (int i = 0; i < 200; ++i)
    for (int t = 0; t < 32; ++t) {
      ASSERT_EQ(sequence(c, i).labels[t], sequence(c, i).tokens[t]);
      ASSERT_EQ(sequence(c, i).tokens[t] == 15, t == 31);
    }
  EXPECT_EQ(make_task("mad-compression")->read_out, "last");

  std::map<int, int> map;
  std::set<int> values;
  for (const bool test : {false, true}) {
    const Examples m = drawn("mad-memorisation", 300, test);
    for (int i = 0; i < 300; ++i)
      for (int t = 0; t < 32; t += 2) {
        const One s = sequence(m, i);
        ASSERT_TRUE(s.tokens[t] < 127 && s.tokens[t + 1] == 255 && s.labels[t] < 0);
        ASSERT_TRUE(s.labels[t + 1] >= 127 && s.labels[t + 1] < 255);
        ASSERT_EQ(map.emplace(s.tokens[t], s.labels[t + 1]).first->second, s.labels[t + 1]);
        values.insert(s.labels[t + 1]);
      }
  }
  EXPECT_EQ(map.size(), 127u);
  EXPECT_EQ(values.size(), 127u);
  EXPECT_NE(drawn("mad-memorisation(map=7)", 50).labels, drawn("mad-memorisation", 50).labels);
}

TEST(MoreTasks, Forgetting) {
  const int N = 1000, P = 6, U = 3, T = 60;
  const Examples e = drawn("mqar-forgetting(vocabulary=64, time=60, pairs=6, updates=3, filler=zero)", N);
  std::vector<double> updated(P);
  for (int i = 0; i < N; ++i) {
    const One s = sequence(e, i);
    std::map<int, int> values, order;
    for (int j = 0; j < P + U; ++j) {
      const int key = s.tokens[2 * j], value = s.tokens[2 * j + 1];
      ASSERT_TRUE(key > 0 && key < 32 && value >= 32 && value < 64);
      if (j < P) {
        ASSERT_TRUE(values.emplace(key, value).second);
        order[key] = j;
      } else {
        ASSERT_NE(values.at(key), value);
        values[key] = value, ++updated[static_cast<std::size_t>(order[key])];
      }
    }
    int asked = 0;
    for (int t = 0; t < T; ++t) {
      if (t < 2 * (P + U) || s.tokens[t] == 0) {
        ASSERT_LT(s.labels[t], 0);
        continue;
      }
      ASSERT_EQ(s.labels[t], values.at(s.tokens[t]));
      ++asked;
    }
    ASSERT_EQ(asked, P);
  }
  for (const double count : updated) expect_count(count, N * 3.0 / 6);
}

TEST(MoreTasks, RestrictedWordProblems) {
  const auto inputs = [](const std::string& text) {
    const Examples e = drawn(text, 300);
    std::set<int> tokens(e.tokens.begin(), e.tokens.end());
    return tokens.size() - 1;  // without bos
  };
  EXPECT_EQ(inputs("word-problem(group=S5, length=20)"), 120u);
  EXPECT_EQ(inputs("word-problem(group=S5, length=20, moves=swaps)"), 11u);
  EXPECT_EQ(inputs("word-problem(group=S5, length=20, moves=three)"), 31u);
  EXPECT_EQ(inputs("word-problem(group=A4xZ5, length=20)"), 60u);
  // A product of groups: the order of every element divides 30, and there are as many of each order as in A4 x Z5
  // (orders 1, 2, 3 of A4: 1, 3, 8; of Z5: 1, and four of order 5).
  const Examples e = drawn("word-problem(group=A4xZ5, length=2000, bos=no)", 20);
  std::map<std::pair<int, int>, int> table;
  for (int i = 0; i < 20; ++i)
    for (int t = 1; t < 2000; ++t) {
      const One s = sequence(e, i);
      table[{s.labels[t - 1], s.tokens[t]}] = s.labels[t];
    }
  ASSERT_EQ(table.size(), 3600u);
  std::map<int, int> orders;
  for (int g = 0; g < 60; ++g) {
    int order = 1;
    for (int power = g; power != 0; ++order) power = table.at({power, g});
    ++orders[order];
  }
  EXPECT_EQ(orders, (std::map<int, int>{{1, 1}, {2, 3}, {3, 8}, {5, 4}, {10, 12}, {15, 32}}));

  // Four tokens per element: blanks after it, the label under the last of them.
  const Examples four = drawn("word-problem(tokens=4, length=5)", 50), plain = drawn("word-problem(length=5)", 50);
  ASSERT_EQ(four.time, 21);
  for (int i = 0; i < 50; ++i)
    for (int t = 0; t < 20; ++t) {
      const One s = sequence(four, i), p = sequence(plain, i);
      ASSERT_EQ(s.tokens[1 + t], t % 4 == 0 ? p.tokens[1 + t / 4] : 7);
      ASSERT_EQ(s.labels[1 + t], t % 4 == 3 ? p.labels[1 + t / 4] : -100);
    }
}

TEST(MoreTasks, PermutationTracking) {
  const Examples e = drawn("permutation-tracking(places=6, swaps=10, queries=4)", 400);
  ASSERT_EQ(e.time, 6 + 20 + 4);
  std::map<int, double> answers;
  for (int i = 0; i < 400; ++i) {
    const One s = sequence(e, i);
    std::vector<int> at(s.tokens, s.tokens + 6);
    ASSERT_EQ(std::set<int>(at.begin(), at.end()), (std::set<int>{6, 7, 8, 9, 10, 11}));
    for (int j = 0; j < 10; ++j) {
      const int a = s.tokens[6 + 2 * j], b = s.tokens[7 + 2 * j];
      ASSERT_TRUE(a != b && a < 6 && b < 6);
      std::swap(at[static_cast<std::size_t>(a)], at[static_cast<std::size_t>(b)]);
    }
    for (int t = 0; t < 26; ++t) ASSERT_LT(s.labels[t], 0);
    for (int t = 26; t < 30; ++t) {
      ASSERT_EQ(s.labels[t], at[static_cast<std::size_t>(s.tokens[t])]);
      ++answers[s.labels[t]];
    }
    ASSERT_EQ(std::set<int>(s.tokens + 26, s.tokens + 30).size(), 4u);
  }
  for (const auto& [object, count] : answers) expect_count(count, 400 * 4 / 6.0);
}

TEST(MoreTasks, FunctionsInContext) {
  const auto values = [](const std::string& function, const std::string& more = "") {
    return drawn("linear-regression(dim=8, points=30, function=" + function + more + ")", 300);
  };
  // The scales are such that the mean square of y is d, as for the linear function; a leaf of a tree is N(0, 1).
  for (const auto& [function, square] :
       std::map<std::string, double>{{"linear", 8}, {"quadratic", 8}, {"relu", 8}, {"tree", 1}, {"sparse", 3}}) {
    const Examples e = values(function);
    double sum = 0;
    for (std::size_t i = 0; i < e.targets.size(); ++i)
      if (e.counted[i]) sum += static_cast<double>(e.targets[i]) * static_cast<double>(e.targets[i]) / (300 * 30);
    EXPECT_NEAR(sum, square, 0.2 * square) << function;
  }
  // A tree of depth 2 has four leaves at most, and y depends on three coordinates' signs.
  const Examples tree = values("tree", ", depth=2");
  for (int i = 0; i < 300; ++i) {
    std::set<float> leaves;
    for (int p = 0; p < 30; ++p) leaves.insert(tree.targets[static_cast<std::size_t>(i * 60 + 2 * p)]);
    ASSERT_LE(leaves.size(), 4u);
  }
  const Examples sign = values("sign");
  double ones = 0;
  for (std::size_t i = 0; i < sign.labels.size(); i += 2) {
    ASSERT_TRUE(sign.labels[i] == 0 || sign.labels[i] == 1);
    ASSERT_EQ(sign.labels[i + 1], -100);
    ASSERT_EQ(sign.rows[(i + 1) * 8], sign.labels[i] ? 1.0f : -1.0f);
    ones += sign.labels[i];
  }
  EXPECT_NEAR(ones / (300 * 30), 0.5, 0.05);
}

TEST(MoreTasks, Curricula) {
  EXPECT_EQ(drawn("word-problem(curriculum=10, length=8)", 2, false, 0).time, 3);
  EXPECT_EQ(drawn("word-problem(curriculum=10, length=8)", 2, false, 39).time, 6);
  EXPECT_EQ(drawn("word-problem(curriculum=10, length=8)", 2, false, 1000).time, 9);
  EXPECT_EQ(drawn("word-problem(curriculum=10, length=8)", 2, true, 0).time, 65);
  EXPECT_EQ(drawn("word-problem(curriculum=10, length=8)", 2).time, 9);
  const std::string text = "linear-regression(curriculum=2000)";
  for (const std::int64_t step : {0, 1999, 2000, 30000, 100000}) {
    const Examples e = drawn(text, 2, false, step);
    EXPECT_EQ(e.time, 2 * std::min<std::int64_t>(41, 11 + 2 * (step / 2000)));
    std::size_t active = 0;
    for (std::size_t j = 0; j < 20; ++j) active += e.rows[j] != 0;
    EXPECT_EQ(active, static_cast<std::size_t>(std::min<std::int64_t>(20, 5 + step / 2000)));
  }
}

TEST(MoreTasks, RepeatedExamples) {
  std::set<std::vector<std::int32_t>> train, test;
  const auto task = make_task("parity(longest=30, test=40, examples=20)");
  ttr::model::Random random(3);
  Examples e;
  for (int i = 0; i < 400; ++i) {
    task->draw(random, 1, false, e);
    train.insert(e.tokens);
    task->draw(random, 1, true, e);
    test.insert(e.tokens);
  }
  EXPECT_EQ(train.size(), 20u);
  EXPECT_GT(test.size(), 300u);
  task->draw(random, 64, false, e);  // lengths differ: padded, without labels there
  EXPECT_EQ(e.tokens.size(), static_cast<std::size_t>(64 * e.time));
  int labels = 0;
  for (const std::int32_t label : e.labels) labels += label >= 0;
  EXPECT_EQ(labels, 64);
  const Examples rows = drawn("piecewise-regression(dim=2, length=5, examples=3)", 4);
  EXPECT_EQ(rows.targets.size(), 4u * 5 * 2);
}

TEST(MoreTasks, Scores) {
  Examples e;
  e.sequences = 3, e.time = 4;
  e.labels = {1, 1, 2, -100, 1, -100, -100, -100, 3, 3, 3, 3};
  const std::vector<std::int32_t> predicted = {1, 2, 2, 9, 1, 9, 9, 9, 3, 4, 3, 3};
  Score score;
  score.add(e, predicted);
  EXPECT_DOUBLE_EQ(score.tokens(), 6.0 / 8);
  EXPECT_DOUBLE_EQ(score.examples(), (2.0 / 3 + 1 + 3.0 / 4) / 3);
  EXPECT_DOUBLE_EQ(score.sequences(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(score.classes(), (2.0 / 3 + 1 + 3.0 / 4 + 0) / 4);  // class 4 is predicted and never right
  EXPECT_DOUBLE_EQ(score.named("classes"), score.classes());
  EXPECT_THROW(score.named("vowels"), ttr::Error);
}

TEST(MoreTasks, Symbols) {
  EXPECT_EQ(make_task("modular")->symbol(3), "*");
  EXPECT_EQ(make_task("modular-brackets")->symbol(8), "(");
  EXPECT_EQ(make_task("word-problem")->symbol(5), "321");
  EXPECT_EQ(make_task("word-problem")->symbol(6), "bos");
  EXPECT_EQ(make_task("mad-copy")->symbol(15), "copy");
  for (const TaskInfo& info : tasks()) {
    EXPECT_FALSE(info.explanation.empty()) << info.name;
    for (const TaskSettingInfo& one : info.table) EXPECT_FALSE(one.meaning.empty()) << info.name << ", " << one.name;
  }
}

}  // namespace
