// Associative recall.
//
// mqar: P keys of 1 .. V/2-1, P values of V/2 .. V-1, all distinct; k1 v1 .. kP vP, then every key once more, at position
// 2P + 2 slot, where the slots of the (T - 2P)/2 are drawn without replacement with weights  power (s+1)^(power-1). The
// label under the query is its value; the value itself is never written there. Other positions are 0, or random ids.
// mqar-forgetting: after the P pairs come U of the keys once more with another value, which is the one that counts. Of the
// published code (HazyResearch/zoology) one thing is mended: there the new value differs from that of another key.
// recall: P cues and P responses; T/2 - 1 pairs drawn with repeats, then a cue that was seen, whose response is the label.
#include <algorithm>
#include <cmath>

#include "tasks/task.h"

namespace ttr::model {
namespace {

struct Segment {
  int time, pairs, share;
};

class Mqar : public Task {
 public:
  std::vector<Segment> train, judge;
  int updates = 0;
  bool random_filler = false;
  double power = 0.01;

  std::string symbol(std::int32_t token) const override {
    return (token == 0 ? "" : token < vocabulary / 2 ? "k" : "v") + std::to_string(token);
  }
  // Lengths, sizes of the vocabulary and names that follow from the segments.
  void check(const TaskSettings& settings) {
    for (const bool test : {false, true})
      for (const Segment& one : test ? judge : train) {
        const int least = 4 * one.pairs + 2 * updates;
        if (one.time % 2 != 0 || least > one.time)
          settings.fail("time", "is " + std::to_string(one.time) + " with " + std::to_string(one.pairs) +
                                    " pairs; it is even and at least four times the pairs" +
                                    (updates ? " and twice the updates, " + std::to_string(least) : ""));
        if (one.pairs > vocabulary / 2 - 1)
          settings.fail("vocabulary", "is " + std::to_string(vocabulary) + "; " + std::to_string(one.pairs) +
                                          " pairs need " + std::to_string(2 * one.pairs + 2) + " at least");
        if (updates > one.pairs)
          settings.fail("updates",
                        "is " + std::to_string(updates) + "; it is at most the pairs, " + std::to_string(one.pairs));
        int& longest = test ? test_time : time;
        longest = std::max(longest, one.time);
      }
    metric = "examples", recall = true;
    int all = 0;
    for (const Segment& one : judge) all += one.share, guess += static_cast<double>(one.share) / one.pairs;
    guess /= all;
  }

 private:
  void make(Random& random, int sequences, bool test, std::int64_t, Examples& out) const override {
    const std::vector<Segment>& list = test ? judge : train;
    int all = 0;
    for (const Segment& one : list) all += one.share;
    auto at = static_cast<int>(random.below(static_cast<std::uint64_t>(all)));
    std::size_t which = 0;
    while (at >= list[which].share) at -= list[which++].share;
    begin(out, sequences, list[which].time, 0);
    for (int i = 0; i < sequences; ++i) one(random, list[which], out, static_cast<std::size_t>(i * list[which].time));
  }
  void one(Random& random, const Segment& segment, Examples& out, std::size_t first) const {
    const int P = segment.pairs, context = 2 * (P + updates), slots = (segment.time - context) / 2;
    const std::vector<std::int32_t> keys = distinct(random, 1, vocabulary / 2, P);
    std::vector<std::int32_t> values = distinct(random, vocabulary / 2, vocabulary, P);
    std::size_t to = first;
    const auto pair = [&](std::size_t j) { out.tokens[to] = keys[j], out.tokens[to + 1] = values[j], to += 2; };
    for (std::size_t j = 0; j < keys.size(); ++j) pair(j);
    for (const std::int32_t j : distinct(random, 0, P, updates)) {
      std::int32_t& value = values[static_cast<std::size_t>(j)];
      const int other = between(random, vocabulary / 2, vocabulary - 2);
      value = other + (other >= value ? 1 : 0);
      pair(static_cast<std::size_t>(j));
    }
    // Draws one after another without replacement are the order of exponential times with these rates.
    std::vector<std::pair<double, int>> times;
    for (int s = 0; s < slots; ++s) times.emplace_back(-std::log(random.uniform()) / std::pow(s + 1.0, power - 1), s);
    std::partial_sort(times.begin(), times.begin() + P, times.end());
    std::vector<bool> used(static_cast<std::size_t>(segment.time));
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const auto position = static_cast<std::size_t>(context + 2 * times[j].second);
      out.tokens[first + position] = keys[j], out.labels[first + position] = values[j];
      used[position] = true;
    }
    if (!random_filler) return;
    for (auto t = static_cast<std::size_t>(context); t < used.size(); ++t)
      if (!used[t]) out.tokens[first + t] = between(random, 0, vocabulary - 1);
  }
};

class Recall : public Task {
 public:
  int pairs = 0;
  bool seen_too = false;
  std::string symbol(std::int32_t token) const override {
    return (token < vocabulary / 2 ? "c" : "r") + std::to_string(token % (vocabulary / 2));
  }

