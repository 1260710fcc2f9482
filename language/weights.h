// The tensors of a checkpoint, mapped and not copied:
//
//   model.safetensors                       one file, config.json and tokenizer.json beside it if there are any
//   a folder                                model.safetensors, or shards by model.safetensors.index.json, or one .gguf
//   model.gguf                              GGUF version 3
//
// Shapes are those of PyTorch: a matrix of weights is [out, in], its rows one after another. Opening checks every length and
// place against the size of the file before anything is read there, so that no file makes it read or ask for memory
// beyond that; Error names the file, and the tensor or key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "language/mapped_file.h"
#include "language/quantised.h"
#include "language/settings.h"

namespace ttr::model {

struct Weight {
  std::string name, dtype;     // dtype as the file spells it
  std::optional<Stored> type;  // empty: a type that no matrix has here
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::int64_t numbers() const;
  std::string shape_text() const;  // "[512, 64]"
};

class Weights {
 public:
  explicit Weights(const std::string& path);

  /// Throws Error with the names that are most alike if there is none.
  const Weight& get(const std::string& name) const;
  const Weight* find(const std::string& name) const;
  const std::map<std::string, Weight>& all() const { return weights_; }
  std::size_t bytes() const;

  bool gguf() const { return gguf_; }
  /// Keys of a GGUF file that quantise() made of .safetensors, "ttr.config" and others; else null.
  const Settings* kept() const { return kept_ ? &*kept_ : nullptr; }
  /// Whether it is one of the files that are mapped, by another path too.
  bool reads(const std::string& path) const;
  const std::string& path() const { return path_; }
  const Settings& settings() const { return settings_; }
  /// The text of a tokenizer that the file holds, or empty.
  const std::string& tokenizer() const { return tokenizer_; }
  /// Path of a file beside the weights, or empty.
  std::string beside(const std::string& name) const;

 private:
  void open_safetensors(const std::string& path);
  void open_shards(const std::string& index);
  void open_gguf(const std::string& path);
  void add(Weight);

  std::string path_, folder_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, Weight> weights_;
  Settings settings_;
  std::string tokenizer_;
  bool gguf_ = false;
  std::optional<Settings> kept_;
  std::vector<std::string> paths_;  // of files_
};

/// The tensors and settings of a GGUF file, which lies in `bytes`.
void read_gguf(std::span<const std::byte> bytes, const std::string& path, std::vector<Weight>& weights, Settings&);

}  // namespace ttr::model
