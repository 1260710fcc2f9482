#include "csv.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_bytes = 1 << 20, longest_row = 16 << 20;

}  // namespace

CsvReader::CsvReader(ByteSource bytes, HeaderLine header) : bytes_(std::move(bytes)) {
  buffer_.resize(block_bytes);
  while (end_ < 3 && fill()) {
  }
  if (end_ >= 3 && std::memcmp(buffer_.data(), "\xef\xbb\xbf", 3) == 0) begin_ = 3;
  skip_comments();
  detect_separator();
  if (!read_fields()) throw Error(fmt::format("{} holds no row, only empty lines", bytes_.name()), bytes_.name());
  if (std::any_of(fields_.begin(), fields_.end(), [](auto f) { return f.find('\0') != f.npos; }))
    throw Error(fmt::format("{} does not look like text: line {} holds a zero byte; give a CSV or .npy file",
                            bytes_.name(), line_),
                fmt::format("line {}", line_));
  const bool any_text = std::any_of(fields_.begin(), fields_.end(), [&](std::string_view field) {
    double ignored;
    return parse(field, ignored) == Parsed::text && !means_missing(field);
  });
  has_header_ = header == HeaderLine::yes || (header == HeaderLine::automatic && any_text);
  for (std::size_t c = 0; c < fields_.size(); ++c) {
    std::string_view name = fields_[c];
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    names_.push_back(has_header_ && !name.empty() ? std::string(name) : std::to_string(c + 1));
  }
  pending_ = !has_header_;
}

bool CsvReader::fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_, begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t n = bytes_.read(buffer_.data() + end_, buffer_.size() - end_);
  if (n == 0) at_end_ = true;
  end_ += n;
  return n > 0;
}

std::size_t CsvReader::line_end(std::size_t from) {
  std::size_t offset = from - begin_;
  bool in_quotes = false;
  for (;; ++offset) {
    if (begin_ + offset == end_ && (offset > longest_row || !fill())) break;  // fill moves what is buffered
    const char c = buffer_[begin_ + offset];
    if (c == '"') in_quotes = !in_quotes;
    if (!in_quotes && c == '\n') break;
  }
  return begin_ + offset;
}

void CsvReader::skip_comments() {
  while (end_ > begin_ || fill()) {
    if (buffer_[begin_] != '#' && buffer_[begin_] != '\n' && buffer_[begin_] != '\r') return;
    begin_ = std::min(line_end(begin_) + 1, end_);
    ++next_line_;
  }
}

void CsvReader::detect_separator() {
  std::size_t end = line_end(begin_);
  bool in_quotes = false, tab = false, semicolon = false, bar = false, comma = false, blank = false;
  for (std::size_t i = begin_; i < end; ++i) {
    const char c = buffer_[i];
    if (c == '"') in_quotes = !in_quotes;
    if (in_quotes) continue;
    tab |= c == '\t', semicolon |= c == ';', bar |= c == '|', comma |= c == ',', blank |= c == ' ';
  }
  separator_ = tab ? '\t' : semicolon ? ';' : bar ? '|' : ',';
  if (separator_ != ',' || comma || !blank) return;
  const auto words = [&](std::size_t from, std::size_t to) {
    int count = 0;
    for (std::size_t i = from; i < to; ++i) count += buffer_[i] > ' ' && (i == from || buffer_[i - 1] == ' ');
    return count;
  };
  const int first = words(begin_, end);
  if (first < 2) return;
  const std::size_t length = end - begin_;
  const std::size_t second = line_end(std::min(end + 1, end_));  // may move what is buffered
  end = begin_ + length;
  if (end >= second || words(std::min(end + 1, second), second) == first) separator_ = ' ';
}

bool CsvReader::split_line() {
  // Finds the end of the line first, since fill() moves the bytes; then cuts it up in place.
  std::size_t position = begin_;
  bool in_quotes = false, any_quote = false;
  std::int64_t line_ends = 0;
  for (;;) {
    if (position == end_) {
      const std::size_t offset = position - begin_;
      if (offset > longest_row)
        throw Error(fmt::format("the row that starts on line {} of {} is longer than 16 MB{}; is this a CSV file?",
                                next_line_, bytes_.name(), in_quotes ? " (a quote was opened and not closed)" : ""),
                    fmt::format("line {}", next_line_));
      const bool more = fill();
      position = begin_ + offset;                     // fill moves what is buffered
      if (!more && interrupted() != 0) return false;  // half a row is not a row
      if (!more) break;
    }
    if (!in_quotes && !any_quote) {
      // The common case: nothing quoted, so the next line end ends the row.
      const char* from = buffer_.data() + position;
      const char* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - position));
      const char* stop = newline ? newline : buffer_.data() + end_;
      if (!std::memchr(from, '"', static_cast<std::size_t>(stop - from))) {
        position = static_cast<std::size_t>(stop - buffer_.data());
        if (newline) break;
        continue;
      }
      any_quote = true;
    }
    const char c = buffer_[position];
    if (c == '"') in_quotes = !in_quotes;
    if (c == '\n') {
      if (!in_quotes) break;
      ++line_ends;
    }
    ++position;
  }
  if (position == begin_ && position == end_ && at_end_) return false;
  line_ = next_line_;
  next_line_ += line_ends + 1;
  open_quote_ = in_quotes;
  char* p = buffer_.data() + begin_;
  char* stop = buffer_.data() + position;
  begin_ = std::min(position + 1, end_);
  if (stop > p && stop[-1] == '\r') --stop;

  fields_.clear();
  if (separator_ == ' ') {
    for (;;) {
      while (p < stop && *p == ' ') ++p;
      if (p == stop) return true;
      char* const from = p;
      while (p < stop && *p != ' ') ++p;
      fields_.emplace_back(from, static_cast<std::size_t>(p - from));
    }
  }
  if (!any_quote) {
    for (;;) {
      char* cut = static_cast<char*>(std::memchr(p, separator_, static_cast<std::size_t>(stop - p)));
      if (!cut) break;
      fields_.emplace_back(p, static_cast<std::size_t>(cut - p));
      p = cut + 1;
    }
    fields_.emplace_back(p, static_cast<std::size_t>(stop - p));
    return true;
  }
  for (;;) {
    char* start = p;
    char* to = p;
    bool inside = false;
    while (p < stop && (inside || *p != separator_)) {
      if (*p != '"') {
        *to++ = *p++;
      } else if (inside && p + 1 < stop && p[1] == '"') {
        *to++ = '"', p += 2;
      } else {
        inside = !inside, ++p;
      }
    }
    fields_.emplace_back(start, static_cast<std::size_t>(to - start));
    if (p >= stop) return true;
    ++p;
  }
}

