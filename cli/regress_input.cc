#include "regress_input.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "csv.h"
#include "ndjson.h"
#include "npy.h"
#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {

ByteSource::ByteSource(const std::string& path) {
  if (path == "-") {
    descriptor_ = STDIN_FILENO, name_ = "standard input";
  } else {
    name_ = "'" + path + "'";
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) {
      const int reason = errno;
      throw Error(reason == ENOENT ? fmt::format("there is no file {}", name_)
                                   : fmt::format("cannot read {}: {}", name_, std::strerror(reason)),
                  path);
    }
  }
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return;
  if (S_ISDIR(info.st_mode)) {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
    throw Error(fmt::format("{} is a folder; give a CSV or .npy file", name_), path);
  }
  if (S_ISREG(info.st_mode)) size_ = info.st_size;
}

ByteSource ByteSource::from_text(std::string text) {
  ByteSource source;
  source.name_ = "text", source.size_ = static_cast<std::int64_t>(text.size());
  source.text_ = std::move(text);
  return source;
}

ByteSource::~ByteSource() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  if (child_ > 0) ::waitpid(child_, nullptr, 0);  // it ends by itself: nobody reads any more
}

bool ByteSource::unpack(const char* program) {
  if (size_ < 0 || ::lseek(descriptor_, 0, SEEK_SET) != 0) return false;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(fmt::format("cannot unpack {}: {}", name_, std::strerror(errno)), name_);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, descriptor_, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string word = program, option = "-dc";
  char* arguments[] = {word.data(), option.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    throw Error(fmt::format("{} is packed, and the program '{}' that unpacks it cannot be run: {}", name_, program,
                            std::strerror(error)),
                name_);
  }
  ::close(descriptor_);
  descriptor_ = ends[0], child_ = child, unpacker_ = program, size_ = -1, position_ = 0;
  text_.clear(), text_begin_ = 0;
  return true;
}

