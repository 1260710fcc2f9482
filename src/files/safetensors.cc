// .safetensors: 8 bytes little-endian length n, n bytes of JSON, numbers. The JSON is an object: a name has dtype, shape
// and data_offsets [begin, end) from the end of the JSON; "__metadata__" has strings.
//
// Reading trusts nothing: lengths are compared with the size of the file before memory is asked for, offsets must be those
// of tensors one after another, and a name stands once.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "files/json_text.h"
#include "ttr/safetensors.h"

namespace ttr {
namespace {

std::size_t bytes_of(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

// As much JSON as a header has: objects, arrays of whole numbers, strings.
class Header {
 public:
  Header(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  struct Entry {
    std::string dtype;
    std::vector<std::int64_t> shape, offsets;
  };
  std::vector<std::pair<std::string, Entry>> entries;
  std::map<std::string, std::string> metadata;

  void parse() {
    std::set<std::string> names;
    object([&](const std::string& name) {
      if (!names.insert(name).second) fail("names '" + name + "' twice");
      if (name == "__metadata__") {
        object([&](const std::string& key) { metadata[key] = string(); });
        return;
      }
      Entry entry;
      object([&](const std::string& key) {
        if (key == "dtype") entry.dtype = string();
        else if (key == "shape") entry.shape = numbers();
        else if (key == "data_offsets") entry.offsets = numbers();
        else fail("has '" + key + "' for the tensor '" + name + "', which is no part of the format");
      });
      entries.emplace_back(name, std::move(entry));
    });
    blanks();
    if (at_ != text_.size()) fail("goes on after its end");
  }

  [[noreturn]] void fail(const std::string& why) const { throw Error(path_ + ": its header " + why, path_); }

 private:
  void blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char next() {
    if (at_ >= text_.size()) fail("ends too soon");
    return text_[at_++];
  }
  void expect(char wanted) {
    blanks();
    const char c = next();
    if (c != wanted)
      fail(std::string("has '") + c + "' at byte " + std::to_string(at_ - 1) + " where '" + wanted + "' is due");
  }
  bool follows(char c) {
    blanks();
    return at_ < text_.size() && text_[at_] == c ? (++at_, true) : false;
  }
  template <class Member>
  void object(Member&& member) {
    if (++depth_ > 4) fail("is nested too deeply");
    expect('{');
    if (!follows('}')) {
      do {
        blanks();
        const std::string key = string();
        expect(':');
        member(key);
      } while (follows(','));
      expect('}');
    }
    --depth_;
  }
  std::vector<std::int64_t> numbers() {
    std::vector<std::int64_t> list;
    expect('[');
    if (follows(']')) return list;
    do {
      blanks();
      std::int64_t number = 0;
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        const int digit = text_[at_++] - '0';
        if (number > (std::numeric_limits<std::int64_t>::max() - digit) / 10) fail("has a number that is too large");
        number = 10 * number + digit;
      }
      if (at_ == begin) fail("has no whole number at byte " + std::to_string(at_));
      list.push_back(number);
      if (list.size() > 16) fail("has a tensor of more than 16 axes");
    } while (follows(','));
    expect(']');
    return list;
  }
  unsigned hex() {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = next();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("has a \\u without four digits");
      code = 16 * code + static_cast<unsigned>(digit);
    }
    return code;
  }
  std::string string() {
    expect('"');
    std::string result;
    for (char c = next(); c != '"'; c = next()) {
      if (static_cast<unsigned char>(c) < 0x20) fail("has a control character in a string");
      if (c != '\\') {
        result += c;
        continue;
      }
      switch (c = next()) {
        case 'n':
          result += '\n';
          break;
        case 't':
          result += '\t';
          break;
        case 'r':
          result += '\r';
          break;
        case 'b':
          result += '\b';
          break;
        case 'f':
          result += '\f';
          break;
        case '"':
        case '\\':
        case '/':
          result += c;
          break;
        case 'u': {
          unsigned code = hex();
          if (code >= 0xD800 && code < 0xDC00) {
            if (next() != '\\' || next() != 'u') fail("has half of a surrogate pair");
            const unsigned low = hex();
            if (low < 0xDC00 || low > 0xDFFF) fail("has half of a surrogate pair");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          }
          const auto put = [&](unsigned byte) { result += static_cast<char>(byte); };
          if (code < 0x80) put(code);
          else if (code < 0x800) put(0xC0 | code >> 6), put(0x80 | (code & 63));
          else if (code < 0x10000) put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
          else
            put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)),
                put(0x80 | (code & 63));
          break;
        }
        default:
          fail(std::string("has the unknown escape \\") + c);
      }
    }
    return result;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// A file descriptor that is closed whatever happens.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(path + ": " + what + ": " + std::strerror(errno), path);
}

}  // namespace

