// Tensors in .safetensors files or in memory: a header of names, types and shapes, then the numbers.
//
//   ttr::TensorFile file;
//   file.tensors.push_back({"x", "F32", {2}, std::vector<std::byte>(8)});
//   file.metadata["made by"] = "me";
//   ttr::write_safetensors("x.safetensors", file);
//   ttr::TensorFile same = ttr::read_safetensors("x.safetensors");
//
// A file is there whole or not at all: it is written beside its place, flushed to the disk and renamed. Reading trusts
// nothing, and everything throws Error that names the file and what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/status.h"

namespace ttr {

struct StoredTensor {
  std::string name, dtype;  // F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // little endian, row by row
};
struct TTR_API TensorFile {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  const StoredTensor* find(std::string_view name) const;
};

/// Reading checks that the tensors fill the file without gaps.
TTR_API TensorFile read_safetensors(const std::string& path);
/// The same with one tensor in memory at a time, in the order of the file; returns the metadata.
TTR_API std::map<std::string, std::string> scan_safetensors(const std::string& path,
                                                            const std::function<void(StoredTensor&&)>& visit);
TTR_API void write_safetensors(const std::string& path, const TensorFile&);

/// The bytes of such a file, and back; `name` stands for the file in errors.
TTR_API std::vector<std::byte> to_bytes(const TensorFile&);
TTR_API TensorFile from_bytes(std::span<const std::byte>, const std::string& name);
/// Where the tensors of such bytes lie in them, checked as reading checks it; nothing is copied, so that a file may be mapped.
struct TensorPlace {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, bytes = 0;
};
TTR_API std::vector<TensorPlace> list_safetensors(std::span<const std::byte>, const std::string& name,
                                                  std::map<std::string, std::string>* metadata = nullptr);
/// Writes bytes to a file that is there whole or not at all.
TTR_API void write_whole_file(const std::string& path, std::span<const std::byte>);
TTR_API std::vector<std::byte> read_whole_file(const std::string& path);

}  // namespace ttr