ByteSource::ByteSource(ByteSource&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      child_(std::exchange(other.child_, 0)),
      unpacker_(std::move(other.unpacker_)),
      name_(std::move(other.name_)),
      text_(std::move(other.text_)),
      text_begin_(other.text_begin_),
      size_(other.size_),
      position_(other.position_) {}

std::size_t ByteSource::read(char* data, std::size_t capacity) {
  if (text_begin_ < text_.size()) {
    const std::size_t n = std::min(capacity, text_.size() - text_begin_);
    std::memcpy(data, text_.data() + text_begin_, n);
    text_begin_ += n, position_ += static_cast<std::int64_t>(n);
    return n;
  }
  if (descriptor_ < 0) return 0;
  for (;;) {
    if (interrupted() != 0) return 0;
    if (size_ < 0) {
      // poll and not a plain read: a signal between the test above and the read would otherwise go unnoticed.
      pollfd waits[2] = {{descriptor_, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
      if (::poll(waits, waits[1].fd >= 0 ? 2 : 1, -1) < 0 && errno != EINTR) return 0;
      if (interrupted() != 0) return 0;
      if (waits[0].revents == 0) continue;
    }
    const ssize_t n = ::read(descriptor_, data, capacity);
    if (n == 0 && child_ > 0) {
      int status = 0;
      ::waitpid(std::exchange(child_, 0), &status, 0);
      if (status != 0) throw Error(fmt::format("'{}' could not unpack all of {}", unpacker_, name_), name_);
    }
    if (n >= 0) {
      position_ += n;
      return static_cast<std::size_t>(n);
    }
    if (errno == EBADF && descriptor_ == STDIN_FILENO)
      throw Error("standard input is closed; give it a file or a pipe, or name a file instead of '-'", name_);
    if (errno != EINTR && errno != EAGAIN)
      throw Error(fmt::format("cannot read {}: {}", name_, std::strerror(errno)), name_);
  }
}

std::string_view ByteSource::peek(std::size_t count) {
  char block[16];
  count = std::min(count, sizeof block);
  while (text_.size() - text_begin_ < count) {
    // What is not handed out yet does not count as read.
    std::string have = text_.substr(text_begin_);
    text_.clear(), text_begin_ = 0;
    const std::int64_t before = position_;
    const std::size_t n = read(block, count - have.size());
    position_ = before;
    text_ = have + std::string(block, n);
    if (n == 0) break;
  }
  return std::string_view(text_).substr(text_begin_, count);
}

Parsed parse_number(std::string_view field, double& number) {
  auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!field.empty() && blank(field.front())) field.remove_prefix(1);
  while (!field.empty() && blank(field.back())) field.remove_suffix(1);
  if (field.empty()) return Parsed::empty;
  if (field.front() == '+' && field.size() > 1 && field[1] != '-' && field[1] != '+') field.remove_prefix(1);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (end != field.data() + field.size() || error == std::errc::invalid_argument) return Parsed::text;
  if (error == std::errc::result_out_of_range) {
    // from_chars does not say whether a number is too large or too close to zero; strtod does.
    number = std::strtod(std::string(field).c_str(), nullptr);
    return std::isinf(number) ? Parsed::overflow : Parsed::number;
  }
  return std::isfinite(number) ? Parsed::number : Parsed::not_finite;
}

std::string_view why(Parsed parsed) {
  switch (parsed) {
    case Parsed::number:
      return "is a number";
    case Parsed::empty:
      return "is empty";
    case Parsed::text:
      return "is not a number";
    case Parsed::not_finite:
      return "is not finite";
    case Parsed::overflow:
      return "is too large for a double (1.8e308)";
  }
  return "";
}

bool means_missing(std::string_view field) {
  std::string lower;
  for (char c : field)
    if (c != ' ') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.empty() || lower == "na" || lower == "n/a" || lower == "null" || lower == "none" || lower == "?";
}

std::string meant(std::string_view word, const std::vector<std::string>& names) {
  const auto lower = [](std::string_view text) {
    std::string out;
    for (char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  const std::string wanted = lower(word);
  for (const std::string& name : names)
    if (lower(name) == wanted) return name;
  for (const std::string& name : names)
    if (!wanted.empty() && !name.empty() && (lower(name).starts_with(wanted) || wanted.starts_with(lower(name))))
      return name;
  return "";
}

std::string shown_value(std::string_view value) {
  std::string out = "'";
  std::size_t shown = 0;
  for (char c : value) {
    // Never in the middle of a UTF-8 character.
    if (++shown > 40 && (static_cast<unsigned char>(c) & 0xc0) != 0x80) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) out += fmt::format("\\x{:02x}", byte);
    else out += c;
  }
  return out + "'";
}

std::vector<int> find_columns(const std::vector<std::string>& wanted, const RowSource& source,
                              const std::string& option) {
  const std::vector<std::string>& names = source.names();
  const int count = static_cast<int>(names.size());
  auto number_of = [](std::string_view text) {
    int n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc() && end == text.data() + text.size() && !text.empty() ? n : 0;
  };
  auto all_names = [&] {
    std::string list;
    for (int c = 0; c < count && c < 20; ++c) list += (c ? ", " : "") + names[c];
    return list + (count > 20 ? ", ..." : "");
  };
  const auto hint = [&](const std::string& word) {
    const std::string name = meant(word, names);
    return name.empty() ? "" : fmt::format(", did you mean '{}'?", name);
  };
  std::vector<int> out;
  std::unordered_map<std::string_view, std::pair<int, int>> places;  // of a name: the first, and how many
  std::ptrdiff_t most_commas = 0;
  for (int c = 0; c < count; ++c) {
    ++places.try_emplace(names[c], c, 0).first->second.second;
    most_commas = std::max(most_commas, std::count(names[c].begin(), names[c].end(), ','));
  }
  // The list is cut at commas, unless pieces that follow each other make up a name that has commas itself.
  std::vector<std::string> pieces, words;
  for (const std::string& text : wanted)
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t to = std::min(text.find(',', from), text.size());
      pieces.push_back(text.substr(from, to - from));
      from = to + 1;
    }
  for (std::size_t i = 0; i < pieces.size();) {
    std::string joined = pieces[i], word = joined;
    std::size_t next = i + 1;
    const std::size_t end = std::min(pieces.size(), next + static_cast<std::size_t>(most_commas));
    for (std::size_t j = next; j < end; ++j) {
      joined += "," + pieces[j];
      if (places.contains(joined)) word = joined, next = j + 1;
    }
    words.push_back(word);
    i = next;
  }
  for (const std::string& word : words) {
    if (source.has_header()) {
      if (const auto found = places.find(word); found != places.end()) {
        if (found->second.second > 1)
          throw Error(fmt::format("two columns of {} are called '{}'; give the number of the one you mean",
                                  source.input_name(), word),
                      option);
        out.push_back(found->second.first);
        continue;
      }
    }
    const std::size_t dash = word.find('-');
    const int first = number_of(std::string_view(word).substr(0, dash));
    const int last = dash == std::string::npos ? first : number_of(std::string_view(word).substr(dash + 1));
    if (first < 1 || last < first || last > count)
      throw Error(source.has_header()
                      ? fmt::format("{} has no column '{}'{}; its {} columns are {}", source.input_name(), word,
                                    hint(word), count, all_names())
                      : fmt::format("{} has no column '{}': it has no header, so columns are numbers from 1 to {}",
                                    source.input_name(), word, count),
                  option);
    for (int c = first; c <= last; ++c) out.push_back(c - 1);
  }
  std::vector<bool> taken(names.size());
  for (const int c : out) {
    if (taken[static_cast<std::size_t>(c)]) throw Error(fmt::format("column '{}' is named twice", names[c]), option);
    taken[static_cast<std::size_t>(c)] = true;
  }
  return out;
}

namespace {
std::unique_ptr<RowSource> open_bytes(ByteSource bytes, const std::string& where, HeaderLine header);
}

std::unique_ptr<RowSource> open_rows(const std::string& path, HeaderLine header) {
  ByteSource bytes(path);
  const std::string start(bytes.peek(6));
  const std::string where = path == "-" ? "standard input" : path;
  if (start.empty()) {
    if (interrupted() != 0) throw Error("interrupted before the first row", where);
    throw Error(fmt::format("{} is empty; there is no row to learn from", bytes.name()), where);
  }
  struct Packed {
    std::string_view magic;
    const char* program;
  };
  for (const Packed& p : {Packed{"\x1f\x8b", "gzip"}, Packed{"BZh", "bzip2"}, Packed{"\x28\xb5\x2f\xfd", "zstd"},
                          Packed{"\xfd\x37zXZ", "xz"}})
    if (start.starts_with(p.magic) && bytes.unpack(p.program)) return open_bytes(std::move(bytes), where, header);
  return open_bytes(std::move(bytes), where, header);
}

namespace {

std::unique_ptr<RowSource> open_bytes(ByteSource bytes, const std::string& where, HeaderLine header) {
  const std::string start(bytes.peek(6));
  if (start == "\x93NUMPY") return std::make_unique<NpyReader>(std::move(bytes));
  struct Known {
    std::string_view magic, what, remedy;
  };
  const Known known[] = {{"\x1f\x8b", "gzip-compressed", "unpack it first: zcat FILE | ttr regress -"},
                         {"BZh", "bzip2-compressed", "unpack it first: bzcat FILE | ttr regress -"},
                         {"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first: zstdcat FILE | ttr regress -"},
                         {"\xfd"
                          "7zXZ",
                          "xz-compressed", "unpack it first: xzcat FILE | ttr regress -"},
                         {"PK\x03\x04", "a zip archive (.npz or .xlsx?)", "save the table as CSV or .npy"},
                         {"PAR1", "a Parquet file",
                          "turn it into CSV first: duckdb -c \"COPY 'FILE' TO 'rows.csv'\", or in Python "
                          "pandas.read_parquet('FILE').to_csv('rows.csv', index=False)"},
                         {"ARROW1", "an Arrow IPC file (Feather)",
                          "turn it into CSV first, in Python "
                          "pandas.read_feather('FILE').to_csv('rows.csv', index=False)"},
                         {"\xff\xff\xff\xff", "an Arrow IPC stream",
                          "turn it into CSV first, in Python "
                          "pyarrow.ipc.open_stream('FILE').read_pandas().to_csv('rows.csv', index=False)"},
                         {"\xff\xfe", "UTF-16 text", "save it as UTF-8"},
                         {"\xfe\xff", "UTF-16 text", "save it as UTF-8"}};
  const std::size_t bracket = start.find_first_not_of(" \t\r\n");
  if (bracket != start.npos && start[bracket] == '{') return std::make_unique<NdjsonReader>(std::move(bytes));
  if (bracket != start.npos && start[bracket] == '[')
    throw Error(fmt::format("{} is a list in JSON; one object per line is read: jq -c '.[]' FILE | ttr regress -",
                            bytes.name()),
                where);
  for (const Known& k : known)
    if (start.starts_with(k.magic)) throw Error(fmt::format("{} is {}; {}", bytes.name(), k.what, k.remedy), where);
  return std::make_unique<CsvReader>(std::move(bytes), header);
}

}  // namespace

}  // namespace ttr::cli
