#include "serve_log.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "archive.h"
#include "regress_input.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::string_view magic = "ttr-log\1";
constexpr std::size_t head = sizeof(std::uint32_t) + sizeof(std::uint64_t), fixed = 1 + 2 * sizeof(std::uint64_t);

template <class T>
void put(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class T>
T take(std::string_view& from) {
  T number;
  std::memcpy(&number, from.data(), sizeof number);
  from.remove_prefix(sizeof number);
  return number;
}

void put_record(std::string& to, const LogRecord& record) {
  put(to, static_cast<std::uint32_t>(fixed + record.bytes.size()));
  const std::size_t sum_at = to.size();
  put(to, std::uint64_t{0});
  const std::size_t from = to.size();
  put(to, static_cast<std::uint8_t>(record.kind)), put(to, record.model), put(to, record.number);
  to += record.bytes;
  const std::uint64_t sum = checksum(std::string_view(to).substr(from));
  std::memcpy(to.data() + sum_at, &sum, sizeof sum);
}

}  // namespace

ServeLog::~ServeLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string ServeLog::path(std::uint64_t number) const { return fmt::format("{}/{}.log", folder_, number); }

std::vector<std::uint64_t> ServeLog::numbers() const {
  std::vector<std::uint64_t> list;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && std::string_view(end) == ".log") list.push_back(number);
  }
  std::sort(list.begin(), list.end());
  return list;
}

std::int64_t ServeLog::replay(const std::function<void(const LogRecord&)>& each) {
  std::int64_t cut_off = 0;
  for (const std::uint64_t number : numbers()) {
    number_ = std::max(number_, number);
    ByteSource source(path(number));
    std::string bytes;
    char block[1 << 16];
    while (const std::size_t n = source.read(block, sizeof block)) bytes.append(block, n);
    std::string_view rest = bytes;
    if (!rest.starts_with(magic.substr(0, std::min(rest.size(), magic.size()))))
      throw Error(fmt::format("'{}' is not a log of `ttr serve`; move it out of the folder", path(number)), folder_);
    rest.remove_prefix(std::min(rest.size(), magic.size()));
    while (rest.size() >= head) {
      std::string_view record = rest;
      const auto length = take<std::uint32_t>(record);
      const auto sum = take<std::uint64_t>(record);
      if (length < fixed || record.size() < length || checksum(record.substr(0, length)) != sum) break;
      rest = record.substr(length);
      record = record.substr(0, length);
      LogRecord one;
      one.kind = static_cast<LogRecord::Kind>(take<std::uint8_t>(record));
      one.model = take<std::uint64_t>(record), one.number = take<std::uint64_t>(record);
      one.bytes = record;
      each(one);
    }
    cut_off += static_cast<std::int64_t>(rest.size());
  }
  return cut_off;
}

void ServeLog::begin(const std::vector<LogRecord>& records) {
  std::string start(magic);
  for (const LogRecord& record : records) put_record(start, record);
  const std::lock_guard sync_lock(sync_mutex_);  // nobody waits for the file before; always taken before the other
  const std::lock_guard lock(mutex_);
  const std::string name = path(number_ + 1);
  const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0600);
  if (descriptor < 0) throw Error(fmt::format("cannot write '{}': {}", name, std::strerror(errno)), folder_);
  if (sync_ && descriptor_ >= 0) ::fdatasync(descriptor_), synced_ = written_;
  const int before = descriptor_;
  const std::int64_t size_before = size_;
  descriptor_ = descriptor, size_ = 0;
  try {
    write_all(start);
  } catch (const Error&) {
    ::close(descriptor), ::unlink(name.c_str());
    descriptor_ = before, size_ = size_before;
    throw;
  }
  if (before >= 0) ::close(before);
  broken_ = false;
  ++number_;
}

// With mutex_ held.
void ServeLog::write_all(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = errno;
      // Half a record would hide all that is appended after it.
      if (done > 0 && ::ftruncate(descriptor_, size_) != 0) broken_ = true;
      throw Error(fmt::format("cannot write the log in '{}': {}", folder_, std::strerror(reason)), folder_);
    }
    done += static_cast<std::size_t>(n);
  }
  size_ += static_cast<std::int64_t>(bytes.size()), written_ += bytes.size();
}

std::uint64_t ServeLog::append(const std::vector<LogRecord>& records) {
  const std::lock_guard lock(mutex_);
  if (broken_)
    throw Error(fmt::format("the log in '{}' could not be written; POST /save begins a new one", folder_), folder_);
  buffer_.clear();
  for (const LogRecord& record : records) put_record(buffer_, record);
  write_all(buffer_);
  return written_;
}

void ServeLog::wait(std::uint64_t mark) {
  if (!sync_) return;
  const std::lock_guard lock(sync_mutex_);
  if (synced_ >= mark) return;  // the one before waited for this one too
  std::uint64_t now = 0;
  int descriptor = -1;
  {
    const std::lock_guard write_lock(mutex_);
    now = written_, descriptor = descriptor_;
  }
  if (::fdatasync(descriptor) != 0)
    throw Error(fmt::format("cannot write the log in '{}': {}", folder_, std::strerror(errno)), folder_);
  synced_ = now;
}

void ServeLog::delete_old() {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t number : numbers())
    if (number < number_) ::unlink(path(number).c_str());
}

void ServeLog::delete_all() {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t number : numbers()) ::unlink(path(number).c_str());
}

}  // namespace ttr::cli
