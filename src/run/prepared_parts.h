// What prepared calls, forwards (prepared.cc) and backwards (prepared_backward.cc), share: tensors whose addresses follow
// with every call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "run/bind.h"
#include "run/overlap.h"

namespace ttr {

// A tensor of the call, whose address is not known yet.
struct Place {
  bool given = false;
  std::uintptr_t odd = 0;               // bits of an address that must be zero
  std::ptrdiff_t below = 0, above = 0;  // bytes that it reaches from its address
  int value = -1;                       // of the pipeline
  int tensor = -1;                      // in its list
};

struct Scratch {
  std::size_t value;
  std::ptrdiff_t offset;  // from the aligned start of the workspace
};

template <class AnyTensor>
Place place_of(const AnyTensor& tensor, int value, int index) {
  Place place{true, size_of(tensor.type) - 1, 0, 0, value, index};
  const char origin = 0;
  const ByteRange range = range_of(&origin, tensor.type, tensor.rank, tensor.extent.data(), tensor.stride.data());
  if (range.begin) {
    place.below = range.begin - reinterpret_cast<const std::byte*>(&origin);
    place.above = range.end - reinterpret_cast<const std::byte*>(&origin);
  }
  return place;
}

inline const std::byte* aligned(const void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<const std::byte*>(workspace) + (64 - address % 64) % 64;
}

/// The memory of one call, judged by ranges alone.
class MemoryOfCall {
 public:
  void reads(const void* data, std::size_t bytes) {
    if (data) read_[read_count_++] = range_of_bytes(data, bytes);
  }
  void writes(const void* data, std::size_t bytes) {
    if (data) written_[written_count_++] = range_of_bytes(data, bytes);
  }
  void reads(const Place& place, const void* data) {
    if (place.given) read_[read_count_++] = range(place, data);
  }
  void writes(const Place& place, const void* data) {
    if (place.given) written_[written_count_++] = range(place, data);
  }
  /// Whether nothing that is written overlaps anything else.
  bool is_apart() const noexcept {
    bool apart = true;
    for (std::size_t i = 0; i < written_count_; ++i) {
      for (std::size_t j = 0; j < read_count_; ++j) apart &= !overlap(written_[i], read_[j]);
      for (std::size_t j = i + 1; j < written_count_; ++j) apart &= !overlap(written_[i], written_[j]);
    }
    return apart;
  }

 private:
  static ByteRange range(const Place& place, const void* data) {
    const std::byte* const at = static_cast<const std::byte*>(data);
    return {at + place.below, at + place.above};
  }
  std::array<ByteRange, 2 * Inputs::capacity + 3> read_;
  std::array<ByteRange, Outputs::capacity + 2> written_;
  std::size_t read_count_ = 0, written_count_ = 0;
};

/// `to` gets the tensors of `from` with addresses that are not null and aligned, in place of those to come; nobody reads
/// there.
template <class List>
void stand_in(const List& from, List& to) {
  alignas(64) static std::byte somewhere[64];
  for (const std::string_view name : from.names()) {
    auto tensor = from.get(name);
    if (tensor.rank == 0 && !tensor.data) continue;
    tensor.data = somewhere;
    to[name] = tensor;
  }
}

/// The value that is input i; -1 if nothing reads it.
inline int value_of_input(const Pipeline& pipeline, std::size_t i) {
  for (std::size_t v = 0; v < pipeline.values.size(); ++v)
    if (pipeline.values[v].from == Value::From::input && pipeline.values[v].input == static_cast<int>(i))
      return static_cast<int>(v);
  return -1;
}

/// `to` and `places`: those of the plan's tensors that `from` has, in the plan's order. True if one has another type than
/// the plan.
template <class List, class ValueOf>
bool take_places(const Plan::Body& body, const std::vector<InputInfo>& infos, const List& from, List& to,
                 std::vector<Place>& places, ValueOf&& value_of) {
  bool half = false;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    Place& place = places.emplace_back();
    const auto* const tensor = from.find(infos[i].name, static_cast<int>(i));
    if (!tensor || tensor->rank == 0) continue;
    const int index = static_cast<int>(to.names().size());
    to[infos[i].name] = *tensor;
    place = place_of(*tensor, value_of(i), index);
    half |= tensor->type != body.options.type;
  }
  return half;
}

/// Whether the addresses of a call are those that were prepared, null and aligned ones in the right places.
template <class Pointer>
Status check_addresses(const std::vector<Place>& places, std::span<Pointer const> addresses) noexcept {
  if (addresses.size() != places.size()) return Status::bad_shape;
  std::uintptr_t odd = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if ((addresses[i] != nullptr) != places[i].given)
      return places[i].given ? Status::missing_input : Status::bad_shape;
    odd |= reinterpret_cast<std::uintptr_t>(addresses[i]) & places[i].odd;
  }
  return odd ? Status::misaligned : Status::ok;
}

/// Puts the addresses of a call into a list of tensors.
template <class List, class Pointer>
void put_addresses(const std::vector<Place>& places, std::span<Pointer const> addresses, List& list) noexcept {
  const auto tensors = list.tensors();
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i].given) tensors[static_cast<std::size_t>(places[i].tensor)].data = addresses[i];
}

}  // namespace ttr
