#include "safetensors.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

#include "json.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

template <class T>
std::vector<double> as_doubles(const char* bytes, std::size_t count) {
  std::vector<double> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    T x;
    std::memcpy(&x, bytes + i * sizeof(T), sizeof(T));
    numbers[i] = static_cast<double>(x);
  }
  return numbers;
}

}  // namespace

TensorFile read_safetensors(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error("cannot open " + path, path);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  const auto bad = [&](const std::string& what) -> Error { return Error(path + ": " + what, path); };
  std::uint64_t length = 0;
  if (bytes.size() < 8) throw bad("is too short for a safetensors file");
  std::memcpy(&length, bytes.data(), 8);
  if (length > bytes.size() - 8)
    throw bad("its header claims " + std::to_string(length) + " bytes, more than the file has");
  Header header;
  try {
    header = parse_safetensors_header(std::string_view(bytes).substr(8, length));
  } catch (const Error& error) {
    throw bad(error.what());
  }
  const std::int64_t available = static_cast<std::int64_t>(bytes.size() - 8 - length);
  TensorFile file;
  file.metadata = header.metadata;
  for (const HeaderTensor& entry : header.tensors) {
    std::int64_t count = 1;
    for (std::int64_t extent : entry.shape) {
      if (extent != 0 && count > available / extent) throw bad("tensor " + entry.name + " is larger than the file");
      count *= extent;
    }
    const std::int64_t width = entry.type == "F32" ? 4 : entry.type == "F64" || entry.type == "I64" ? 8 : 0;
    if (!width) throw bad("tensor " + entry.name + " has type " + entry.type + "; F32, F64 and I64 are read");
    if (entry.begin > entry.end || entry.end > available || entry.end - entry.begin != count * width)
      throw bad("tensor " + entry.name + " has offsets that do not fit its shape");
    const char* at = bytes.data() + 8 + length + entry.begin;
    StoredTensor tensor{entry.shape, {}};
    const std::size_t n = static_cast<std::size_t>(count);
    tensor.numbers = entry.type == "F32"   ? as_doubles<float>(at, n)
                     : entry.type == "F64" ? as_doubles<double>(at, n)
                                           : as_doubles<std::int64_t>(at, n);
    file.tensors[entry.name] = std::move(tensor);
  }
  return file;
}

}  // namespace ttr::cli
