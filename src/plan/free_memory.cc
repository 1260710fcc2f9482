// Files of the kernel, read into the stack: a program may ask within malloc.
//
//   /proc/meminfo                     MemAvailable
//   /proc/self/cgroup                 "0::/a/b" (version 2), "7:memory:/a/b" (version 1)
//   /sys/fs/cgroup/a/b, /a, /         memory.max, memory.current, memory.stat: inactive_file
//   /sys/fs/cgroup/memory/a/b, ..     memory.limit_in_bytes, memory.usage_in_bytes, memory.stat: total_inactive_file
//   /proc/self/statm                  pages of the address space (RLIMIT_AS) and of data (RLIMIT_DATA)
//
// Pages of files that nobody has used lately count as free: the kernel drops them first. In a container the path may
// be that of the world outside; then the root of the tree is the container's own group.
#include "plan/free_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace ttr {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double little = 32e6;

struct Text {
  char bytes[8192] = {};
  bool read(const char* path) noexcept {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    std::size_t size = 0;
    for (ssize_t n; size + 1 < sizeof bytes && (n = ::read(file, bytes + size, sizeof bytes - 1 - size)) > 0;)
      size += static_cast<std::size_t>(n);
    bytes[size] = 0;
    ::close(file);
    return size > 0;
  }
  // The number behind a word that starts a line; NaN if there is none.
  double after(const char* word) const noexcept {
    const std::size_t length = std::strlen(word);
    for (const char* line = bytes; line; line = std::strchr(line, '\n')) {
      line += *line == '\n';
      if (std::strncmp(line, word, length) == 0 && std::strchr(" :\t", line[length]))
        return std::strtod(line + length + (line[length] == ':'), nullptr);
    }
    return std::nan("");
  }
};

// What is left in one group; infinite if it has no limit, or does not exist.
double left_in_group(const char* folder, bool second) noexcept {
  char path[1200];
  Text text;
  const auto number = [&](const char* name) {
    std::snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text.read(path) || std::strncmp(text.bytes, "max", 3) == 0) return infinity;
    return std::strtod(text.bytes, nullptr);
  };
  const double limit = number(second ? "memory.max" : "memory.limit_in_bytes");
  if (!(limit < 0x1p60)) return infinity;
  const double used = number(second ? "memory.current" : "memory.usage_in_bytes");
  std::snprintf(path, sizeof path, "%s/memory.stat", folder);
  const double dropped = text.read(path) ? text.after(second ? "inactive_file" : "total_inactive_file") : 0;
  return std::max(0.0, limit - (used < infinity ? used : 0) + (dropped > 0 ? dropped : 0));
}

// The least over a group and those around it. `path` is "/a/b", and is cut.
double left_in_groups(const char* tree, char* path, bool second) noexcept {
  char folder[1100];
  double left = infinity;
  for (;;) {
    std::snprintf(folder, sizeof folder, "%s%s", tree, path);
    left = std::min(left, left_in_group(folder, second));
    char* const slash = std::strrchr(path, '/');
    if (!slash || !*path) return left;
    *slash = 0;
  }
}

double left_in_all_groups(const char* root) noexcept {
  char name[600];
  Text text;
  std::snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
  if (!text.read(name)) return infinity;
  double left = infinity;
  for (char* line = text.bytes; line && *line;) {
    char* const end = std::strchr(line, '\n');
    if (end) *end = 0;
    char* const controllers = std::strchr(line, ':');
    char* const path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
    if (path && std::strlen(path) < 500) {
      *path = 0;
      const bool second = controllers[1] == 0;
      bool memory = second;
      for (const char* word = controllers; !second && word; word = std::strchr(word + 1, ','))
        memory = memory || (std::strncmp(word + 1, "memory", 6) == 0 && (word[7] == 0 || word[7] == ','));
      if (memory)
        for (const char* tree : {second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"}) {
          char group[500];
          std::snprintf(group, sizeof group, "%s", path + 1);
          std::snprintf(name, sizeof name, "%s%s", root, tree);
          left = std::min(left, left_in_groups(name, group, second));
          if (!second) break;
        }
    }
    line = end ? end + 1 : nullptr;
  }
  return left;
}

}  // namespace

double left_of_limit(unsigned long long limit, double used) noexcept {
  if (limit == static_cast<unsigned long long>(RLIM_INFINITY)) return infinity;
  return std::max(0.0, static_cast<double>(limit) - used);
}

FreeMemory free_memory_of_files(const char* root) noexcept {
  FreeMemory least{infinity, {}};
  char path[600];
  Text text;
  std::snprintf(path, sizeof path, "%s/proc/meminfo", root);
  if (text.read(path))
    if (const double kilobytes = text.after("MemAvailable"); kilobytes >= 0) least.bytes = 1024 * kilobytes;
  if (const double left = left_in_all_groups(root); left < least.bytes) least = {left, "the control group"};
  return least;
}

FreeMemory free_memory() noexcept {
  FreeMemory least = free_memory_of_files("");
  Text text;
  unsigned long all = 0, data = 0;
  if (!text.read("/proc/self/statm") || std::sscanf(text.bytes, "%lu %*u %*u %*u %*u %lu", &all, &data) != 2)
    return least;
  const double page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0)
    if (const double left = left_of_limit(limit.rlim_cur, page * static_cast<double>(all)); left < least.bytes)
      least = {left, "ulimit -v"};
  if (::getrlimit(RLIMIT_DATA, &limit) == 0)
    if (const double left = left_of_limit(limit.rlim_cur, page * static_cast<double>(data)); left < least.bytes)
      least = {left, "ulimit -d"};
  return least;
}

std::string bytes_in_words(double bytes) {
  const char* const units[] = {"bytes", "KB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  while (bytes >= (unit == 0 ? 1000 : 999.5) && unit + 1 < std::size(units)) bytes /= 1000, ++unit;
  char text[64];
  std::snprintf(text, sizeof text, unit > 0 && bytes < 99.95 ? "%.1f" : "%.0f", bytes);
  std::string number = text;
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return number + " " + units[unit];
}

std::string free_in_words(const FreeMemory& free) {
  std::string text = bytes_in_words(free.bytes) + " are free";
  if (!free.limit.empty()) text += " (limit: " + std::string(free.limit) + ")";
  return text;
}

void require_memory(double bytes, std::string_view what, std::string_view remedy, const std::string& where) {
  if (bytes < little) return;
  const FreeMemory free = free_memory();
  if (bytes <= free.bytes) return;
  throw NotEnoughMemory(std::string(what) + " needs " + bytes_in_words(bytes) + " of memory, and " +
                            free_in_words(free) + (remedy.empty() ? "" : "; " + std::string(remedy)),
                        where);
}

}  // namespace ttr
