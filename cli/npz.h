// NumPy's .npz: a zip archive of .npy files, stored without compression.
//
//   local header, name, bytes; ..; central directory; its end
//
// Trap: sizes are 32 bits. An archive of 4 GB and more is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

struct NpzArray {
  std::string name;   // without .npy
  std::string descr;  // "<i4", "<f4", "|u1"
  std::vector<std::int64_t> shape;
  std::string_view bytes;  // in C order, little endian
};
/// A whole .npy file.
std::string npy_file(const NpzArray&);
/// A whole .npz file. Throws Error if it would be too large.
std::string npz_file(const std::vector<NpzArray>&);

}  // namespace ttr::cli
