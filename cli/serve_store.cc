#include "serve_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "atomic_file.h"
#include "regress_input.h"
#include "ttr/memory.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::string error_json(const Error& error) {
  const Json inner = Json::object().set("message", error.what()).set("where", error.where());
  return Json::object().set("error", inner).dump(-1);
}

std::string whole_file(const std::string& path) {
  ByteSource source(path);
  std::string bytes;
  char block[1 << 16];
  while (const std::size_t n = source.read(block, sizeof block)) bytes.append(block, n);
  return bytes;
}

}  // namespace

bool is_model_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

ModelStore::ModelStore(std::string folder, bool sync, Limits limits)
    : folder_(std::move(folder)), sync_(sync), limits_(limits), log_(folder_, sync) {
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (failed) throw Error(fmt::format("cannot make the folder '{}': {}", folder_, failed.message()), folder_);
  lock_ = ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) throw Error(fmt::format("cannot write to '{}': {}", folder_, std::strerror(errno)), folder_);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw Error(fmt::format("another `ttr serve` uses the folder '{}'; stop it, or give this one its own", folder_),
                folder_);
  }
  try {
    read_models();
    replay();
    save_all();  // so that a log is read once, and a start that fails does not do harm
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

ModelStore::~ModelStore() { ::close(lock_); }

void ModelStore::read_models() {
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().extension() != ".ttr") continue;
    const std::string name = file.path().stem().string();
    if (!is_model_name(name)) continue;  // among them files that were being written
    auto entry = std::make_shared<Entry>();
    entry->name = name;
    entry->model = std::make_unique<ServedModel>(whole_file(file.path().string()), file.path().string());
    entry->saved_rows = entry->model->rows();
    models_[name] = std::move(entry);
  }
}

// A name may have belonged to several models, one after the other: the file is that of the last, and so must be the rows.
void ModelStore::replay() {
  std::map<std::string, std::uint64_t, std::less<>> last;  // 0: deleted
  std::map<std::uint64_t, std::string> name_of;
  cut_off_ = log_.replay([&](const LogRecord& record) {
    next_id_ = std::max(next_id_, record.model + 1);
    if (record.kind == LogRecord::Kind::made) {
      name_of[record.model] = record.bytes;
      last[std::string(record.bytes)] = record.model;
    } else if (record.kind == LogRecord::Kind::gone && name_of.count(record.model) > 0) {
      last[name_of[record.model]] = 0;
    }
  });
  std::map<std::uint64_t, Entry*> alive;
  for (auto i = models_.begin(); i != models_.end();) {
    Entry& entry = *i->second;
    const auto found = last.find(i->first);
    if (found != last.end() && found->second == 0) {
      ::unlink(path(i->first).c_str());
      i = models_.erase(i);
      continue;
    }
    entry.id = found != last.end() ? found->second : next_id_++;  // a file that was put there
    alive[entry.id] = &entry;
    ++i;
  }
  log_.replay([&](const LogRecord& record) {
    const auto found = alive.find(record.model);
    if (record.kind != LogRecord::Kind::row || found == alive.end()) return;
    Entry& entry = *found->second;
    if (static_cast<std::int64_t>(record.number) != entry.model->rows() + 1) return;  // it has been written since
    std::string ignored;
    try {
      entry.model->learn(JsonRow::parse(record.bytes), ignored);
    } catch (const Error&) {  // it was bad then, too
    }
    ++replayed_;
  });
}

std::vector<LogRecord> ModelStore::table() const {
  std::vector<LogRecord> records;
  for (const auto& [name, entry] : models_) records.push_back({LogRecord::Kind::made, entry->id, 0, entry->name});
  return records;
}

ModelStore::EntryPointer ModelStore::find(const std::string& name) const {
  const std::shared_lock lock(models_mutex_);
  const auto found = models_.find(name);
  if (found == models_.end())
    throw Refusal(404, fmt::format("there is no model '{}'; PUT /models/{} makes one", name, name));
  return found->second;
}