const StoredTensor* TensorFile::find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

namespace {

// A file that is read from its start to its end.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_.get() < 0) refuse(path, "it cannot be opened");
    struct stat about {};
    if (::fstat(file_.get(), &about) != 0) refuse(path, "its size is unknown");
    if (!S_ISREG(about.st_mode)) throw Error(path + ": it is not a regular file", path);
    size_ = static_cast<std::uint64_t>(about.st_size);
  }
  std::uint64_t size() const { return size_; }
  void read(void* to, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = ::read(file_.get(), static_cast<char*>(to) + done, bytes - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse(path_, "it cannot be read");
      if (got == 0) throw Error(path_ + ": it was cut off while it was read", path_);
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  const std::string& path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

// The same of memory.
class MemoryReader {
 public:
  explicit MemoryReader(std::span<const std::byte> bytes) : bytes_(bytes), size_(bytes.size()) {}
  std::uint64_t size() const { return size_; }
  void read(void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, bytes_.data(), bytes);  // the header was compared with the size
    bytes_ = bytes_.subspan(bytes);
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t size_;
};

// Hands over one tensor after another, without its numbers, which are the next of the source, and where they begin in
// the file; returns the metadata.
template <class Source, class Visit>
std::map<std::string, std::string> scan_places(Source& source, const std::string& path, Visit&& visit) {
  const std::uint64_t size = source.size();
  const auto read_all = [&](void* to, std::size_t bytes) { source.read(to, bytes); };
  if (size < 8) throw Error(path + ": " + std::to_string(size) + " bytes are too few for a safetensors file", path);
  unsigned char length_bytes[8];
  read_all(length_bytes, 8);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | length_bytes[i];
  if (length > size - 8 || length > (std::uint64_t{1} << 30))
    throw Error(path + ": its header is " + std::to_string(length) + " bytes long and the file has " +
                    std::to_string(size) + "; it was cut off, or it is no safetensors file",
                path);
  std::string text(static_cast<std::size_t>(length), '\0');
  read_all(text.data(), text.size());
  Header header(text, path);
  header.parse();
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return (a.second.offsets.empty() ? 0 : a.second.offsets[0]) <
           (b.second.offsets.empty() ? 0 : b.second.offsets[0]);
  });
  const std::uint64_t data = size - 8 - length;
  std::uint64_t at = 0;
  for (auto& [name, entry] : header.entries) {
    const std::size_t each = bytes_of(entry.dtype);
    if (each == 0)
      header.fail("has the type '" + entry.dtype + "' for the tensor '" + name + "', which is unknown here");
    std::uint64_t bytes = std::find(entry.shape.begin(), entry.shape.end(), 0) == entry.shape.end() ? each : 0;
    for (const std::int64_t n : entry.shape) {
      if (bytes > 0 && bytes > data / static_cast<std::uint64_t>(n))
        header.fail("has a tensor '" + name + "' that is larger than the file");
      bytes *= static_cast<std::uint64_t>(n);
    }
    if (entry.offsets.size() != 2 || static_cast<std::uint64_t>(entry.offsets[0]) != at ||
        static_cast<std::uint64_t>(entry.offsets[1]) != at + bytes)
      header.fail("has a place for the tensor '" + name + "' that is not the " + std::to_string(bytes) +
                  " bytes from " + std::to_string(at));
    if (at + bytes > data)
      throw Error(path + ": the tensor '" + name + "' ends " + std::to_string(at + bytes - data) +
                      " bytes behind the end of the file; it was cut off",
                  path);
    StoredTensor tensor;
    tensor.name = name, tensor.dtype = std::move(entry.dtype), tensor.shape = std::move(entry.shape);
    visit(std::move(tensor), static_cast<std::size_t>(8 + length + at), static_cast<std::size_t>(bytes));
    at += bytes;
  }
  if (at != data)
    throw Error(path + ": " + std::to_string(data - at) + " bytes follow the last tensor, which belong to none",
                path);
  return std::move(header.metadata);
}

// The same with their numbers.
template <class Source, class Visit>
std::map<std::string, std::string> scan(Source&& source, const std::string& path, Visit&& visit) {
  return scan_places(source, path, [&](StoredTensor&& tensor, std::size_t, std::size_t bytes) {
    tensor.bytes.resize(bytes);
    source.read(tensor.bytes.data(), bytes);
    visit(std::move(tensor));
  });
}

