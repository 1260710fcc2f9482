#include "npz.h"

#include <array>

#include <fmt/format.h>

#include "npy.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::uint32_t crc32(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t x = i;
      for (int bit = 0; bit < 8; ++bit) x = (x >> 1) ^ (x & 1 ? 0xEDB88320u : 0u);
      made[i] = x;
    }
    return made;
  }();
  std::uint32_t sum = ~0u;
  for (const char c : bytes) sum = table[(sum ^ static_cast<unsigned char>(c)) & 255u] ^ (sum >> 8);
  return ~sum;
}

void put(std::string& to, std::uint32_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(number >> 8 * i & 255u);
}

}  // namespace

std::string npy_file(const NpzArray& array) {
  std::string shape;
  for (const std::int64_t n : array.shape) shape += std::to_string(n) + ", ";
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  return npy_header(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.descr, shape)) +
         std::string(array.bytes);
}

std::string npz_file(const std::vector<NpzArray>& arrays) {
  std::string archive, directory;
  for (const NpzArray& array : arrays) {
    const std::string file = npy_file(array), name = array.name + ".npy";
    if (archive.size() + file.size() + directory.size() > 0xFFFF0000u)
      throw Error("an .npz of 4 GB and more cannot be written; ask for fewer sequences", "--out");
    const auto size = static_cast<std::uint32_t>(file.size()), begin = static_cast<std::uint32_t>(archive.size());
    std::string common;  // what both headers have: version, flags, no compression, 1980-01-01, sizes
    put(common, 20, 2), put(common, 0, 2), put(common, 0, 2), put(common, 0, 2), put(common, 0x21, 2);
    put(common, crc32(file), 4), put(common, size, 4), put(common, size, 4);
    put(common, static_cast<std::uint32_t>(name.size()), 2), put(common, 0, 2);
    put(archive, 0x04034B50, 4);
    archive += common + name + file;
    put(directory, 0x02014B50, 4), put(directory, 20, 2);
    directory += common;
    put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 4), put(directory, begin, 4);
    directory += name;
  }
  const auto begin = static_cast<std::uint32_t>(archive.size()), count = static_cast<std::uint32_t>(arrays.size());
  archive += directory;
  put(archive, 0x06054B50, 4), put(archive, 0, 2), put(archive, 0, 2), put(archive, count, 2), put(archive, count, 2);
  put(archive, static_cast<std::uint32_t>(directory.size()), 4), put(archive, begin, 4), put(archive, 0, 2);
  return archive;
}

}  // namespace ttr::cli