void ModelStore::make(const std::string& name, const Json& options) {
  if (!is_model_name(name))
    throw Refusal(400, "a model's name is 1 to 64 letters, digits, '.', '_' and '-', and does not start with '.'");
  auto entry = std::make_shared<Entry>();
  entry->name = name;
  try {
    entry->model = std::make_unique<ServedModel>(options_from_json(options));
  } catch (const NotEnoughMemory& error) {
    throw Refusal(507, error.what());
  } catch (const Error& error) {
    throw Refusal(400, error.what());
  }
  const std::unique_lock lock(models_mutex_);
  if (models_.count(name) > 0)
    throw Refusal(409, fmt::format("there is a model '{}' already; DELETE it first, or choose another name", name));
  if (models_.size() >= limits_.models)
    throw Refusal(507, fmt::format("there are {} models, and --max-models allows no more", models_.size()));
  entry->id = next_id_++;
  try {
    write(*entry);
    log_.wait(log_.append({{LogRecord::Kind::made, entry->id, 0, entry->name}}));
  } catch (const Error& error) {
    ::unlink(path(name).c_str());
    throw Refusal(507, error.what());
  }
  models_[name] = std::move(entry);
}

void ModelStore::remove(const std::string& name) {
  const EntryPointer entry = find(name);
  const std::unique_lock lock(models_mutex_);
  const std::lock_guard model_lock(entry->mutex);
  if (entry->deleted) throw Refusal(404, fmt::format("there is no model '{}'", name));
  try {
    log_.wait(log_.append({{LogRecord::Kind::gone, entry->id, 0, ""}}));
  } catch (const Error& error) {
    throw Refusal(507, error.what());
  }
  ::unlink(path(name).c_str());
  entry->deleted = true;
  models_.erase(name);
}

std::vector<std::string> ModelStore::names() const {
  const std::shared_lock lock(models_mutex_);
  std::vector<std::string> list;
  for (const auto& [name, entry] : models_) list.push_back(name);
  return list;
}

std::size_t ModelStore::count() const {
  const std::shared_lock lock(models_mutex_);
  return models_.size();
}

std::string ModelStore::describe(const std::string& name) {
  const EntryPointer entry = find(name);
  const std::lock_guard lock(entry->mutex);
  return entry->model->describe().set("name", name).dump(2) + "\n";
}

std::vector<std::string> ModelStore::learn(const std::string& name, const std::vector<RequestRow>& rows,
                                           std::size_t& bad) {
  const EntryPointer entry = find(name);
  std::vector<std::string> answers(rows.size());
  std::vector<LogRecord> records;
  records.reserve(rows.size());
  std::uint64_t mark = 0;
  {
    const std::lock_guard lock(entry->mutex);
    if (entry->deleted) throw Refusal(404, fmt::format("there is no model '{}'", name));
    auto number = static_cast<std::uint64_t>(entry->model->rows());
    for (const RequestRow& row : rows) records.push_back({LogRecord::Kind::row, entry->id, ++number, row.text});
    try {
      mark = log_.append(records);
    } catch (const Error& error) {
      throw Refusal(507, fmt::format("{}; nothing was learned", error.what()));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      try {
        entry->model->learn(rows[i].row, answers[i]);
      } catch (const Error& error) {
        answers[i] = error_json(error), ++bad;
      }
    }
  }
  try {
    log_.wait(mark);
  } catch (const Error& error) {
    throw Refusal(507, error.what());
  }
  return answers;
}

std::vector<std::string> ModelStore::predict(const std::string& name, const std::vector<RequestRow>& rows,
                                             std::size_t& bad) {
  const EntryPointer entry = find(name);
  std::vector<std::string> answers(rows.size());
  const std::lock_guard lock(entry->mutex);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    try {
      entry->model->predict(rows[i].row, answers[i]);
    } catch (const Error& error) {
      answers[i] = error_json(error), ++bad;
    }
  }
  return answers;
}

void ModelStore::write(Entry& entry) {
  write_file(path(entry.name), folder_, entry.model->bytes(), sync_);
  entry.saved_rows = entry.model->rows();
}

void ModelStore::save(const std::string& name) {
  const EntryPointer entry = find(name);
  const std::lock_guard lock(entry->mutex);
  if (entry->deleted) throw Refusal(404, fmt::format("there is no model '{}'", name));
  try {
    write(*entry);
  } catch (const Error& error) {
    throw Refusal(507, error.what());
  }
}

void ModelStore::save_all() {
  const std::lock_guard one_at_a_time(saving_);
  std::vector<EntryPointer> all;
  {
    // Nothing is made or deleted in between, so the new file knows all models.
    const std::shared_lock lock(models_mutex_);
    log_.begin(table());
    for (const auto& [name, entry] : models_) all.push_back(entry);
  }
  for (const EntryPointer& entry : all) {
    const std::lock_guard lock(entry->mutex);
    if (!entry->deleted && entry->saved_rows != entry->model->rows()) write(*entry);
  }
  log_.delete_old();
}

void ModelStore::close() { log_.delete_all(); }

}  // namespace ttr::cli
