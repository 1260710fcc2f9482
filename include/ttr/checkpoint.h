// Tensors in .safetensors files, and checkpoints of a training run in them: everything needed to go on.
//
//   ttr::model::save_checkpoint("run.safetensors", model, &optimiser, {.step = 100, .random = random.state()});
//   const ttr::model::Checkpoint saved = ttr::model::read_checkpoint("run.safetensors");
//   ttr::model::Model<float> model(saved.config);
//   saved.load(model);
//
// A file is there whole or not at all: it is written beside its place, flushed to the disk and renamed. A checkpoint
// carries a checksum of its numbers; files that are damaged, cut off or of somebody else are refused with a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/model.h"
#include "ttr/optimiser.h"

namespace ttr::model {

struct StoredTensor {
  std::string name, dtype;  // F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // little endian, row by row
};
struct TensorFile {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  const StoredTensor* find(std::string_view name) const;
};
/// Throw Error that names the file and what is wrong with it. Reading checks that the tensors fill the file without gaps.
TensorFile read_safetensors(const std::string& path);
/// The same with one tensor in memory at a time, in the order of the file; returns the metadata.
std::map<std::string, std::string> scan_safetensors(const std::string& path,
                                                    const std::function<void(StoredTensor&&)>& visit);
void write_safetensors(const std::string& path, const TensorFile&);

/// Where a run stands, besides parameters and optimiser.
struct Progress {
  std::int64_t step = 0;
  std::uint64_t random = 0;                       // state of the data's generator
  std::map<std::string, std::string> notes = {};  // whatever the caller wants to find again
};

template <class T>
void save_checkpoint(const std::string& path, const Model<T>&, Optimiser<T>*, const Progress&);

struct Checkpoint {
  std::string path;
  Config config;
  OptimiserConfig optimiser;
  bool has_optimiser = false;
  std::int64_t optimiser_steps = 0;
  Progress progress;
  TensorFile file;

  /// Into a model or an optimiser of the same shapes and type; throws Error.
  template <class T>
  void load(Model<T>&) const;
  template <class T>
  void load(Optimiser<T>&) const;
  /// The running mean of the parameters into a model, if the run has one (OptimiserConfig::ema); false if not.
  template <class T>
  bool load_mean(Model<T>&) const;
};
Checkpoint read_checkpoint(const std::string& path);

}  // namespace ttr::model