bool CsvReader::read_fields() {
  while (split_line()) {
    if (fields_.empty() || (!fields_[0].empty() && fields_[0][0] == '#')) continue;
    if (fields_.size() > 1 || !fields_[0].empty()) return true;
  }
  return false;
}

Parsed CsvReader::parse(std::string_view field, double& number) const {
  const Parsed parsed = parse_number(field, number);
  const std::size_t comma = field.find(',');
  if (parsed != Parsed::text || separator_ == ',' || comma == field.npos || field.find('.') != field.npos)
    return parsed;
  std::string with_point(field);
  with_point[comma] = '.';
  return parse_number(with_point, number);
}

CsvReader::ColumnKind CsvReader::kind(int column) {
  if (!pending_ && rows_ == 0) pending_ = read_fields();
  if (!pending_ || fields_.size() != names_.size()) return ColumnKind::number;
  double ignored;
  const std::string_view field = fields_[static_cast<std::size_t>(column)];
  if (parse(field, ignored) != Parsed::text || means_missing(field)) return ColumnKind::number;
  return parse_date(field, ignored) ? ColumnKind::date : ColumnKind::text;
}

CsvReader::Read CsvReader::refuse(std::string message, std::string where) {
  bad_.message = std::move(message), bad_.where = std::move(where);
  return Read::bad;
}

CsvReader::Read CsvReader::next(double* out) {
  if (!pending_ && !read_fields()) return Read::end;
  pending_ = false;
  ++rows_;
  if (open_quote_)
    return refuse(fmt::format("line {} of {} opens a quote that is never closed", line_, bytes_.name()),
                  fmt::format("line {}", line_));
  if (fields_.size() != names_.size())
    return refuse(
        fmt::format("line {} of {} has {} field{} where {} has {}", line_, bytes_.name(), fields_.size(),
                    fields_.size() == 1 ? "" : "s", has_header_ ? "the header" : "the first row", names_.size()),
        fmt::format("line {}", line_));
  for (std::size_t i = 0; i < selected_.size(); ++i) {
    const int column = selected_[i];
    const std::string_view field = fields_[static_cast<std::size_t>(column)];
    if (ColumnEncoder* const encoder = i < encoders_.size() ? encoders_[i] : nullptr) {
      if (!encoder->encode(field, out)) {
        const std::string where = fmt::format("line {}, column '{}'", line_, names_[column]);
        return refuse(fmt::format("the value {} on {} of {} is not {}", shown_value(field), where, bytes_.name(),
                                  encoder->expected()),
                      where);
      }
      out += encoder->width();
      continue;
    }
    const Parsed parsed = parse(field, *out++);
    if (parsed == Parsed::number) continue;
    if (i < optional_.size() && optional_[i] && means_missing(field)) {
      out[-1] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const std::string where = has_header_ ? fmt::format("line {}, column '{}'", line_, names_[column])
                                          : fmt::format("line {}, column {}", line_, column + 1);
    if (parsed == Parsed::empty)
      return refuse(fmt::format("the value on {} of {} is empty; a number belongs there", where, bytes_.name()),
                    where);
    const bool text = parsed == Parsed::text && !means_missing(field);
    return refuse(fmt::format("the value {} on {} of {} {}{}", shown_value(field), where, bytes_.name(), why(parsed),
                              text && rows_ == 1 ? "; columns of text, dates among them, must be left out: name the "
                                                   "others with --keys and --values"
                                                 : ""),
                  where);
  }
  return Read::row;
}

bool CsvReader::ready() const {
  if (pending_) return true;
  return std::memchr(buffer_.data() + begin_, '\n', end_ - begin_) != nullptr;
}

double CsvReader::share() const {
  if (bytes_.size() <= 0) return -1;
  return static_cast<double>(bytes_.position() - static_cast<std::int64_t>(end_ - begin_)) /
         static_cast<double>(bytes_.size());
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",;|\t\"\r\n#") == text.npos) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace ttr::cli
