#include "ndjson.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_bytes = 1 << 20, longest_row = 16 << 20;

}  // namespace

NdjsonReader::NdjsonReader(ByteSource bytes) : bytes_(std::move(bytes)), buffer_(block_bytes) {
  if (!read_line()) throw Error(fmt::format("{} holds no row, only empty lines", bytes_.name()), bytes_.name());
  if (!not_an_object_.empty())
    throw Error(
        fmt::format("line 1 of {} is not a JSON object on a line of its own: {}; `jq -c .` writes one per line, `jq "
                    "-c '.[]'` those of a list",
                    bytes_.name(), not_an_object_),
        "line 1");
  for (std::size_t i = 0; i < fields_.count; ++i) names_.push_back(fields_.fields[i].name);
  if (names_.empty()) throw Error(fmt::format("the first object of {} has no fields", bytes_.name()), "line 1");
  row_.resize(names_.size());
  pending_ = true;
}

bool NdjsonReader::read_line() {
  for (;;) {
    const char* newline = nullptr;
    for (std::size_t looked = begin_;
         !(newline = static_cast<const char*>(std::memchr(buffer_.data() + looked, '\n', end_ - looked)));) {
      if (at_end_) break;
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_, begin_ = 0, looked = end_;
      if (end_ > longest_row)
        throw Error(fmt::format("line {} of {} is longer than 16 MB; are rows on lines of their own?", line_ + 1,
                                bytes_.name()),
                    fmt::format("line {}", line_ + 1));
      if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
      const std::size_t n = bytes_.read(buffer_.data() + end_, buffer_.size() - end_);
      if (n == 0) at_end_ = true;
      end_ += n;
    }
    if (begin_ == end_ || (!newline && interrupted() != 0)) return false;  // half a row is not a row
    const std::size_t stop = newline ? static_cast<std::size_t>(newline - buffer_.data()) : end_;
    std::string_view text(buffer_.data() + begin_, stop - begin_);
    begin_ = std::min(stop + 1, end_);
    ++line_;
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (text.empty()) continue;
    not_an_object_ = fields_.read(text);
    return true;
  }
}

NdjsonReader::ColumnKind NdjsonReader::kind(int column) {
  if (!pending_ || static_cast<std::size_t>(column) >= fields_.count) return ColumnKind::number;
  const FlatJson::Field& field = fields_.fields[static_cast<std::size_t>(column)];
  double ignored;
  if (field.kind == FlatJson::Kind::list) return ColumnKind::text;
  if (field.kind != FlatJson::Kind::text || means_missing(field.text) ||
      parse_number(field.text, ignored) == Parsed::number)
    return ColumnKind::number;
  return parse_date(field.text, ignored) ? ColumnKind::date : ColumnKind::text;
}

NdjsonReader::Read NdjsonReader::refuse(std::string message, std::string where) {
  bad_.message = std::move(message), bad_.where = std::move(where);
  return Read::bad;
}

NdjsonReader::Read NdjsonReader::next(double* out) {
  using Kind = FlatJson::Kind;
  if (!pending_ && !read_line()) return Read::end;
  pending_ = false;
  ++rows_;
  if (!not_an_object_.empty())
    return refuse(fmt::format("line {} of {} is not a JSON object: {}", line_, bytes_.name(), not_an_object_),
                  fmt::format("line {}", line_));
  for (std::size_t c = 0; c < names_.size(); ++c) {
    // Nearly always where it was in the first row.
    row_[c] = c < fields_.count && fields_.fields[c].name == names_[c] ? &fields_.fields[c] : nullptr;
    for (std::size_t i = 0; !row_[c] && i < fields_.count; ++i)
      if (fields_.fields[i].name == names_[c]) row_[c] = &fields_.fields[i];
  }
  for (std::size_t i = 0; i < selected_.size(); ++i) {
    const FlatJson::Field* const field = row_[static_cast<std::size_t>(selected_[i])];
    const std::string& name = names_[static_cast<std::size_t>(selected_[i])];
    const auto where = [&] { return fmt::format("line {}, field '{}'", line_, name); };
    const bool absent =
        !field || field->kind == Kind::null || (field->kind == Kind::text && means_missing(field->text));
    if (ColumnEncoder* const encoder = i < encoders_.size() ? encoders_[i] : nullptr) {
      const std::string text = absent                        ? std::string()
                               : field->kind == Kind::number ? fmt::format("{}", field->number)
                                                             : field->text;
      if ((field && field->kind == Kind::list) || !encoder->encode(text, out))
        return refuse(fmt::format("the value {} on {} of {} is not {}", shown_value(text), where(), bytes_.name(),
                                  encoder->expected()),
                      where());
      out += encoder->width();
      continue;
    }
    double& number = *out++;
    if (absent) {
      if (i < optional_.size() && optional_[i]) {
        number = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      return refuse(
          fmt::format("{} of {} is {}; a number belongs there", where(), bytes_.name(), field ? "null" : "absent"),
          where());
    }
    if (field->kind == Kind::list)
      return refuse(fmt::format("the value on {} of {} is a list; a number belongs there", where(), bytes_.name()),
                    where());
    number = field->number;
    const Parsed parsed = field->kind == Kind::text ? parse_number(field->text, number)
                          : std::isfinite(number)   ? Parsed::number
                                                    : Parsed::overflow;
    if (parsed != Parsed::number)
      return refuse(
          fmt::format("the value {} on {} of {} {}", shown_value(field->text), where(), bytes_.name(), why(parsed)),
          where());
  }
  return Read::row;
}

bool NdjsonReader::ready() const {
  return pending_ || std::memchr(buffer_.data() + begin_, '\n', end_ - begin_) != nullptr;
}

double NdjsonReader::share() const {
  if (bytes_.size() <= 0) return -1;
  return static_cast<double>(bytes_.position() - static_cast<std::int64_t>(end_ - begin_)) /
         static_cast<double>(bytes_.size());
}

}  // namespace ttr::cli
