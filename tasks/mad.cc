// The six tasks of MAD (Poli et al. 2024, arXiv 2403.17844), as its generators make them (athms/mad-lab).
//
// mad-recall         T/2 - 1 pairs of a key of 0 .. n/2-1 and its value of n/2 .. n-1, given when the key is first seen, then a
//                    pair that was seen. Training: the next token everywhere. Test: values of keys seen before.
// mad-noisy-recall   the last `noise_vocabulary` ids are noise: a pair is two of them with probability `noise`. One pair,
//                    chosen beforehand, is never noise.
// mad-fuzzy-recall   keys and values are tuples of 1 to `motif` distinct tokens; the keys of the test have `motif`. The pair
//                    that is asked for at the end stands somewhere before. Padded on the left with the last id.
// mad-copy           `symbols` tokens with blanks before them at random, a copy token, then as many blanks, whose labels are
//                    the tokens in order.
// mad-compression    T-1 tokens and a last one; the model answers from the state of the last alone (Config::read_out).
// mad-memorisation   one fixed map of keys to distinct values; key, 'insert', key, 'insert' ..; the label of an 'insert' is
//                    the value of the key before it. The map is the same in all sequences, so it has to be learned.
//
// Traps. The accuracy of MAD is the mean over classes (Score::classes; there averaged over batches, here over the test). Its
// training sets are finite: examples=12800 (256 for memorisation). mad-recall gives one token less than `time`, since
// inputs are shifted by one; mad-fuzzy-recall makes one more, so that `time` remain.
#include <algorithm>
#include <map>
#include <set>

#include "tasks/task.h"

namespace ttr::model {
namespace {

using Tuple = std::vector<std::int32_t>;

// Inputs without their last token; labels are the tokens that follow, or with `test` those of `answers`.
LabelledTokens shifted(const LabelledTokens& whole, bool test) {
  LabelledTokens sequence;
  for (std::size_t t = 0; t + 1 < whole.tokens.size(); ++t)
    sequence.add(whole.tokens[t], test ? whole.labels[t + 1] : whole.tokens[t + 1]);
  return sequence;
}

class MadTask : public Task {
 public:
  MadTask() { metric = "classes"; }

 private:
  virtual LabelledTokens one(Random&, bool test) const = 0;
  void make(Random& random, int sequences, bool test, std::int64_t, Examples& out) const override {
    std::vector<LabelledTokens> all(static_cast<std::size_t>(sequences));
    for (LabelledTokens& sequence : all) sequence = one(random, test);
    put_together(out, all, 0);
  }
};

class MadRecall : public MadTask {
 public:
  int length = 128, noise_ids = 0;
  double noise = 0;
  std::string symbol(std::int32_t token) const override {
    const int plain = vocabulary - noise_ids;
    return (token < plain / 2 ? "k" : token < plain ? "v" : "noise") + std::to_string(token);
  }

 private:
  LabelledTokens one(Random& random, bool test) const override {
    const int plain = vocabulary - noise_ids, pairs = length / 2;
    const int never_noise = between(random, 0, pairs - 1);
    std::map<int, int> values;
    std::vector<int> order;  // keys as they are first seen
    LabelledTokens whole;
    for (int i = 0; i < pairs - 1; ++i) {
      // never_noise may be the pair that is asked for; then the last one before it must not be noise if all others are.
      const bool last_chance = i == pairs - 2 && order.empty();
      if (noise > 0 && i != never_noise && !last_chance && random.uniform() < noise) {
        for (int j = 0; j < 2; ++j) whole.add(between(random, plain, vocabulary - 1));
        continue;
      }
      const int key = between(random, 0, plain / 2 - 1);
      const bool known = values.count(key) > 0;
      if (!known) values[key] = between(random, plain / 2, plain - 1), order.push_back(key);
      whole.add(key);
      whole.add(values[key], known ? values[key] : -100);
    }
    const int asked = order[random.below(order.size())];
    whole.add(asked);
    whole.add(values[asked], values[asked]);
    return shifted(whole, test);
  }
};

class MadFuzzyRecall : public MadTask {
 public:
  int motif = 3;
  std::string symbol(std::int32_t token) const override {
    const int plain = vocabulary - 1;
    return token == plain ? "pad" : (token < plain / 2 ? "k" : "v") + std::to_string(token);
  }

