// GGUF version 3, little endian:
//
//   "GGUF", u32 version, i64 tensors, i64 pairs
//   a pair: string key, i32 type, value ; string: u64 length, bytes ; array: i32 type of its elements, u64 count, elements
//   a tensor: string name, u32 axes, i64 extents (the first is contiguous), i32 type, u64 offset
//   numbers, from the next multiple of general.alignment (32 unless given) on; offsets are from there
//
// The first extent is the last of a shape here. No array is kept but those of numbers and of texts.
#include <algorithm>
#include <bit>
#include <cstring>

#include "language/weights.h"
#include "ttr/status.h"

namespace ttr::model {
namespace {

enum Kind : std::int32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void fail(const std::string& why) const { throw Error("'" + path_ + "': " + why, path_); }
  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }

  template <class Number>
  Number read(const char* what) {
    Number number;
    need(sizeof number, what);
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }
  std::string string(const char* what) {
    const auto length = read<std::uint64_t>(what);
    need(length, what);
    std::string result(reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<std::size_t>(length));
    at_ += static_cast<std::size_t>(length);
    return result;
  }
  void need(std::uint64_t count, const char* what) const {
    if (count > left())
      fail(std::string(what) + " at byte " + std::to_string(at_) + " needs " + std::to_string(count) + " bytes and " +
           std::to_string(left()) + " are left; the file was cut off or is damaged");
  }
  double number(std::int32_t kind, const char* what) {
    switch (kind) {
      case u8:
        return read<std::uint8_t>(what);
      case i8:
        return read<std::int8_t>(what);
      case u16:
        return read<std::uint16_t>(what);
      case i16:
        return read<std::int16_t>(what);
      case u32:
        return read<std::uint32_t>(what);
      case i32:
        return read<std::int32_t>(what);
      case f32:
        return static_cast<double>(read<float>(what));
      case boolean:
        return read<std::uint8_t>(what) != 0;
      case u64:
        return static_cast<double>(read<std::uint64_t>(what));
      case i64:
        return static_cast<double>(read<std::int64_t>(what));
      case f64:
        return read<double>(what);
      default:
        fail(std::string(what) + " has the type " + std::to_string(kind) + ", which GGUF does not have");
    }
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
};

void read_array(Reader& r, const std::string& key, Settings& settings) {
  const char* const what = "an array";
  const auto kind = r.read<std::int32_t>(what);
  const auto count = r.read<std::uint64_t>(what);
  if (kind == text) {
    if (count > r.left() / 8)
      r.fail("the array '" + key + "' has " + std::to_string(count) + " texts, more than fit");
    std::vector<std::string> list;
    list.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) list.push_back(r.string(what));
    settings.set(key, std::move(list));
    return;
  }
  if (kind == array) r.fail("the array '" + key + "' has arrays in it, which are not read");
  if (count > r.left()) r.fail("the array '" + key + "' has " + std::to_string(count) + " numbers, more than fit");
  std::vector<double> list;
  list.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) list.push_back(r.number(kind, what));
  settings.set(key, std::move(list));
}

std::optional<Stored> type_of(std::int32_t number) {
  switch (number) {
    case 0:
      return Stored::f32;
    case 1:
      return Stored::f16;
    case 30:
      return Stored::bf16;
    case 2:
      return Stored::q4_0;
    case 8:
      return Stored::q8_0;
    case 12:
      return Stored::q4_k;
    case 13:
      return Stored::q5_k;
    case 14:
      return Stored::q6_k;
    default:
      return {};
  }
}

}  // namespace

