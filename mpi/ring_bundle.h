// What goes from rank to rank in a ring: counts, then arrays [rows, length, heads, width] one behind another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ttr/view.h"

namespace ttr::mpi {

template <class T>
class Bundle {
 public:
  struct Array {
    std::ptrdiff_t heads, width;  // no width: it is not there
  };
  /// All zeros.
  Bundle(std::ptrdiff_t counts, std::ptrdiff_t rows, std::ptrdiff_t length, std::vector<Array> arrays)
      : counts_(counts), rows_(rows), length_(length), arrays_(std::move(arrays)) {
    std::ptrdiff_t numbers = 0;
    for (const Array& a : arrays_) numbers += rows_ * length_ * a.heads * a.width;
    bytes_ = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(counts_) * sizeof(std::int64_t) +
                                                      static_cast<std::size_t>(numbers) * sizeof(T));
  }
  /// With the bytes of another of the same sizes.
  Bundle filled(std::vector<std::byte> bytes) const {
    Bundle other = *this;
    other.bytes_ = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    return other;
  }
  Bundle filled(std::shared_ptr<const std::vector<std::byte>> bytes) const {
    Bundle other = *this;
    other.bytes_ = std::const_pointer_cast<std::vector<std::byte>>(std::move(bytes));
    return other;
  }

  std::size_t size() const { return bytes_->size(); }
  std::shared_ptr<const std::vector<std::byte>> bytes() const { return bytes_; }
  std::int64_t* counts() { return reinterpret_cast<std::int64_t*>(bytes_->data()); }
  View<T, 4> operator[](std::size_t index) {
    std::ptrdiff_t before = 0;
    for (std::size_t i = 0; i < index; ++i) before += rows_ * length_ * arrays_[i].heads * arrays_[i].width;
    const auto [heads, width] = arrays_[index];
    if (width == 0) return {};
    T* const first = reinterpret_cast<T*>(bytes_->data() + static_cast<std::size_t>(counts_) * sizeof(std::int64_t));
    return {first + before, {rows_, length_, heads, width}, {length_ * heads * width, heads * width, width, 1}};
  }
  /// One number of the last axis.
  View<T, 3> column(std::size_t index, std::ptrdiff_t at) {
    const View<T, 4> all = (*this)[index];
    if (!all) return {};
    return {
        all.data + at, {all.extent[0], all.extent[1], all.extent[2]}, {all.stride[0], all.stride[1], all.stride[2]}};
  }

 private:
  std::ptrdiff_t counts_, rows_, length_;
  std::vector<Array> arrays_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

}  // namespace ttr::mpi