 private:
  LabelledTokens one(Random& random, bool test) const override {
    const int plain = vocabulary - 1, half = plain / 2;
    const auto key = [&] { return distinct(random, 0, half, test ? motif : between(random, 1, motif)); };
    const auto value = [&] { return distinct(random, half, plain, between(random, 1, motif)); };
    const Tuple asked = key();
    std::map<Tuple, Tuple> values = {{asked, value()}};
    std::set<Tuple> seen;
    const int size = static_cast<int>(asked.size() + values[asked].size());
    const int place = between(random, 0, time - 2 * size - 1);
    LabelledTokens whole;
    const auto add = [&](const Tuple& k) {
      const Tuple& v = values[k];
      for (const std::int32_t token : k) whole.add(token);
      for (const std::int32_t token : v) whole.add(token, seen.count(k) ? token : -100);
      seen.insert(k);
    };
    const int end = time - size - 2 * motif;
    for (int at = 0; at < end; at = static_cast<int>(whole.tokens.size())) {
      if (!seen.count(asked) && (at >= place || at + 2 * motif >= end)) {  // there may be no room for it later
        add(asked);
        continue;
      }
      const Tuple k = key();
      if (!values.count(k)) values[k] = value();
      add(k);
    }
    add(asked);
    LabelledTokens padded;
    for (int i = static_cast<int>(whole.tokens.size()); i < time + 1; ++i) padded.add(plain);
    padded.tokens.insert(padded.tokens.end(), whole.tokens.begin(), whole.tokens.end());
    padded.labels.insert(padded.labels.end(), whole.labels.begin(), whole.labels.end());
    return shifted(padded, test);
  }
};

class MadCopy : public MadTask {
 public:
  int symbols = 16;
  std::string symbol(std::int32_t token) const override {
    return token == vocabulary - 1 ? "copy" : token == vocabulary - 2 ? "." : std::to_string(token);
  }

 private:
  LabelledTokens one(Random& random, bool) const override {
    const int blank = vocabulary - 2, blanks = time - 2 * symbols - 1;
    std::vector<int> before(static_cast<std::size_t>(symbols));  // blanks before every symbol
    for (int i = 0; i < blanks; ++i) ++before[random.below(before.size())];
    LabelledTokens sequence;
    Tuple copied;
    for (const int count : before) {
      for (int i = 0; i < count; ++i) sequence.add(blank);
      copied.push_back(between(random, 0, blank - 1));
      sequence.add(copied.back());
    }
    sequence.add(vocabulary - 1);
    for (const std::int32_t token : copied) sequence.add(blank, token);
    return sequence;
  }
};

class MadCompression : public MadTask {
 public:
  MadCompression() { read_out = "last"; }
  std::string symbol(std::int32_t token) const override {
    return token == vocabulary - 1 ? "end" : std::to_string(token);
  }

 private:
  LabelledTokens one(Random& random, bool) const override {
    LabelledTokens sequence;
    for (int t = 0; t < time; ++t) {
      const int token = t + 1 < time ? between(random, 0, vocabulary - 2) : vocabulary - 1;
      sequence.add(token, token);
    }
    return sequence;
  }
};

class MadMemorisation : public MadTask {
 public:
  Tuple map;  // of every key
  std::string symbol(std::int32_t token) const override {
    if (token == vocabulary - 1) return "insert";
    return (token < (vocabulary - 1) / 2 ? "k" : "v") + std::to_string(token);
  }

