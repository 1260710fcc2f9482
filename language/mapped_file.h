// A file that is mapped into memory: pages are read when they are looked at, and belong to the system's cache.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ttr::model {

class MappedFile {
 public:
  /// Throws Error that names the file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ttr::model
