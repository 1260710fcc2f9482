// Checkpoints of a training run in .safetensors files: everything needed to go on.
//
//   ttr::model::save_checkpoint("run.safetensors", model, &optimiser, {.step = 100, .random = random.state()});
//   const ttr::model::Checkpoint saved = ttr::model::read_checkpoint("run.safetensors");
//   ttr::model::Model<float> model(saved.config);
//   saved.load(model);
//
// A file is there whole or not at all (ttr/safetensors.h). A checkpoint carries a checksum of its numbers; files that are
// damaged, cut off or of somebody else are refused with a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/model.h"
#include "ttr/optimiser.h"
#include "ttr/safetensors.h"

namespace ttr::model {

using ttr::read_safetensors;
using ttr::scan_safetensors;
using ttr::StoredTensor;
using ttr::TensorFile;
using ttr::write_safetensors;

/// Where a run stands, besides parameters and optimiser.
struct Progress {
  std::int64_t step = 0;
  std::uint64_t random = 0;                       // state of the data's generator
  std::map<std::string, std::string> notes = {};  // whatever the caller wants to find again
};

template <class T>
TTR_MODEL_API void save_checkpoint(const std::string& path, const Model<T>&, Optimiser<T>*, const Progress&);

struct TTR_MODEL_API Checkpoint {
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
TTR_MODEL_API Checkpoint read_checkpoint(const std::string& path);

}  // namespace ttr::model
