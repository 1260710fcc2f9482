#include "npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {

static_assert(std::endian::native == std::endian::little, ".npy files are read and written as little endian");

namespace {

constexpr std::size_t block_bytes = 1 << 20, longest_header = 1 << 16;

/// The text after `'key':` in a Python dict; empty if the key is not there.
std::string_view dict_value(std::string_view dict, std::string_view key) {
  for (char quote : {'\'', '"'}) {
    const std::string word = quote + std::string(key) + quote;
    const std::size_t at = dict.find(word);
    if (at == dict.npos) continue;
    const std::size_t colon = dict.find(':', at + word.size());
    if (colon == dict.npos) return {};
    const std::size_t first = dict.find_first_not_of(" \t", colon + 1);
    return first == dict.npos ? std::string_view() : dict.substr(first);
  }
  return {};
}

template <class T>
double load(const char* from) {
  T number;
  std::memcpy(&number, from, sizeof number);
  return static_cast<double>(number);
}

}  // namespace

NpyReader::NpyReader(ByteSource bytes) : bytes_(std::move(bytes)) { read_header(); }

void NpyReader::read_exactly(char* data, std::size_t count) {
  while (count > 0) {
    const std::size_t n = bytes_.read(data, count);
    if (n == 0)
      throw Error(fmt::format("{} ends inside its .npy header; the file is cut off", bytes_.name()), "header");
    data += n, count -= n;
  }
}

void NpyReader::read_header() {
  auto refuse = [&](const std::string& message) -> Error { return Error(bytes_.name() + " " + message, "header"); };
  unsigned char start[10];
  read_exactly(reinterpret_cast<char*>(start), 10);
  std::size_t length = start[8] | static_cast<std::size_t>(start[9]) << 8;
  if (start[6] == 2 || start[6] == 3) {
    unsigned char more[2];
    read_exactly(reinterpret_cast<char*>(more), 2);
    length |= static_cast<std::size_t>(more[0]) << 16 | static_cast<std::size_t>(more[1]) << 24;
  } else if (start[6] != 1) {
    throw refuse(fmt::format("is .npy version {}; versions 1, 2 and 3 are known", start[6]));
  }
  if (length > longest_header) throw refuse(fmt::format("claims a .npy header of {} bytes; it is damaged", length));
  std::string dict(length, '\0');
  read_exactly(dict.data(), length);

  const std::string_view descr = dict_value(dict, "descr"), order = dict_value(dict, "fortran_order"),
                         shape = dict_value(dict, "shape");
  if (descr.empty() || order.empty() || shape.empty() || shape[0] != '(')
    throw refuse("has a .npy header without descr, fortran_order and shape; it is damaged");
  if (descr[0] != '\'' && descr[0] != '"')
    throw refuse("holds records with named fields; save a plain 2-D array of numbers");
  const std::string type(descr.substr(1, std::min(descr.find(descr[0], 1), descr.size()) - 1));
  const std::pair<std::string_view, Kind> kinds[] = {
      {"f4", Kind::f4}, {"f8", Kind::f8}, {"i4", Kind::i4}, {"i8", Kind::i8}};
  const auto found = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) {
    return type == "<" + std::string(k.first) || type == "=" + std::string(k.first);
  });
  if (found == std::end(kinds))
    throw refuse(
        type.starts_with(">")
            ? fmt::format("is big endian ({}); save it with array.astype('<f8')", shown_value(type))
            : fmt::format("holds numbers of type {}; float32, float64, int32 and int64 are read; save it with "
                          "array.astype('f8')",
                          shown_value(type)));
  kind_ = found->second;
  item_bytes_ = kind_ == Kind::f4 || kind_ == Kind::i4 ? 4 : 8;

  std::vector<std::int64_t> extents;
  for (std::size_t i = 1; i < shape.size() && shape[i] != ')';) {
    if (shape[i] == ' ' || shape[i] == ',' || shape[i] == 'L') {
      ++i;
      continue;
    }
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(shape.data() + i, shape.data() + shape.size(), extent);
    if (error != std::errc() || extent < 0) throw refuse("has a .npy header with an unreadable shape; it is damaged");
    extents.push_back(extent);
    i = static_cast<std::size_t>(end - shape.data());
  }
  if (extents.size() != 1 && extents.size() != 2)
    throw refuse(
        fmt::format("is an array of {} axes; rows and columns are two; save it with array.reshape(len(array), -1)",
                    extents.size()));
  total_rows_ = extents[0];
  const std::int64_t columns = extents.size() == 2 ? extents[1] : 1;
  if (order.starts_with("True") && columns > 1 && total_rows_ > 1)
    throw refuse("is in Fortran order, column after column; save it with numpy.ascontiguousarray(array)");
  if (total_rows_ == 0 || columns == 0)
    throw refuse(fmt::format("is an empty array ({} x {}); there is no row to learn from", total_rows_, columns));
  if (columns > (std::int64_t{1} << 24)) throw refuse(fmt::format("claims {} columns; it is damaged", columns));
  for (std::int64_t c = 1; c <= columns; ++c) names_.push_back(std::to_string(c));
  row_bytes_ = static_cast<std::size_t>(columns) * item_bytes_;
  buffer_.resize(std::max(block_bytes, row_bytes_));
}

bool NpyReader::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_, begin_ = 0;
  const std::size_t n = bytes_.read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += n;
  return n > 0;
}

NpyReader::Read NpyReader::next(double* out) {
  if (rows_ == total_rows_) return Read::end;
  while (end_ - begin_ < row_bytes_)
    if (!fill()) {
      if (interrupted() != 0) return Read::end;
      throw Error(fmt::format("{} is cut off: its header promises {} rows, but it ends after row {}", bytes_.name(),
                              total_rows_, rows_),
                  fmt::format("row {}", rows_ + 1));
    }
  const char* row = buffer_.data() + begin_;
  begin_ += row_bytes_;
  ++rows_;
  for (std::size_t i = 0; i < selected_.size(); ++i) {
    const int column = selected_[i];
    const char* item = row + static_cast<std::size_t>(column) * item_bytes_;
    double number = 0;
    switch (kind_) {
      case Kind::f4:
        number = load<float>(item);
        break;
      case Kind::f8:
        number = load<double>(item);
        break;
      case Kind::i4:
        number = load<std::int32_t>(item);
        break;
      case Kind::i8:
        number = load<std::int64_t>(item);
        break;
    }
    const bool missing = std::isnan(number) && i < optional_.size() && optional_[i];
    if (!std::isfinite(number) && !missing) {
      bad_.where = fmt::format("row {}, column {}", rows_, column + 1);
      bad_.message = fmt::format("the value '{}' in {} of {} is not finite", number, bad_.where, bytes_.name());
      return Read::bad;
    }
    if (i < encoders_.size() && encoders_[i]) {
      encoders_[i]->encode(fmt::format("{}", number), out);  // every number is a date, and a word
      out += encoders_[i]->width();
    } else {
      *out++ = number;
    }
  }
  return Read::row;
}

std::string npy_header(std::int64_t rows, std::int64_t columns) {
  std::string dict = fmt::format("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  const std::size_t longest = dict.size() - std::to_string(rows).size() + 19;  // 19 digits hold every 64-bit count
  return npy_header(std::move(dict), longest);
}

std::string npy_header(std::string dict, std::size_t longest) {
  longest = std::max(longest, dict.size());
  const std::size_t total = (10 + longest + 1 + 63) / 64 * 64;
  dict.resize(total - 10 - 1, ' ');
  dict += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01', header += '\0';
  header += static_cast<char>(dict.size() & 0xff), header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace ttr::cli
