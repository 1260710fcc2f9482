// The generators of tasks: what every example must satisfy, worked out again from its tokens, and the statistics of many.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "error_of.h"
#include "ttr/tasks.h"

namespace {

using namespace ttr::model;

Examples drawn(const std::string& text, int sequences, bool test = false, std::uint64_t seed = 1) {
  Examples e;
  ttr::model::Random random(seed);
  make_task(text)->draw(random, sequences, test, e);
  return e;
}

TEST(Tasks, RecallOfManyKeys) {
  const int T = 40, P = 4, V = 64, N = 4000, slots = (T - 2 * P) / 2;
  const Examples e = drawn("mqar(vocabulary=64, time=40, pairs=4, power=0.5)", N);
  ASSERT_EQ(e.time, T);
  std::vector<double> where(static_cast<std::size_t>(slots)), first_key(static_cast<std::size_t>(slots));
  std::vector<int> key_count(static_cast<std::size_t>(V));
  for (int i = 0; i < N; ++i) {
    const std::int32_t *x = e.tokens.data() + i * T, *y = e.labels.data() + i * T;
    std::map<int, int> pairs;
    std::set<int> values;
    for (int j = 0; j < P; ++j) {
      ASSERT_TRUE(x[2 * j] >= 1 && x[2 * j] < V / 2 && x[2 * j + 1] >= V / 2 && x[2 * j + 1] < V);
      pairs[x[2 * j]] = x[2 * j + 1], values.insert(x[2 * j + 1]);
      ++key_count[static_cast<std::size_t>(x[2 * j])];
      ASSERT_TRUE(y[2 * j] < 0 && y[2 * j + 1] < 0);
    }
    ASSERT_EQ(pairs.size(), 4u);
    ASSERT_EQ(values.size(), 4u);
    std::set<int> asked;
    for (int t = 2 * P; t < T; ++t) {
      if (x[t] == 0) {
        ASSERT_LT(y[t], 0);
        continue;
      }
      ASSERT_EQ(t % 2, 0);
      ASSERT_EQ(y[t], pairs.at(x[t]));
      asked.insert(x[t]);
      where[static_cast<std::size_t>((t - 2 * P) / 2)] += 1.0 / N;
      if (x[t] == x[0]) first_key[static_cast<std::size_t>((t - 2 * P) / 2)] += 1.0 / N;
    }
    ASSERT_EQ(asked.size(), 4u);
  }
  // The first key's slot has probability w_s / sum w, w_s = (s+1)^-0.5: the first of the draws.
  double all = 0;
  for (int s = 0; s < slots; ++s) all += 1 / std::sqrt(s + 1.0);
  for (int s = 0; s < slots; ++s) {
    const double p = 1 / std::sqrt(s + 1.0) / all;
    EXPECT_NEAR(first_key[static_cast<std::size_t>(s)], p, 5 * std::sqrt(p / N)) << s;
    EXPECT_LE(where[static_cast<std::size_t>(s)], 1);
  }
  for (int k = 1; k < V / 2; ++k)
    EXPECT_NEAR(key_count[static_cast<std::size_t>(k)], N * 4.0 / 31, 5 * std::sqrt(N * 4.0 / 31));

  // Random filler: about one in V of the free places is 0.
  const Examples r = drawn("mqar(vocabulary=64, time=40, pairs=4, filler=random)", N);
  double zeros = 0;
  for (const std::int32_t x : r.tokens) zeros += x == 0;
  EXPECT_NEAR(zeros, N * (T - 3 * P) / 64.0, 5 * std::sqrt(N * 28 / 64.0));
}

TEST(Tasks, RecallAtSeveralLengths) {
  const auto task = make_task("mqar-based(vocabulary=2048)");
  EXPECT_EQ(task->time, 256);
  EXPECT_EQ(task->test_time, 1024);
  ttr::model::Random random(2);
  std::map<std::pair<int, int>, int> train, test;
  Examples e;
  for (int i = 0; i < 2000; ++i)
    for (const bool judged : {false, true}) {
      if (judged && i >= 300) continue;
      task->draw(random, 1, judged, e);
      int labels = 0;
      for (const std::int32_t y : e.labels) labels += y >= 0;
      ++(judged ? test : train)[{e.time, labels}];
    }
  EXPECT_EQ(train.size(), 5u);
  EXPECT_NEAR((train[{64, 4}]), 2000 * 100.0 / 180, 110);
  EXPECT_NEAR((train[{256, 64}]), 2000 * 20.0 / 180, 70);
  EXPECT_EQ(test.size(), 7u);
  EXPECT_GT((test[{1024, 256}]), 20);
}

TEST(Tasks, RecallWithRepeats) {
  const Examples e = drawn("recall(vocabulary=40, time=31, pairs=10)", 500);
  for (int i = 0; i < 500; ++i) {
    std::map<int, int> pairs;
    for (int t = 0; t < 30; t += 2) {
      const int cue = e.tokens[static_cast<std::size_t>(i * 31 + t)],
                response = e.tokens[static_cast<std::size_t>(i * 31 + t + 1)];
      ASSERT_TRUE(cue < 20 && response >= 20);
      const auto [found, fresh] = pairs.emplace(cue, response);
      ASSERT_EQ(found->second, response) << fresh;
      ASSERT_LT(e.labels[static_cast<std::size_t>(i * 31 + t)], 0);
    }
    ASSERT_LE(pairs.size(), 10u);
    ASSERT_EQ(e.labels[static_cast<std::size_t>(i * 31 + 30)],
              pairs.at(e.tokens[static_cast<std::size_t>(i * 31 + 30)]));
  }
}

TEST(Tasks, Parity) {
  for (const bool test : {false, true}) {
    const Examples e = drawn("parity(longest=12, test=30)", 2000, test);
    std::map<int, int> lengths;
    int odd = 0;
    for (int i = 0; i < 2000; ++i) {
      int twos = 0, length = 0, labels = 0;
      for (int t = 0; t < e.time; ++t) {
        const auto at = static_cast<std::size_t>(i * e.time + t);
        if (e.tokens[at] != 0) length = t + 1, twos += e.tokens[at] == 2;
        if (e.labels[at] < 0) continue;
        ++labels;
        ASSERT_EQ(e.labels[at], 1 + twos % 2);
      }
      ASSERT_EQ(labels, 1);
      ASSERT_GE(e.labels[static_cast<std::size_t>(i * e.time + length - 1)], 0);
      ++lengths[length + 1];
      odd += twos % 2;
    }
    EXPECT_EQ(lengths.begin()->first, test ? 12 : 3);
    EXPECT_EQ(lengths.rbegin()->first, test ? 30 : 12);
    for (const auto& [n, count] : lengths)
      EXPECT_NEAR(count, 2000.0 / (test ? 19 : 10), 5 * std::sqrt(2000.0 / 10)) << n;
    EXPECT_NEAR(odd, 1000, 120);
  }
  const Examples all = drawn("parity(longest=12, test=30, labels=all)", 10);
  for (std::size_t i = 0; i < all.tokens.size(); ++i) EXPECT_EQ(all.labels[i] >= 0, all.tokens[i] != 0);
}

// A second evaluation, by the grammar: sum of products of atoms.
struct Parser {
  const std::int32_t* at;
  bool brackets;
  bool is(int plain, int bracketed) { return *at == (brackets ? bracketed : plain); }
  int atom() {
    if (brackets && *at == 6) return ++at, -atom();
    if (brackets && *at == 8) {
      ++at;
      const int x = sum();
      EXPECT_EQ(*at++, 9);
      return x;
    }
    const int digit = *at++ - (brackets ? 0 : 5);
    EXPECT_TRUE(digit >= 0 && digit <= 4);
    return digit;
  }
  int product() {
    int x = atom();
    while (is(3, 7)) ++at, x = x * atom() % 5;
    return x;
  }
  int sum() {
    int x = product();
    for (;;) {
      if (is(1, 5)) ++at, x += product();
      else if (is(2, 6)) ++at, x -= product();
      else return x;
    }
  }
};

TEST(Tasks, ModularArithmetic) {
  for (const bool brackets : {false, true}) {
    const Examples e =
        drawn(brackets ? "modular-brackets(longest=20, test=40)" : "modular(longest=19, test=39)", 1500);
    std::map<int, int> answers, lengths;
    for (int i = 0; i < 1500; ++i) {
      Parser parser{e.tokens.data() + i * e.time, brackets};
      const int value = ((parser.sum() % 5) + 5) % 5;
      const auto position = static_cast<int>(parser.at - (e.tokens.data() + i * e.time));
      ASSERT_EQ(*parser.at, brackets ? 10 : 4);
      for (int t = 0; t < e.time; ++t)
        ASSERT_EQ(e.labels[static_cast<std::size_t>(i * e.time + t)],
                  t == position ? value + (brackets ? 0 : 5) : -100);
      ++answers[value], ++lengths[position + 2];
    }
    EXPECT_EQ(answers.size(), 5u);
    EXPECT_EQ(lengths.begin()->first, brackets ? 4 : 3);
    EXPECT_EQ(lengths.rbegin()->first, brackets ? 19 : 19);
    for (const auto& [n, count] : lengths) {
      if (!brackets) {
        EXPECT_EQ(n % 2, 1) << count;
      }
    }
  }
}

TEST(Tasks, WordProblems) {
  const struct {
    const char* group;
    int size;
  } groups[] = {{"S3", 6}, {"S4", 24}, {"A5", 60}, {"S5", 120}, {"Z60", 60}};
  for (const auto& [group, size] : groups) {
    const std::string text = std::string("word-problem(group=") + group + ", length=40, test=60)";
    const auto task = make_task(text);
    EXPECT_EQ(task->vocabulary, size + 1);
    const Examples e = drawn(text, 400);
    ASSERT_EQ(e.time, 41);
    // The table as the examples show it: a product follows from the one before and the token.
    std::map<std::pair<int, int>, int> table;
    std::vector<int> labels(static_cast<std::size_t>(size));
    for (int i = 0; i < 400; ++i) {
      const auto first = static_cast<std::size_t>(i * 41);
      ASSERT_EQ(e.tokens[first], size);
      ASSERT_EQ(e.labels[first], size);
      ASSERT_EQ(e.tokens[first + 1], e.labels[first + 1]);
      for (std::size_t t = 2; t < 41; ++t) {
        const auto [found, fresh] =
            table.emplace(std::pair{e.labels[first + t - 1], e.tokens[first + t]}, e.labels[first + t]);
        ASSERT_EQ(found->second, e.labels[first + t]) << fresh;
        ++labels[static_cast<std::size_t>(e.labels[first + t])];
      }
    }
    for (const auto& [key, value] : table) {  // the identity is 0, rows and columns have no number twice
      if (key.second == 0) {
        ASSERT_EQ(value, key.first);
      }
      if (key.first == 0) {
        ASSERT_EQ(value, key.second);
      }
    }
    int associative = 0, commuting = 0, compared = 0;
    for (const auto& [ab, product] : table)
      for (int c = 0; c < size; c += 7) {
        const auto bc = table.find({ab.second, c}), left = table.find({product, c});
        if (bc == table.end() || left == table.end()) continue;
        const auto right = table.find({ab.first, bc->second});
        if (right == table.end()) continue;
        ASSERT_EQ(left->second, right->second) << group;
        ++associative;
        const auto ba = table.find({ab.second, ab.first});
        if (ba != table.end()) ++compared, commuting += ba->second == product;
      }
    EXPECT_GT(associative, 30) << group;
    EXPECT_EQ(commuting == compared, std::string(group) == "Z60");
    for (const int count : labels) EXPECT_NEAR(count, 400.0 * 39 / size, 6 * std::sqrt(400.0 * 39 / size)) << group;
  }
  EXPECT_EQ(drawn("word-problem(bos=no, length=5)", 2).time, 5);
  EXPECT_EQ(drawn("word-problem(length=5, test=9)", 2, true).time, 10);
}

TEST(Tasks, Regression) {
  const int d = 3, points = 8;
  const Examples e = drawn("linear-regression(dim=3, points=8)", 200);
  double energy = 0;
  for (int i = 0; i < 200; ++i) {
    // w from the first three points, then the others follow.
    double A[3][4];
    const auto row = [&](int p) { return e.rows.data() + (i * 2 * points + 2 * p) * d; };
    for (int p = 0; p < points; ++p) {
      const auto at = static_cast<std::size_t>(i * 2 * points + 2 * p);
      ASSERT_EQ(e.counted[at], 1);
      ASSERT_EQ(e.counted[at + 1], 0);
      ASSERT_EQ(e.rows[(at + 1) * 3], e.targets[at]);
      ASSERT_EQ(e.rows[(at + 1) * 3 + 1], 0);
      energy += static_cast<double>(e.targets[at]) * static_cast<double>(e.targets[at]) / (200 * points);
    }
    for (int p = 0; p < 3; ++p) {
      for (int j = 0; j < 3; ++j) A[p][j] = static_cast<double>(row(p)[j]);
      A[p][3] = static_cast<double>(e.targets[static_cast<std::size_t>(i * 2 * points + 2 * p)]);
    }
    double w[3], det[4];
    for (int c = -1; c < 3; ++c) {  // Cramer's rule
      double M[3][3];
      for (int p = 0; p < 3; ++p)
        for (int j = 0; j < 3; ++j) M[p][j] = j == c ? A[p][3] : A[p][j];
      det[c + 1] = M[0][0] * (M[1][1] * M[2][2] - M[1][2] * M[2][1]) -
                   M[0][1] * (M[1][0] * M[2][2] - M[1][2] * M[2][0]) +
                   M[0][2] * (M[1][0] * M[2][1] - M[1][1] * M[2][0]);
    }
    if (std::abs(det[0]) < 0.05) continue;
    for (int j = 0; j < 3; ++j) w[j] = det[j + 1] / det[0];
    for (int p = 3; p < points; ++p) {
      double y = 0;
      for (int j = 0; j < 3; ++j) y += w[j] * static_cast<double>(row(p)[j]);
      ASSERT_NEAR(y, static_cast<double>(e.targets[static_cast<std::size_t>(i * 2 * points + 2 * p)]), 1e-3);
    }
  }
  EXPECT_NEAR(energy, 3, 0.6);

  const Examples s = drawn("piecewise-regression(dim=4, length=24, segment=8, noise=0)", 50);
  double norms = 0;
  for (int i = 0; i < 50; ++i)
    for (int t = 0; t < 24; ++t) {
      const float* const token = s.rows.data() + (i * 24 + t) * 12;
      double norm = 0;
      for (int j = 0; j < 4; ++j) {
        norm += static_cast<double>(token[j]) * static_cast<double>(token[j]);
        if (t == 23) continue;
        ASSERT_EQ(token[8 + j], token[12 + j]);  // the query is the next key, the target the next value
        ASSERT_EQ(s.targets[static_cast<std::size_t>((i * 24 + t) * 4 + j)], token[12 + 4 + j]);
      }
      norms += norm / (50 * 24);
    }
  EXPECT_NEAR(norms, 4 * (1 + 2.25), 1.5);
}

TEST(Tasks, TextOfAFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("ttr-text-" + std::to_string(::getpid()))).string();
  {
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < 1000; ++i) out.put(static_cast<char>(i < 900 ? i % 7 : 100 + i % 7));
  }
  const Examples train = drawn("text(file=" + path + ", time=20)", 30),
                 test = drawn("text(file=" + path + ", time=20)", 30, true);
  for (std::size_t i = 0; i < train.tokens.size(); ++i) {
    ASSERT_LT(train.tokens[i], 7);
    ASSERT_EQ(train.labels[i], (train.tokens[i] + 1) % 7);
    ASSERT_GE(test.tokens[i], 100);
  }
  EXPECT_NE(error_of([&] { make_task("text(file=" + path + ", time=300)"); }).find("1000 bytes"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(error_of([&] { make_task("text(file=" + path + ")"); }).find("cannot be read"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("text"); }).find("not given"), std::string::npos);
}