 private:
  void make(Random& random, int sequences, bool, std::int64_t, Examples& out) const override {
    begin(out, sequences, time, 0);
    const int context = (time - 1) / 2;
    for (int i = 0; i < sequences; ++i) {
      const std::vector<std::int32_t> cues = distinct(random, 0, vocabulary / 2, pairs);
      const std::vector<std::int32_t> responses = distinct(random, vocabulary / 2, vocabulary, pairs);
      const auto first = static_cast<std::size_t>(i * time);
      std::vector<std::uint64_t> seen;
      for (int j = 0; j < context; ++j) {
        const std::uint64_t now = random.below(static_cast<std::uint64_t>(pairs));
        const std::size_t at = first + static_cast<std::size_t>(2 * j);
        out.tokens[at] = cues[now], out.tokens[at + 1] = responses[now];
        if (seen_too && std::find(seen.begin(), seen.end(), now) != seen.end()) out.labels[at] = responses[now];
        seen.push_back(now);
      }
      const std::uint64_t asked = seen[random.below(seen.size())];
      const std::size_t last = first + static_cast<std::size_t>(2 * context);
      out.tokens[last] = cues[asked], out.labels[last] = responses[asked];
    }
  }
};

std::unique_ptr<Mqar> mqar_of_one_length(const TaskSettings& settings) {
  auto task = std::make_unique<Mqar>();
  task->vocabulary = settings.number("vocabulary", 4);
  const int length = settings.number("time", 4), pairs = settings.number("pairs", 1);
  task->train = task->judge = {{length, pairs, 1}};
  task->random_filler = settings.word("filler", {"zero", "random"}) == "random";
  task->power = settings.real("power", 1e-6, 10);
  return task;
}

std::unique_ptr<Task> make_mqar(const TaskSettings& settings) {
  auto task = mqar_of_one_length(settings);
  task->check(settings);
  return task;
}

std::unique_ptr<Task> make_forgetting(const TaskSettings& settings) {
  auto task = mqar_of_one_length(settings);
  task->updates = settings.number("updates", 0);
  task->check(settings);
  return task;
}

std::unique_ptr<Task> make_based(const TaskSettings& settings) {
  auto task = std::make_unique<Mqar>();
  task->vocabulary = settings.number("vocabulary", 4);
  task->train = {{64, 4, 100}, {128, 8, 20}, {256, 16, 20}, {256, 32, 20}, {256, 64, 20}};
  task->judge = {{64, 4, 1}, {64, 8, 1}, {64, 16, 1}, {128, 32, 1}, {256, 64, 1}, {512, 128, 1}, {1024, 256, 1}};
  const int longest = settings.number("longest", 64);
  for (auto* list : {&task->train, &task->judge})
    list->erase(std::remove_if(list->begin(), list->end(), [&](const Segment& s) { return s.time > longest; }),
                list->end());
  task->random_filler = true;
  task->check(settings);
  return task;
}

std::unique_ptr<Task> make_recall(const TaskSettings& settings) {
  auto task = std::make_unique<Recall>();
  task->vocabulary = settings.number("vocabulary", 4);
  task->time = task->test_time = settings.number("time", 3);
  task->pairs = settings.number("pairs", 1);
  task->seen_too = settings.word("labels", {"last", "seen"}) == "seen";
  task->recall = true, task->guess = 1.0 / task->pairs;
  if (task->time % 2 == 0)
    settings.fail("time", "is " + std::to_string(task->time) + "; it is odd: pairs and one cue");
  if (task->pairs > task->vocabulary / 2)
    settings.fail("vocabulary", "is " + std::to_string(task->vocabulary) + "; " + std::to_string(task->pairs) +
                                    " pairs need " + std::to_string(2 * task->pairs) + " at least");
  return task;
}

}  // namespace

