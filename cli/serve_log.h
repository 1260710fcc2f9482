// What models have learned since they were last written to disk: an append-only file, so that a server that is killed loses
// nothing that it has acknowledged.
//
//   file     "ttr-log" and a version, then records
//   record   bytes of the rest (u32), checksum of the rest (u64, FNV-1a);  kind (u8), model (u64), number (u64), bytes
//   made     a model of this name has this id; every file begins with those that there are
//   gone     the model with this id is deleted
//   row      the model's row of this number, as JSON
//
// A row is appended before it is learned, with one write(2): a process that dies at any point leaves whole records and at
// most one that is cut off at the end, which was not acknowledged. With `sync` a record is also on the disk (fdatasync),
// many writers sharing one wait, which is what a power cut needs. Files are numbered; when one is full a new one is begun, all
// models are written, and the old one is deleted: what is in both is told apart by the numbers of the rows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

struct LogRecord {
  enum class Kind : std::uint8_t { made, gone, row };
  Kind kind = Kind::row;
  std::uint64_t model = 0, number = 0;
  std::string_view bytes;
};

class ServeLog {
 public:
  ServeLog(std::string folder, bool sync) : folder_(std::move(folder)), sync_(sync) {}
  ~ServeLog();
  ServeLog(const ServeLog&) = delete;
  ServeLog& operator=(const ServeLog&) = delete;

  /// All records of all files, in their order. Returns the number of bytes at ends of files that are no whole record. Throws
  /// Error for a file that is no log.
  std::int64_t replay(const std::function<void(const LogRecord&)>& each);
  /// Begins a file that starts with `records`; the ones before it are complete.
  void begin(const std::vector<LogRecord>& records);
  /// Appends all or nothing. Throws Error, and then nothing was appended. Returns a mark for wait().
  std::uint64_t append(const std::vector<LogRecord>& records);
  /// Returns when everything up to the mark is on the disk, if that is wanted.
  void wait(std::uint64_t mark);
  /// Deletes all files but the newest.
  void delete_old();
  /// Deletes all files: there is nothing in them that is not in the models.
  void delete_all();
  /// Bytes of the newest file.
  std::int64_t size() const { return size_; }

 private:
  std::vector<std::uint64_t> numbers() const;  // of the files that there are
  std::string path(std::uint64_t number) const;
  void write_all(std::string_view bytes);

  std::string folder_;
  bool sync_;
  mutable std::mutex mutex_;
  std::mutex sync_mutex_;
  int descriptor_ = -1;
  bool broken_ = false;  // half a record stands at the end of the file, and cannot be taken away
  std::uint64_t number_ = 0, written_ = 0, synced_ = 0;  // marks are bytes written in the life of this object
  std::atomic<std::int64_t> size_ = 0;                   // asked with every request
  std::string buffer_;
};

}  // namespace ttr::cli