TEST(Tasks, SeedsAndErrors) {
  for (const TaskInfo& info : tasks()) {
    if (info.name == "text") continue;
    const Examples a = drawn(info.name, 3), b = drawn(info.name, 3), c = drawn(info.name, 3, false, 2);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.rows, b.rows);
    EXPECT_TRUE(a.tokens != c.tokens || a.rows != c.rows) << info.name;
    Config config;
    make_task(info.name)->apply(config);
    config.stack = "linear-attention", config.width = 4, config.mlp = "none";
    EXPECT_EQ(error_of([&] { Model<float> model(config); }), "") << info.name;
  }
  EXPECT_NE(error_of([] { make_task("chess"); }).find("mqar, mqar-based"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("parity(colour=red)"); }).find("it has longest, test, labels"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_task("mqar(time=64, pairs=17)"); }).find("four times"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("mqar(vocabulary=8)"); }).find("10 at least"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("modular(longest=20)"); }).find("odd"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("word-problem(group=M11)"); }).find("S3, S4"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("word-problem(group=S7)"); }).find("S2 .. S6"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("word-problem(group=S6xZ2)"); }).find("720"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("word-problem(group=A3xx)"); }).find("A3xx"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("word-problem(group=Z60, moves=swaps)"); }).find("moves so few"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_task("mqar-forgetting(updates=9)"); }).find("at most the pairs, 8"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_task("linear-regression(function=sparse, dim=2)"); }).find("at most dim, 2"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_task("mad-recall(time=13)"); }).find("even"), std::string::npos);
  EXPECT_NE(error_of([] { make_task("parity, parity"); }).find("2 tasks"), std::string::npos);
}

}  // namespace
