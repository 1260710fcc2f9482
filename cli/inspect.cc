// `ttr inspect`: what is in a .safetensors file. Of a checkpoint of ttr also the model and its blocks, and whether it is
// whole. One tensor is in memory at a time.
#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "json.h"
#include "run_folder.h"
#include "text_table.h"
#include "trained_verbs.h"
#include "ttr/half.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

struct About {
  std::string name, dtype, shape;
  std::int64_t numbers = 1, strange = 0;  // strange: Inf or NaN
  double rms = std::nan("");              // of numbers with a point
  std::size_t bytes = 0;
};

template <class Number, class Convert>
void measure(About& about, const model::StoredTensor& tensor, Convert&& convert) {
  double sum = 0;
  for (std::size_t i = 0; i + sizeof(Number) <= tensor.bytes.size(); i += sizeof(Number)) {
    Number raw;
    std::memcpy(&raw, tensor.bytes.data() + i, sizeof raw);
    const double x = convert(raw);
    if (std::isfinite(x)) sum += x * x;
    else ++about.strange;
  }
  about.rms = std::sqrt(sum / static_cast<double>(std::max<std::int64_t>(1, about.numbers - about.strange)));
}

About look_at(const model::StoredTensor& tensor) {
  About about;
  about.name = tensor.name, about.dtype = tensor.dtype, about.bytes = tensor.bytes.size();
  for (const std::int64_t n : tensor.shape) {
    about.shape += (about.shape.empty() ? "" : " x ") + std::to_string(n);
    about.numbers *= n;
  }
  if (tensor.dtype == "F64") measure<double>(about, tensor, [](double x) { return x; });
  if (tensor.dtype == "F32") measure<float>(about, tensor, [](float x) { return static_cast<double>(x); });
  if (tensor.dtype == "BF16") measure<bf16>(about, tensor, [](bf16 x) { return static_cast<double>(to_float(x)); });
  if (tensor.dtype == "F16") measure<f16>(about, tensor, [](f16 x) { return static_cast<double>(to_float(x)); });
  return about;
}

bool starts(const std::string& text, std::string_view with) { return text.rfind(with, 0) == 0; }

struct BlockAbout {
  std::string name, mixer;
  std::int64_t mixer_parameters = 0, mlp_parameters = 0;
};

std::vector<BlockAbout> blocks_of(const model::Config& config, const std::vector<About>& tensors) {
  std::vector<BlockAbout> blocks;
  for (const model::BlockText& text : model::parse_stack(config.stack)) {
    BlockAbout block;
    block.name = "blocks." + std::to_string(blocks.size()), block.mixer = to_string(text);
    for (const About& t : tensors) {
      if (starts(t.name, "model." + block.name + ".mixer.")) block.mixer_parameters += t.numbers;
      if (starts(t.name, "model." + block.name + ".mlp.")) block.mlp_parameters += t.numbers;
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "             ";
  }
  while (!result.empty() && (result.back() == ' ' || result.back() == '\n')) result.pop_back();
  return result;
}

}  // namespace

int run_inspect(const InspectOptions& o) {
  const std::string path = model_file(o.file);
  std::vector<About> tensors;
  const std::map<std::string, std::string> metadata =
      model::scan_safetensors(path, [&](model::StoredTensor&& one) { tensors.push_back(look_at(one)); });
  std::int64_t numbers = 0, strange = 0, parameters = 0;
  std::size_t bytes = 0;
  for (const About& t : tensors) {
    numbers += t.numbers, strange += t.strange, bytes += t.bytes;
    if (starts(t.name, "model.")) parameters += t.numbers;
  }
  const auto format = metadata.find("format");
  const bool ours = format != metadata.end() && starts(format->second, "ttr checkpoint");
  std::vector<BlockAbout> blocks;
  model::Checkpoint saved;
  if (ours) saved = model::read_checkpoint(path), blocks = blocks_of(saved.config, tensors);

  if (o.json) {
    Json list = Json::array(), about = Json::object(), stack = Json::array();
    for (const About& t : tensors)
      list.push(Json::object()
                    .set("name", t.name)
                    .set("dtype", t.dtype)
                    .set("shape", t.shape)
                    .set("numbers", t.numbers)
                    .set("rms", t.rms)
                    .set("not_finite", t.strange));
    for (const auto& [key, value] : metadata) about.set(key, value);
    for (const BlockAbout& b : blocks)
      stack.push(Json::object()
                     .set("name", b.name)
                     .set("mixer", b.mixer)
                     .set("mixer_parameters", b.mixer_parameters)
                     .set("mlp_parameters", b.mlp_parameters));
    Json all = Json::object().set("file", path).set("checkpoint", ours).set("numbers", numbers).set("bytes", bytes);
    all.set("not_finite", strange);
    if (ours) all.set("parameters", parameters).set("step", saved.progress.step).set("blocks", stack);
    if (!ours && o.published) o.published(path, all);
    fmt::print("{}\n", all.set("tensors", list).set("metadata", about).dump());
    return 0;
  }

  fmt::print("{}: {} tensors, {} numbers, {}\n", path, tensors.size(), numbers,
             short_bytes(static_cast<double>(bytes)));
  if (strange) fmt::print("{} numbers are not finite\n", strange);
  if (Json unused = Json::object(); !ours && o.published) fmt::print("{}", o.published(path, unused));
  if (ours) {
    fmt::print("a checkpoint of ttr at step {}{}; its checksum is right\n{} parameters{}\n\n", saved.progress.step,
               saved.has_optimiser ? ", with the state of its optimiser" : "", parameters,
               saved.config.vocabulary ? fmt::format(", {} kinds of tokens", saved.config.vocabulary)
                                       : fmt::format(", rows of {} numbers", saved.config.input_dim));
    TextTable table({"block", "mixer", "mixer parameters", "mlp parameters"});
    for (const BlockAbout& b : blocks)
      table.row({b.name, b.mixer, std::to_string(b.mixer_parameters), std::to_string(b.mlp_parameters)});
    fmt::print("{}", table.text());
  }
  fmt::print("\n");
  TextTable table({"tensor", "type", "shape", "numbers", "rms"});
  for (const About& t : tensors)
    table.row({t.name, t.dtype, t.shape.empty() ? "one number" : t.shape, std::to_string(t.numbers),
               std::isnan(t.rms) ? "" : short_number(t.rms) + (t.strange ? " (not finite)" : "")});
  fmt::print("{}", table.text());
  if (!metadata.empty()) fmt::print("\nmetadata\n");
  for (const auto& [key, value] : metadata)
    if (key != "note.rows" && key != "note.curve") fmt::print("  {:<10} {}\n", key, indented(value));
  return 0;
}

}  // namespace ttr::cli
