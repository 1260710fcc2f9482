#include "archive.h"

#include <fmt/format.h>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr char magic[12] = "ttr-stream";
constexpr std::uint32_t newest = 3, oldest = 2;
constexpr std::size_t header_bytes = sizeof magic + sizeof newest + sizeof(std::uint64_t);

template <class T>
T number_at(const std::string& file, std::size_t at) {
  T number;
  std::memcpy(&number, file.data() + at, sizeof number);
  return number;
}

}  // namespace

std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Archive::Archive() : version_(newest) {}

Archive::Archive(std::string file, std::string name) : name_(std::move(name)), version_(newest), reading_(true) {
  if (file.size() < header_bytes || std::memcmp(file.data(), magic, sizeof magic) != 0)
    refuse("is not a model that --save has written");
  version_ = number_at<std::uint32_t>(file, sizeof magic);
  if (version_ < oldest || version_ > newest)
    refuse(
        fmt::format("has version {} of the format, and this program reads versions {} to {}; make it anew from its "
                    "rows",
                    version_, oldest, newest));
  const auto size = number_at<std::uint64_t>(file, sizeof magic + sizeof newest);
  if (size != file.size() - std::min(file.size(), header_bytes + sizeof(std::uint64_t))) refuse("is cut off");
  bytes_ = file.substr(header_bytes, size);
  if (checksum(bytes_) != number_at<std::uint64_t>(file, header_bytes + size))
    refuse("is damaged: its checksum is wrong");
}

std::string Archive::file() const {
  std::string out;
  out.reserve(header_bytes + bytes_.size() + sizeof(std::uint64_t));
  out.append(magic, sizeof magic);
  const auto put = [&](auto number) { out.append(reinterpret_cast<const char*>(&number), sizeof number); };
  put(newest), put(std::uint64_t{bytes_.size()});
  out += bytes_;
  put(checksum(bytes_));
  return out;
}

void Archive::finish() const {
  if (at_ != bytes_.size()) refuse("holds more than its options say");
}

void Archive::raw(void* data, std::size_t size) {
  if (!reading_) {
    bytes_.append(static_cast<const char*>(data), size);
    return;
  }
  if (size > bytes_.size() - at_) refuse("holds less than its options say");
  if (size > 0) std::memcpy(data, bytes_.data() + at_, size);
  at_ += size;
}

std::size_t Archive::length(std::size_t have, std::size_t item_bytes) {
  std::uint64_t n = have;
  raw(&n, sizeof n);
  if (reading_ && n > left() / item_bytes) refuse("holds less than its options say");
  return n;
}

void Archive::item(std::string& text) {
  text.resize(length(text.size()));
  raw(text.data(), text.size());
}

void Archive::refuse(std::string_view why) const { throw Error(fmt::format("'{}' {}", name_, why), "--load"); }

}  // namespace ttr::cli