void read_gguf(std::span<const std::byte> bytes, const std::string& path, std::vector<Weight>& weights,
               Settings& settings) {
  static_assert(std::endian::native == std::endian::little, "GGUF is read on little-endian machines");
  Reader r(bytes, path);
  if (r.read<std::uint32_t>("the beginning") != 0x46554747u) r.fail("it does not begin with GGUF");
  const auto version = r.read<std::uint32_t>("the version");
  if (version != 3) r.fail("it is GGUF version " + std::to_string(version) + "; version 3 is read");
  const auto tensors = r.read<std::int64_t>("the number of tensors");
  const auto pairs = r.read<std::int64_t>("the number of keys");
  // A pair has at least 13 bytes, a tensor 24.
  if (pairs < 0 || static_cast<std::uint64_t>(pairs) > r.left() / 13)
    r.fail("it claims " + std::to_string(pairs) + " keys, more than fit into it");
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::string key = r.string("a key");
    if (settings.has(key)) r.fail("it has the key '" + key + "' twice");
    const auto kind = r.read<std::int32_t>("the type of a key");
    if (kind == text) settings.set(key, r.string("a text"));
    else if (kind == array) read_array(r, key, settings);
    else if (kind == boolean) settings.set(key, r.read<std::uint8_t>("a truth") != 0);
    else settings.set(key, r.number(kind, "a value"));
  }
  if (tensors < 0 || static_cast<std::uint64_t>(tensors) > r.left() / 24)
    r.fail("it claims " + std::to_string(tensors) + " tensors, more than fit into it");
  std::vector<std::uint64_t> offsets;
  for (std::int64_t i = 0; i < tensors; ++i) {
    Weight weight;
    weight.name = r.string("the name of a tensor");
    const auto axes = r.read<std::uint32_t>("the axes of a tensor");
    if (axes > 8) r.fail("the tensor '" + weight.name + "' has " + std::to_string(axes) + " axes");
    std::uint64_t numbers = 1;
    for (std::uint32_t d = 0; d < axes; ++d) {
      const auto extent = r.read<std::int64_t>("the extent of a tensor");
      if (extent < 1 || numbers > (std::uint64_t{1} << 48) / static_cast<std::uint64_t>(extent))
        r.fail("the tensor '" + weight.name + "' has the extent " + std::to_string(extent));
      numbers *= static_cast<std::uint64_t>(extent);
      weight.shape.insert(weight.shape.begin(), extent);
    }
    const auto type = r.read<std::int32_t>("the type of a tensor");
    weight.type = type_of(type);
    if (!weight.type)
      r.fail("the tensor '" + weight.name + "' has the type number " + std::to_string(type) +
             "; F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K are read");
    weight.dtype = to_string(*weight.type);
    const std::int64_t row = weight.shape.empty() ? 1 : weight.shape.back();
    if (row % block_numbers(*weight.type) != 0)
      r.fail("the tensor '" + weight.name + "' has rows of " + std::to_string(row) +
             " numbers, not a multiple of the " + std::to_string(block_numbers(*weight.type)) + " of " +
             weight.dtype);
    weight.bytes = static_cast<std::size_t>(row_bytes(*weight.type, static_cast<std::ptrdiff_t>(numbers)));
    offsets.push_back(r.read<std::uint64_t>("the place of a tensor"));
    weights.push_back(std::move(weight));
  }
  const int alignment = settings.whole("general.alignment", 32, 1);
  if (!std::has_single_bit(static_cast<unsigned>(alignment)))
    r.fail("general.alignment is " + std::to_string(alignment) + ", not a power of two");
  const std::size_t unit = static_cast<std::size_t>(alignment);
  const std::size_t begin = (r.at() + unit - 1) / unit * unit;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (offsets[i] % unit != 0 || begin > bytes.size() || offsets[i] > bytes.size() - begin ||
        weights[i].bytes > bytes.size() - begin - offsets[i])
      r.fail("the tensor '" + weights[i].name + "' lies at byte " + std::to_string(offsets[i]) +
             " of the data, which is not aligned or goes beyond the end of the file");
    weights[i].data = bytes.data() + begin + offsets[i];
    places.emplace_back(offsets[i], offsets[i] + weights[i].bytes);
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].first < places[i - 1].second) r.fail("two of its tensors overlap");
}

}  // namespace ttr::model