 private:
  LabelledTokens one(Random& random, bool) const override {
    LabelledTokens sequence;
    for (int t = 0; t + 1 < time; t += 2) {
      const std::uint64_t key = random.below(map.size());
      sequence.add(static_cast<std::int32_t>(key));
      sequence.add(vocabulary - 1, map[key]);
    }
    return sequence;
  }
};

std::unique_ptr<Task> make_mad_recall(const TaskSettings& settings, bool noisy) {
  auto task = std::make_unique<MadRecall>();
  task->vocabulary = settings.number("vocabulary", 4);
  task->length = settings.number("time", 4);
  if (task->length % 2 != 0) settings.fail("time", "is " + std::to_string(task->length) + "; it is even: pairs");
  task->time = task->test_time = task->length - 1;
  if (noisy) {
    task->noise = settings.real("noise", 0, 0.999999);
    task->noise_ids = settings.number("noise_vocabulary", 1);
    if (task->noise_ids + 2 > task->vocabulary)
      settings.fail("noise_vocabulary", "is " + std::to_string(task->noise_ids) + " of a vocabulary of " +
                                            std::to_string(task->vocabulary) + "; it leaves two ids at least");
  }
  task->recall = true, task->guess = 2.0 / (task->vocabulary - task->noise_ids);
  return task;
}

std::unique_ptr<Task> make_mad_fuzzy(const TaskSettings& settings) {
  auto task = std::make_unique<MadFuzzyRecall>();
  task->motif = settings.number("motif", 1, 64);
  task->vocabulary = settings.number("vocabulary", 2 * task->motif + 1);
  task->time = task->test_time = settings.number("time", 4 * task->motif + 1);
  task->recall = true, task->guess = 2.0 / task->vocabulary;
  return task;
}

std::unique_ptr<Task> make_mad_copy(const TaskSettings& settings) {
  auto task = std::make_unique<MadCopy>();
  task->vocabulary = settings.number("vocabulary", 3);
  task->symbols = settings.number("symbols", 1);
  task->time = task->test_time = settings.number("time", 2 * task->symbols + 2);
  return task;
}

std::unique_ptr<Task> make_mad_compression(const TaskSettings& settings) {
  auto task = std::make_unique<MadCompression>();
  task->vocabulary = settings.number("vocabulary", 2);
  task->time = task->test_time = settings.number("time", 2);
  return task;
}

std::unique_ptr<Task> make_mad_memorisation(const TaskSettings& settings) {
  auto task = std::make_unique<MadMemorisation>();
  task->vocabulary = settings.number("vocabulary", 3);
  task->time = task->test_time = settings.number("time", 2);
  if (task->time % 2 != 0) settings.fail("time", "is " + std::to_string(task->time) + "; it is even: pairs");
  Random random(static_cast<std::uint64_t>(settings.number("map", 0)), "map");
  const int keys = (task->vocabulary - 1) / 2;
  task->map = distinct(random, keys, task->vocabulary - 1, keys);
  return task;
}

}  // namespace

std::vector<TaskEntry> mad_tasks() {
  const TaskSettingInfo time{"time", "128", "tokens of a sequence, before inputs and labels are shifted by one"};
  return {
      {"mad-recall",
       "in-context recall of MAD (Poli et al. 2024, arXiv 2403.17844)",
       {{"vocabulary", "16", "half of it keys, half of it values"}, time},
       "Pairs of a key and the value it got when it was first seen. Training asks for the next token everywhere, the "
       "test\n"
       "for the values of keys that were seen before. The accuracy is the mean over classes.",
       [](const TaskSettings& s) { return make_mad_recall(s, false); }},
      {"mad-noisy-recall",
       "in-context recall of MAD with pairs of noise in between",
       {{"vocabulary", "32", "keys, values and noise"},
        time,
        {"noise", "0.2", "the probability that a pair is noise"},
        {"noise_vocabulary", "16", "ids of noise, the last of the vocabulary"}},
       "As mad-recall; with the probability `noise` two random ids of the noise stand in place of a pair.",
       [](const TaskSettings& s) { return make_mad_recall(s, true); }},
      {"mad-fuzzy-recall",
       "in-context recall of MAD where keys and values are several tokens long",
       {{"vocabulary", "16", "keys, values and one id of padding"},
        {"time", "128", "tokens of a sequence"},
        {"motif", "3", "longest key and value"}},
       "Keys and values are tuples of one to `motif` distinct tokens; keys of the test have the full length. "
       "Training asks\n"
       "for the next token everywhere, the test for values of keys that were seen before.",
       make_mad_fuzzy},
      {"mad-copy",
       "selective copying of MAD",
       {{"vocabulary", "16", "symbols, a blank and a copy token"},
        {"time", "256", "tokens of a sequence"},
        {"symbols", "16", "symbols to copy"}},
       "Symbols with blanks before them at random, a copy token, then blanks whose labels are the symbols in order.",
       make_mad_copy},
      {"mad-compression",
       "compression of MAD: the whole sequence from the state at its last token",
       {{"vocabulary", "16", "symbols, and one id for the end"}, {"time", "32", "tokens of a sequence"}},
       "Random symbols and an end. The label at every place is the token there, and the answer for all places is "
       "made from\n"
       "the last token's state and the place: the model needs read_out = last, which this task sets.",
       make_mad_compression},
      {"mad-memorisation",
       "memorisation of MAD: one fixed map of keys to values",
       {{"vocabulary", "256", "keys, values and the token that asks"},
        {"time", "32", "tokens of a sequence"},
        {"map", "12345", "the seed of the map"}},
       "A key, then a token whose label is the key's value, and so on. The map is the same in all sequences and "
       "never shown.",
       make_mad_memorisation},
  };
}

}  // namespace ttr::model
