// `ttr inspect` of a published model: whether it runs, its tensors and its settings. No number of a tensor is read.
#include <fmt/core.h>

#include "json.h"
#include "language_verbs.h"
#include "text_table.h"
#include "ttr/language.h"

namespace ttr::cli {

namespace {
// In JSON, and as lines for people.
std::string tell(const model::CheckpointAbout& about, Json& to) {
  const std::string tokenizer = fmt::format("tokenizer: {}\n", about.tokenizer);
  to.set("runs", about.why.empty()).set("tokenizer", about.tokenizer);
  if (!about.why.empty()) {
    to.set("why", about.why);
    return fmt::format("does not run: {}\n{}", about.why, tokenizer);
  }
  to.set("architecture", about.architecture)
      .set("layers", about.layers)
      .set("width", about.width)
      .set("vocabulary", about.vocabulary);
  return fmt::format("{}, {} layers of width {}, {} tokens\n{}", about.architecture, about.layers, about.width,
                     about.vocabulary, tokenizer);
}
}  // namespace

std::string tell_published(const std::string& path, Json& to) {
  model::CheckpointAbout about;
  try {
    about = model::look_into(path);
  } catch (const Error& error) {  // config.json beside it
    about.why = error.what(), about.tokenizer = "none";
  }
  return tell(about, to);
}

int run_look_into(const std::string& path, bool json) {
  const model::CheckpointAbout about = model::look_into(path);
  std::int64_t numbers = 0;
  std::size_t bytes = 0;
  for (const model::TensorAbout& one : about.tensors) numbers += one.numbers, bytes += one.bytes;
  if (json) {
    Json tensors = Json::array(), settings = Json::object();
    for (const model::TensorAbout& one : about.tensors)
      tensors.push(Json::object()
                       .set("name", one.name)
                       .set("dtype", one.type)
                       .set("shape", one.shape)
                       .set("numbers", one.numbers)
                       .set("bytes", one.bytes));
    for (const auto& [key, value] : about.settings) settings.set(key, value);
    Json all = Json::object().set("file", path).set("checkpoint", false).set("format", about.format);
    all.set("numbers", numbers).set("bytes", bytes);
    tell(about, all);
    fmt::print("{}\n", all.set("tensors", tensors).set("metadata", settings).dump());
    return 0;
  }
  fmt::print("{}: {}, {} tensors, {} numbers, {}\n", path, about.format, about.tensors.size(), numbers,
             short_bytes(static_cast<double>(bytes)));
  Json unused = Json::object();
  fmt::print("{}\n", tell(about, unused));
  TextTable table({"tensor", "type", "shape", "numbers"});
  for (const model::TensorAbout& one : about.tensors)
    table.row({one.name, one.type, one.shape, std::to_string(one.numbers)});
  fmt::print("{}", table.text());
  if (!about.settings.empty()) fmt::print("\nsettings\n");
  for (const auto& [key, value] : about.settings)
    fmt::print("  {:<36} {}\n", key, value.size() > 120 ? fmt::format("a text of {} bytes", value.size()) : value);
  return 0;
}

}  // namespace ttr::cli
