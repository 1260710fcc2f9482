#include "csv.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_bytes = 1 << 20, longest_row = 16 << 20;
constexpr std::size_t beyond = 8;  // bytes behind the buffered ones that may be looked at

// The digits at p, at most eight, behind those that are there already; their count. All eight at once: bytes that are digits
// after subtracting '0' are below ten; pairs, then fours, then eights of them are joined by products (the first digit is in
// the lowest byte).
int add_digits(const char* p, std::uint64_t& digits) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  word ^= 0x3030303030303030;
  const std::uint64_t others = (word | (word + 0x7676767676767676)) & 0x8080808080808080;
  const int count = std::countr_zero(others) / 8;
  if (count == 0) return 0;
  word <<= 64 - 8 * count;
  word = (10 * word + (word >> 8)) & 0x00ff00ff00ff00ff;
  word = (100 * word + (word >> 16)) & 0x0000ffff0000ffff;
  word = (10000 * word + (word >> 32)) & 0x00000000ffffffff;
  digits = digits * powers[count] + word;
  return count;
}

// A decimal number at p, up to the first byte that does not belong to it; null if it is none, or if its digits times a
// power of ten are not both exact in double, which makes their product (or quotient) the nearest double there is.
const char* plain_number(const char* p, char point, double& number) {
  constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                               1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const bool negative = *p == '-';
  p += negative;
  std::uint64_t digits = 0;
  const char* const first = p;
  for (unsigned d; (d = static_cast<unsigned>(*p) - '0') < 10; ++p) digits = 10 * digits + d;
  std::ptrdiff_t count = p - first;
  int exponent = 0;
  if (*p == point) {
    const char* const fraction = ++p;
    for (int found = 8; found == 8; p += found) found = add_digits(p, digits);
    count += p - fraction, exponent = -static_cast<int>(p - fraction);
  }
  if (count == 0 || count > 15) return nullptr;
  if (*p == 'e' || *p == 'E') {
    ++p;
    const bool small = *p == '-';
    p += small || *p == '+' ? 1 : 0;
    const char* const start = p;
    int power = 0;
    for (unsigned d; (d = static_cast<unsigned>(*p) - '0') < 10 && p - start < 4; ++p)
      power = 10 * power + static_cast<int>(d);
    if (p == start) return nullptr;
    exponent += small ? -power : power;
  }
  if (exponent < -22 || exponent > 22) return nullptr;
  const double whole = static_cast<double>(digits);
  const double size = exponent < 0 ? whole / powers[-exponent] : whole * powers[exponent];
  number = size * (1 - 2 * negative);  // signs come as they like: no branch
  return p;
}

}  // namespace

void CsvReader::select(std::vector<int> columns, std::vector<bool> optional, std::vector<ColumnEncoder*> encoders) {
  selected_ = std::move(columns), optional_ = std::move(optional), encoders_ = std::move(encoders);
  targets_.clear();
  std::size_t place = 0;
  for (std::size_t i = 0; i < selected_.size(); ++i) {
    ColumnEncoder* const encoder = i < encoders_.size() ? encoders_[i] : nullptr;
    targets_.push_back({selected_[i], place, encoder});
    place += encoder ? static_cast<std::size_t>(encoder->width()) : 1;
  }
  std::stable_sort(targets_.begin(), targets_.end(),
                   [](const Target& a, const Target& b) { return a.column < b.column; });
}

bool CsvReader::plain_row(double* out) {
  if (begin_ >= whole_ || separator_ == ' ') return false;
  const char* p = buffer_.data() + begin_;
  if (*p == '#' || *p == '\n' || *p == '\r') return false;
  const char comma = separator_ == ',' ? '.' : ',';
  const int columns = static_cast<int>(names_.size());
  texts_.clear();
  auto target = targets_.begin();
  for (int c = 0; c < columns; ++c) {
    const char* end = nullptr;
    for (; target != targets_.end() && target->column == c && !target->encoder; ++target) {
      end = plain_number(p, '.', out[target->place]);
      if (end && *end == comma) end = plain_number(p, comma, out[target->place]);
      if (!end) return false;
    }
    if (!end)
      for (end = p; *end != separator_ && *end != '\n' && *end != '\r' && *end != '"';) ++end;
    for (; target != targets_.end() && target->column == c; ++target) {
      if (!target->encoder) return false;
      texts_.emplace_back(p, static_cast<std::size_t>(end - p));
    }
    if (c + 1 < columns) {
      if (*end != separator_) return false;
      p = end + 1;
      continue;
    }
    if (*end == '\r') ++end;
    if (*end != '\n') return false;
    p = end;
  }
  // Now that nothing else can go wrong; what an encoder refuses it is shown once more, which changes nothing.
  std::size_t text = 0;
  for (const Target& t : targets_)
    if (t.encoder && !t.encoder->encode(texts_[text++], out + t.place)) return false;
  begin_ = static_cast<std::size_t>(p - buffer_.data()) + 1;
  line_ = next_line_++;
  ++rows_;
  open_quote_ = false;
  return true;
}

CsvReader::CsvReader(ByteSource bytes, HeaderLine header) : bytes_(std::move(bytes)) {
  buffer_.resize(block_bytes + beyond);
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
    whole_ -= std::min(whole_, begin_), end_ -= begin_, begin_ = 0;
  }
  if (end_ + beyond == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t n = bytes_.read(buffer_.data() + end_, buffer_.size() - beyond - end_);
  if (n == 0) at_end_ = true;
  const void* const last = n > 0 ? ::memrchr(buffer_.data() + end_, '\n', n) : nullptr;
  if (last) whole_ = static_cast<std::size_t>(static_cast<const char*>(last) - buffer_.data()) + 1;
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
  if (!pending_ && plain_row(out)) return Read::row;
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
