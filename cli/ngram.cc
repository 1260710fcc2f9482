// `ttr ngram`: bits per byte of the held part of a text by counting (ttr/ngram.h), and by gzip and xz where they are installed.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "atomic_file.h"
#include "json.h"
#include "shell.h"
#include "tasks.h"
#include "ttr/ngram.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

// Bytes that a compressor makes of a file; nothing if there is no such program.
std::optional<double> compressed(const char* program, const std::string& file) {
  const std::string command =
      fmt::format("command -v {0} >/dev/null && {0} -9 -c -- {1} 2>/dev/null | wc -c", program, shell_quoted(file));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  double bytes = 0;
  if (!pipe || std::fscanf(pipe.get(), "%lf", &bytes) != 1) return {};
  return bytes;
}

struct Folder {  // of files for the compressors; gone in the end
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ttr-ngram-XXXXXX").string();
    if (!mkdtemp(name.data())) throw Error("no folder can be made in " + name, "--compressors");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string put(const char* name, std::span<const unsigned char> bytes) const {
    const std::string file = (path / name).string();
    write_file(file, "--compressors", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return file;
  }
};

struct Row {
  const char *name, *what;
  std::optional<double> bits;
};

}  // namespace

int run_ngram(const NgramOptions& o) {
  if (!(o.held > 0 && o.held < 1)) throw Error(fmt::format("--held is {}; it is between 0 and 1", o.held), "--held");
  if (o.held_bytes < 0)
    throw Error(fmt::format("--held-bytes is {}; it is at least 0", o.held_bytes), "--held-bytes");
  const model::TextParts text = model::read_text(o.file, o.held, o.held_bytes);
  const std::vector<double> bits = model::ngram_bits(text.train(), text.held(), o.order);
  const auto best = static_cast<std::size_t>(std::min_element(bits.begin(), bits.end()) - bits.begin());
  std::vector<Row> rows;
  if (o.compressors) {
    const Folder folder;
    const std::string train = folder.put("train", text.train()), held = folder.put("held", text.held()),
                      whole = folder.put("whole", text.bytes);
    const auto size = static_cast<double>(text.held().size()), all = static_cast<double>(text.bytes.size());
    for (const char* program : {"gzip", "xz"}) {
      const bool xz = program[0] == 'x';
      const auto a = compressed(program, whole), b = compressed(program, train), alone = compressed(program, held);
      const auto share = [](std::optional<double> bytes, double of) {
        return bytes ? std::optional<double>(8 * *bytes / of) : std::nullopt;
      };
      rows.push_back({xz ? "xz_whole" : "gzip_whole", "-9, the whole file", share(a, all)});
      rows.push_back({xz ? "xz_held" : "gzip_held", "-9, the held part alone", share(alone, size)});
      if (xz)
        rows.push_back({"xz_after_train", "-9, the held part after the training part",
                        a && b ? std::optional<double>(8 * (*a - *b) / size) : std::nullopt});
    }
  }
  if (o.json) {
    Json orders = Json::array(), others = Json::object();
    for (const double one : bits) orders.push(one);
    for (const Row& row : rows) others.set(row.name, row.bits ? Json(*row.bits) : Json());
    Json all = Json::object().set("file", o.file).set("train_bytes", text.train().size());
    all.set("held_bytes", text.held().size()).set("bits_per_byte", orders);
    all.set("best_order", best).set("best_bits_per_byte", bits[best]);
    if (o.compressors) all.set("compressors", others);
    fmt::print("{}\n", all.dump());
    return 0;
  }
  fmt::print("{}: {} bytes to count, {} held\n\n{:>5}  {:>13}\n", o.file, text.train().size(), text.held().size(),
             "order", "bits per byte");
  for (std::size_t k = 0; k < bits.size(); ++k)
    fmt::print("{:>5}  {:>13.4f}{}\n", k, bits[k], k == best ? "  best" : "");
  for (const Row& row : rows)
    fmt::print("{:>5}  {:>13}  {}\n", row.name[0] == 'x' ? "xz" : "gzip",
               row.bits ? fmt::format("{:.4f}", *row.bits) : "-", row.bits ? row.what : "is not installed");
  return 0;
}

}  // namespace ttr::cli
