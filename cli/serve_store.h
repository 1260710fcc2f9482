// Named models in a folder: NAME.ttr each, as `ttr regress --save` writes them, and the log of what they have learned since
// (serve_log.h). `ttr predict FOLDER/NAME.ttr rows.csv` reads a model; one that `ttr regress --save` has written is served if
// it is put there before the start.
//
// A row is appended to the log, then learned, then answered, all under the lock of its model, so the log has the rows of a
// model in their order. At the start every model is read and the rows of the log that it has not seen are learned again: the
// same rows in the same order, so the same bits. Models do not wait for each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve_log.h"
#include "serve_model.h"

namespace ttr::cli {

/// A request that cannot be served; `status` is that of HTTP.
class Refusal : public std::exception {
 public:
  Refusal(int status, std::string message) : status_(status), message_(std::move(message)) {}
  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  int status_;
  std::string message_;
};

/// A row of a request, and how it is written in the log.
struct RequestRow {
  JsonRow row;
  std::string text;
};

class ModelStore {
 public:
  struct Limits {
    std::size_t models = 10000;
    std::int64_t log_bytes = 64 << 20;  // of the log, before the models are written and it is begun anew
  };
  /// Reads what is in the folder, which is made if need be. `sync`: acknowledged rows survive a power cut. Throws Error, also
  /// if another server uses the folder.
  ModelStore(std::string folder, bool sync, Limits limits);
  ~ModelStore();
  ModelStore(const ModelStore&) = delete;
  ModelStore& operator=(const ModelStore&) = delete;

  /// Throw Refusal: 404, 409, 413, 400, 507.
  void make(const std::string& name, const Json& options);
  void remove(const std::string& name);
  std::vector<std::string> names() const;
  std::string describe(const std::string& name);
  /// Answers to all rows, JSON texts; one that is bad has {"error": {"message", "where"}} there, and the number of these is
  /// added to `bad`.
  std::vector<std::string> learn(const std::string& name, const std::vector<RequestRow>& rows, std::size_t& bad);
  std::vector<std::string> predict(const std::string& name, const std::vector<RequestRow>& rows, std::size_t& bad);
  /// Writes one model, or all that have learned something, and then begins the log anew.
  void save(const std::string& name);
  void save_all();
  /// True if the log has grown so long that it is time to save_all().
  bool log_is_long() const { return log_.size() > limits_.log_bytes; }
  std::int64_t log_bytes() const { return log_.size(); }
  std::size_t count() const;
  /// Rows that were learned again at the start, and bytes that were no whole record.
  std::int64_t replayed() const { return replayed_; }
  std::int64_t cut_off() const { return cut_off_; }
  /// After save_all(), at the end: the log is empty, and is deleted.
  void close();

 private:
  struct Entry {
    std::mutex mutex;
    std::string name;
    std::uint64_t id = 0;
    std::unique_ptr<ServedModel> model;
    std::int64_t saved_rows = -1;  // of the model in the folder
    bool deleted = false;
  };
  using EntryPointer = std::shared_ptr<Entry>;

  EntryPointer find(const std::string& name) const;
  std::string path(const std::string& name) const { return folder_ + "/" + name + ".ttr"; }
  void read_models();
  void replay();
  void write(Entry& entry);  // with its mutex held
  std::vector<LogRecord> table() const;

  std::string folder_;
  bool sync_;
  Limits limits_;
  int lock_ = -1;
  ServeLog log_;
  mutable std::shared_mutex models_mutex_;
  std::map<std::string, EntryPointer, std::less<>> models_;
  std::uint64_t next_id_ = 1;
  std::int64_t replayed_ = 0, cut_off_ = 0;
  std::mutex saving_;
};

/// True for a name of a model: 1 to 64 letters, digits, '.', '_' and '-', not starting with '.'.
bool is_model_name(std::string_view name);

}  // namespace ttr::cli
