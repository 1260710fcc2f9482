// Text: tokens are bytes, a label is the next byte. Windows begin anywhere in the part of the file they belong to.
#include "tasks/task.h"
#include "ttr/ngram.h"

namespace ttr::model {
namespace {

class Text : public Task {
 public:
  TextParts parts;
  std::string symbol(std::int32_t token) const override {
    if (token == '\n') return "\\n";
    if (token == ' ') return "_";
    if (token > 32 && token < 127) return std::string(1, static_cast<char>(token));
    constexpr const char* digits = "0123456789abcdef";
    return std::string("\\x") + digits[token / 16 % 16] + digits[token % 16];
  }

  std::span<const unsigned char> text(bool test) const override { return test ? parts.held() : parts.train(); }

 private:
  void make(Random& random, int sequences, bool test, std::int64_t, Examples& out) const override {
    begin(out, sequences, time, 0);
    const std::span<const unsigned char> bytes = text(test);
    for (int i = 0; i < sequences; ++i) {
      const std::size_t from = random.below(bytes.size() - static_cast<std::size_t>(time));
      for (std::size_t t = 0; t < static_cast<std::size_t>(time); ++t) {
        out.tokens[static_cast<std::size_t>(i * time) + t] = bytes[from + t];
        out.labels[static_cast<std::size_t>(i * time) + t] = bytes[from + t + 1];
      }
    }
  }
};

std::unique_ptr<Task> make_text(const TaskSettings& settings) {
  auto task = std::make_unique<Text>();
  const std::string& file = settings.text("file");
  if (file == "PATH") settings.fail("file", "is not given; text(file=PATH)");
  task->parts = read_text(file, settings.real("held", 0, 1), settings.number("held_bytes", 0, 1 << 30));
  task->time = task->test_time = settings.number("time", 1, 1 << 16);
  const auto least = static_cast<std::size_t>(task->time) + 1;
  for (const bool test : {false, true})
    if (task->text(test).size() < least)
      settings.fail("file", "'" + file + "' has " + std::to_string(task->parts.bytes.size()) + " bytes, " +
                                std::to_string(task->text(test).size()) + " of them " +
                                (test ? "held for the test" : "to train on") + "; both of its parts need " +
                                std::to_string(least) + " or more");
  task->vocabulary = 256;
  return task;
}

}  // namespace

std::vector<TaskEntry> text_tasks() {
  return {{"text",
           "the next byte of a file; the end of it is held for the test",
           {{"file", "PATH", "the file; any bytes"},
            {"time", "256", "bytes of a sequence"},
            {"held", "0.1", "the share of the file, at its end, that is held for the test"},
            {"held_bytes", "0", "the same as a number of bytes; 0: by the share"}},
           "Tokens are bytes, and the label under each is the byte that follows. The loss times log2(e) is bits per "
           "byte;\n"
           "`ttr ngram FILE` says what models without training reach.",
           make_text}};
}

}  // namespace ttr::model
