#include "safetensors.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "ttr/safetensors.h"

namespace ttr::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

template <class T>
std::vector<double> as_doubles(const std::vector<std::byte>& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T x;
    std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
    numbers[i] = static_cast<double>(x);
  }
  return numbers;
}

}  // namespace

TensorFile read_safetensors(const std::string& path) {
  const ttr::TensorFile stored = ttr::read_safetensors(path);
  TensorFile file;
  file.metadata = stored.metadata;
  for (const ttr::StoredTensor& tensor : stored.tensors) {
    if (tensor.dtype != "F32" && tensor.dtype != "F64" && tensor.dtype != "I64")
      throw Error(path + ": tensor " + tensor.name + " has type " + tensor.dtype + "; F32, F64 and I64 are read",
                  path);
    file.tensors[tensor.name] = {tensor.shape, tensor.dtype == "F32"   ? as_doubles<float>(tensor.bytes)
                                               : tensor.dtype == "F64" ? as_doubles<double>(tensor.bytes)
                                                                       : as_doubles<std::int64_t>(tensor.bytes)};
  }
  return file;
}

}  // namespace ttr::cli