template <class Source>
TensorFile read(Source&& source, const std::string& path) {
  TensorFile file;
  file.metadata =
      scan(std::forward<Source>(source), path, [&](StoredTensor&& one) { file.tensors.push_back(std::move(one)); });
  return file;
}

std::string header_of(const TensorFile& file) {
  std::string header = "{";
  if (!file.metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : file.metadata) {
      if (header.back() != '{') header += ',';
      header += json_text(key) + ":" + json_text(value);
    }
    header += '}';
  }
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : file.tensors) {
    if (header.back() != '{') header += ',';
    header += json_text(tensor.name) + ":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) header += (d ? "," : "") + std::to_string(tensor.shape[d]);
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + tensor.bytes.size()) + "]}";
    at += tensor.bytes.size();
  }
  header += '}';
  while (header.size() % 8 != 0) header += ' ';  // numbers begin on a multiple of eight
  return header;
}

using Length = std::array<std::byte, 8>;
Length length_of(const std::string& header) {
  Length length;
  for (std::size_t i = 0; i < 8; ++i)
    length[i] = static_cast<std::byte>(static_cast<std::uint64_t>(header.size()) >> 8 * i);
  return length;
}

// Calls writing(write) with a function that writes to a file beside `path`, which then takes its place.
template <class Writing>
void write_atomically(const std::string& path, Writing&& writing) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string temporary = (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + "." +
                                path.substr(slash == std::string::npos ? 0 : slash + 1) + "." +
                                std::to_string(::getpid());
  Descriptor out(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (out.get() < 0) refuse(path, "it cannot be written");
  const auto give_up = [&](const char* what) {
    const int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    refuse(path, what);
  };
  const auto write_all = [&](const void* from, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t put = ::write(out.get(), static_cast<const char*>(from) + done, bytes - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) give_up("it cannot be written");
      done += static_cast<std::size_t>(put);
    }
  };
  writing(write_all);
  if (::fsync(out.get()) != 0) give_up("it cannot be flushed to the disk");
  if (out.close() != 0) give_up("it cannot be closed");
  if (::rename(temporary.c_str(), path.c_str()) != 0) give_up("it cannot be put in its place");
  const Descriptor place(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (place.get() >= 0) ::fsync(place.get());  // the name as well; a file system that cannot is no reason to fail
}

}  // namespace

std::map<std::string, std::string> scan_safetensors(const std::string& path,
                                                    const std::function<void(StoredTensor&&)>& visit) {
  return scan(Reader(path), path, visit);
}

std::vector<TensorPlace> list_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                          std::map<std::string, std::string>* metadata) {
  std::vector<TensorPlace> places;
  MemoryReader source(bytes);
  std::map<std::string, std::string> found =
      scan_places(source, name, [&](StoredTensor&& tensor, std::size_t begin, std::size_t size) {
        places.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape), begin, size});
      });
  if (metadata) *metadata = std::move(found);
  return places;
}

TensorFile read_safetensors(const std::string& path) { return read(Reader(path), path); }
TensorFile from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return read(MemoryReader(bytes), name);
}

void write_safetensors(const std::string& path, const TensorFile& file) {
  const std::string header = header_of(file);
  const Length length = length_of(header);
  write_atomically(path, [&](auto&& write) {
    write(length.data(), length.size());
    write(header.data(), header.size());
    for (const StoredTensor& tensor : file.tensors) write(tensor.bytes.data(), tensor.bytes.size());
  });
}

std::vector<std::byte> to_bytes(const TensorFile& file) {
  const std::string header = header_of(file);
  const Length length = length_of(header);
  std::size_t size = length.size() + header.size();
  for (const StoredTensor& tensor : file.tensors) size += tensor.bytes.size();
  std::vector<std::byte> bytes(size);
  std::byte* at = bytes.data();
  const auto put = [&](const void* from, std::size_t count) {
    if (count > 0) std::memcpy(at, from, count);
    at += count;
  };
  put(length.data(), length.size());
  put(header.data(), header.size());
  for (const StoredTensor& tensor : file.tensors) put(tensor.bytes.data(), tensor.bytes.size());
  return bytes;
}

void write_whole_file(const std::string& path, std::span<const std::byte> bytes) {
  write_atomically(path, [&](auto&& write) { write(bytes.data(), bytes.size()); });
}

std::vector<std::byte> read_whole_file(const std::string& path) {
  Reader reader(path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(reader.size()));
  reader.read(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace ttr
