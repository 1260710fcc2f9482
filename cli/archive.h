// What a run remembers, as bytes: the same code writes and reads.
//
//   "ttr-stream" and a version, the number of bytes that follow, the bytes, their checksum (FNV-1a, 64 bits)
//
// Numbers are little endian, a vector or text is its length and its items. A class that remembers something has
//   void archive(Archive& a) { a(count_, mean_); }
// which writes its members or fills them. What follows from the options is not in the archive but made before.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ttr::cli {

/// FNV-1a, 64 bits.
std::uint64_t checksum(std::string_view bytes);

class Archive {
 public:
  /// To write.
  Archive();
  /// To read; `name` stands in messages. Throws Error if this is no archive, or not all of one.
  Archive(std::string file, std::string name);
  bool reading() const { return reading_; }
  /// Of the format; of this program's unless an older file is read.
  std::uint32_t version() const { return version_; }
  /// Room for what will be written, if that is much.
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  /// The file that was written.
  std::string file() const;
  /// Throws Error unless everything has been read.
  void finish() const;

  template <class... Items>
  void operator()(Items&... items) {
    (item(items), ...);
  }
  /// Raw bytes; the size is known to both sides.
  void raw(void* data, std::size_t size);
  /// Bytes that are not read yet: no claim may be larger.
  std::size_t left() const { return bytes_.size() - at_; }
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  static_assert(std::endian::native == std::endian::little);

  template <class T>
  void item(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) raw(&value, sizeof value);
    else value.archive(*this);
  }
  // Of a list; an item has at least so many bytes.
  std::size_t length(std::size_t have, std::size_t item_bytes = 1);
  void item(std::string& text);
  template <class T>
  void item(std::vector<T>& list) {
    const std::size_t n = length(list.size(), std::is_arithmetic_v<T> ? sizeof(T) : 1);
    if (reading_) {
      if constexpr (std::is_default_constructible_v<T>) list.resize(n);
      else if (list.size() != n) refuse("holds another number of parts than its options say");
    }
    if constexpr (std::is_arithmetic_v<T>) raw(list.data(), n * sizeof(T));
    else
      for (T& one : list) item(one);
  }
  template <class T>
  void item(std::deque<T>& list) {
    list.resize(length(list.size()));
    for (T& one : list) item(one);
  }
  template <class T>
  void item(std::optional<T>& value) {
    bool there = value.has_value();
    raw(&there, sizeof there);
    if (there && !value) {
      if constexpr (std::is_default_constructible_v<T>) value.emplace();
      else refuse("holds a part that its options do not ask for");
    }
    if (there) item(*value);
  }

  std::string bytes_, name_;
  std::size_t at_ = 0;
  std::uint32_t version_;
  bool reading_ = false;
};

}  // namespace ttr::cli