std::vector<TaskEntry> recall_tasks() {
  const std::vector<TaskSettingInfo> one_length = {
      {"vocabulary", "8192", "ids: 0 is filler, then keys, then values"},
      {"time", "64", "tokens of a sequence, even and at least four times the pairs"},
      {"pairs", "4", "keys, each with its value"},
      {"filler", "zero", "what stands where nothing is asked: zero or random"},
      {"power", "0.01", "slot s of the queries has the weight (s+1)^(power-1)"}};
  std::vector<TaskSettingInfo> forgetting = one_length;
  forgetting[1].otherwise = "128", forgetting[2].otherwise = "8", forgetting[3].otherwise = "random";
  forgetting.insert(forgetting.begin() + 3, {"updates", "4", "keys that get a second value"});
  return {
      {"mqar", "multi-query associative recall (Arora et al. 2023, arXiv 2312.04927)", one_length,
       "P keys, each followed by its value, then every key once more somewhere later. The label under that second\n"
       "occurrence is the value; the answer is never written. Queries come sooner rather than later: slot s of the\n"
       "(T - 2P)/2 has the weight (s+1)^(power-1). Figure 2 of the paper: (time, pairs) = (64, 4), (128, 8), (256, "
       "16)\n"
       "and (512, 64), two layers, zero filler. The accuracy is the mean over sequences.",
       make_mqar},
      {"mqar-based",
       "MQAR at several lengths, trained on five and tested on seven (Arora et al. 2024, arXiv 2402.18668)",
       {{"vocabulary", "8192", "ids: 0 is filler, then keys, then values"},
        {"longest", "1024", "leave out lengths above this one"}},
       "As mqar with random filler. Training: 64 tokens and 4 pairs (100 of 180 batches), 128 and 8, 256 and 16, 32 "
       "or\n"
       "64 (20 each). Test: 64 tokens and 4, 8 or 16 pairs, 128 and 32, 256 and 64, 512 and 128, 1024 and 256, "
       "equally\n"
       "often. A batch has one length.",
       make_based},
      {"mqar-forgetting", "MQAR where some keys get a second value, which counts (HazyResearch/zoology)", forgetting,
       "As mqar, but after the pairs some of the keys come again with another value. The label is the value that "
       "was\n"
       "written last: a memory that only adds has both.",
       make_forgetting},
      {"recall",
       "pairs of a context with repeats, then one cue (Wang et al. 2025, arXiv 2501.12352, Figure 3)",
       {{"vocabulary", "512", "cues are the first half, responses the second"},
        {"time", "257", "tokens of a sequence, odd: pairs and one cue"},
        {"pairs", "64", "distinct pairs of which the context is drawn"},
        {"labels", "last", "what is asked: the last cue, or every cue that was seen before (seen)"}},
       "P cues, each with one response. The context has (T - 1)/2 pairs drawn with repeats; then comes a cue that "
       "was\n"
       "seen, and its response is the label. With labels=seen every repeated cue of the context has its label too.",
       make_recall},
  };
}

}  // namespace ttr::model
