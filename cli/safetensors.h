// .safetensors files (ttr/safetensors.h) whose numbers all become double.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ttr::cli {

struct StoredTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> numbers;  // F32, F64 and I64
};
struct TensorFile {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};
/// Throws ttr::Error that names the file and what is wrong with it.
TensorFile read_safetensors(const std::string& path);

}  // namespace ttr::cli
