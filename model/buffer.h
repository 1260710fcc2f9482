// Memory on a cache line, zero at first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace ttr::model {

using Size = std::ptrdiff_t;

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Size size) : size_(std::max<Size>(size, 0)) {
    if (size <= 0) return;
    data_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), alignment)));
    for (Size i = 0; i < size; ++i) data_.get()[i] = T{};
  }
  T* data() const { return data_.get(); }
  Size size() const { return size_; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(T* memory) const { ::operator delete(memory, alignment); }
  };
  std::unique_ptr<T, Free> data_;
  Size size_ = 0;
};

}  // namespace ttr::model
