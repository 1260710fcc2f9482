// Associative recall.
//
// mqar: P keys of 1 .. V/2-1, P values of V/2 .. V-1, all distinct; k1 v1 .. kP vP, then every key once more, at position
// 2P + 2 slot, where the slots of the (T - 2P)/2 are drawn without replacement with weights  power (s+1)^(power-1). The
// label under the query is its value; the value itself is never written there. Other positions are 0, or random ids.
// recall: P cues and P responses; T/2 - 1 pairs drawn with repeats, then a cue that was seen, whose response is the label.
#include <algorithm>
#include <cmath>

#include "tasks/task.h"

namespace ttr::model {
namespace {

// `count` distinct numbers of low .. high-1 in random order; count is at most half of them, so that few draws repeat.
std::vector<std::int32_t> distinct(Random& random, int low, int high, int count) {
  std::vector<std::int32_t> numbers;
  std::vector<bool> taken(static_cast<std::size_t>(high - low));
  while (static_cast<int>(numbers.size()) < count) {
    const auto x = random.below(static_cast<std::uint64_t>(high - low));
    if (taken[x]) continue;
    taken[x] = true;
    numbers.push_back(low + static_cast<std::int32_t>(x));
  }
  return numbers;
}

struct Segment {
  int time, pairs, share;
};

class Mqar : public Task {
 public:
  std::vector<Segment> train, judge;
  bool random_filler = false;
  double power = 0.01;

  void draw(Random& random, int sequences, bool test, Examples& out) const override {
    const std::vector<Segment>& list = test ? judge : train;
    int all = 0;
    for (const Segment& one : list) all += one.share;
    auto at = static_cast<int>(random.below(static_cast<std::uint64_t>(all)));
    std::size_t which = 0;
    while (at >= list[which].share) at -= list[which++].share;
    begin(out, sequences, list[which].time, 0);
    for (int i = 0; i < sequences; ++i) one(random, list[which], out, static_cast<std::size_t>(i * list[which].time));
  }

 private:
  void one(Random& random, const Segment& segment, Examples& out, std::size_t first) const {
    const int P = segment.pairs, slots = (segment.time - 2 * P) / 2;
    const std::vector<std::int32_t> keys = distinct(random, 1, vocabulary / 2, P);
    const std::vector<std::int32_t> values = distinct(random, vocabulary / 2, vocabulary, P);
    std::vector<bool> used(static_cast<std::size_t>(segment.time));
    for (int j = 0; j < P; ++j) {
      const std::size_t to = first + static_cast<std::size_t>(2 * j);
      out.tokens[to] = keys[static_cast<std::size_t>(j)], out.tokens[to + 1] = values[static_cast<std::size_t>(j)];
    }
    // Draws one after another without replacement are the order of exponential times with these rates.
    std::vector<std::pair<double, int>> times;
    for (int s = 0; s < slots; ++s) times.emplace_back(-std::log(random.uniform()) / std::pow(s + 1.0, power - 1), s);
    std::partial_sort(times.begin(), times.begin() + P, times.end());
    for (int j = 0; j < P; ++j) {
      const auto position = static_cast<std::size_t>(2 * P + 2 * times[static_cast<std::size_t>(j)].second);
      out.tokens[first + position] = keys[static_cast<std::size_t>(j)];
      out.labels[first + position] = values[static_cast<std::size_t>(j)];
      used[position] = true;
    }
    if (!random_filler) return;
    for (std::size_t t = static_cast<std::size_t>(2 * P); t < used.size(); ++t)
      if (!used[t])
        out.tokens[first + t] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary)));
  }
};

class Recall : public Task {
 public:
  int pairs = 0;
  void draw(Random& random, int sequences, bool, Examples& out) const override {
    begin(out, sequences, time, 0);
    const int context = (time - 1) / 2;
    for (int i = 0; i < sequences; ++i) {
      const std::vector<std::int32_t> cues = distinct(random, 0, vocabulary / 2, pairs);
      const std::vector<std::int32_t> responses = distinct(random, vocabulary / 2, vocabulary, pairs);
      const auto first = static_cast<std::size_t>(i * time);
      std::vector<std::uint64_t> seen;
      for (int j = 0; j < context; ++j) {
        seen.push_back(random.below(static_cast<std::uint64_t>(pairs)));
        out.tokens[first + static_cast<std::size_t>(2 * j)] = cues[seen.back()];
        out.tokens[first + static_cast<std::size_t>(2 * j) + 1] = responses[seen.back()];
      }
      const std::uint64_t asked = seen[random.below(seen.size())];
      const std::size_t last = first + static_cast<std::size_t>(2 * context);
      out.tokens[last] = cues[asked], out.labels[last] = responses[asked];
    }
  }
};

}  // namespace

std::unique_ptr<Task> make_mqar(TaskSettings& settings, bool based) {
  auto task = std::make_unique<Mqar>();
  task->vocabulary = settings.number("vocabulary", 8192, 4);
  if (based) {
    task->train = {{64, 4, 100}, {128, 8, 20}, {256, 16, 20}, {256, 32, 20}, {256, 64, 20}};
    task->judge = {{64, 4, 1}, {64, 8, 1}, {64, 16, 1}, {128, 32, 1}, {256, 64, 1}, {512, 128, 1}, {1024, 256, 1}};
    task->random_filler = true;
  } else {
    const int length = settings.number("time", 64, 4), pairs = settings.number("pairs", 4, 1);
    if (length % 2 != 0 || 4 * pairs > length)
      settings.fail("time", "is " + std::to_string(length) + " with " + std::to_string(pairs) +
                                " pairs; it is even and at least four times the pairs");
    task->train = task->judge = {{length, pairs, 1}};
    task->random_filler = settings.word("filler", "zero", {"zero", "random"}) == "random";
    task->power = settings.real("power", 0.01, 1e-6, 10);
  }
  for (const auto* list : {&task->train, &task->judge})
    for (const Segment& one : *list) {
      (list == &task->train ? task->time : task->test_time) =
          std::max(list == &task->train ? task->time : task->test_time, one.time);
      if (2 * one.pairs > task->vocabulary / 2 - 1)
        settings.fail("vocabulary", "is " + std::to_string(task->vocabulary) + "; " + std::to_string(one.pairs) +
                                        " pairs need " + std::to_string(4 * one.pairs + 2) + " at least");
    }
  return task;
}

std::unique_ptr<Task> make_recall(TaskSettings& settings) {
  auto task = std::make_unique<Recall>();
  task->vocabulary = settings.number("vocabulary", 512, 4);
  task->time = task->test_time = settings.number("time", 257, 3);
  task->pairs = settings.number("pairs", 64, 1);
  if (task->time % 2 == 0)
    settings.fail("time", "is " + std::to_string(task->time) + "; it is odd: pairs and one cue");
  if (2 * task->pairs > task->vocabulary / 2)
    settings.fail("vocabulary", "is " + std::to_string(task->vocabulary) + "; " + std::to_string(task->pairs) +
                                    " pairs need " + std::to_string(4 * task->pairs) + " at least");
  return task;
}

}  // namespace ttr::model
