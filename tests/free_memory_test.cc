// How much memory there is (ttr/memory.h), from files that the test makes up.
#include "plan/free_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/resource.h>

#include "ttr/memory.h"

namespace ttr {
namespace {

namespace fs = std::filesystem;

// A root folder with files of the kernel.
class Tree {
 public:
  Tree() {
    std::string pattern = (fs::temp_directory_path() / "ttr-memory-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    file("proc/meminfo", "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n");
  }
  ~Tree() { fs::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  FreeMemory free() const { return free_memory_of_files(root_.c_str()); }

 private:
  fs::path root_;
};

TEST(FreeMemory, Machine) {
  const Tree tree;
  EXPECT_EQ(tree.free().bytes, 20000000.0 * 1024);
  EXPECT_EQ(tree.free().limit, "");
  EXPECT_TRUE(std::isinf(free_memory_of_files("/nowhere").bytes));
}

TEST(FreeMemory, GroupOfVersion2) {
  Tree tree;
  tree.file("proc/self/cgroup", "0::/user.slice/one\n");
  tree.file("sys/fs/cgroup/user.slice/one/memory.max", "max\n");
  EXPECT_EQ(tree.free().limit, "");
  tree.file("sys/fs/cgroup/user.slice/one/memory.max", "5000000000\n");
  tree.file("sys/fs/cgroup/user.slice/one/memory.current", "3000000000\n");
  tree.file("sys/fs/cgroup/user.slice/one/memory.stat", "anon 1\nfile 2\ninactive_file 500000000\nactive_file 7\n");
  EXPECT_EQ(tree.free().bytes, 2.5e9);
  EXPECT_EQ(tree.free().limit, "the control group");
  // A group around it may be smaller.
  tree.file("sys/fs/cgroup/user.slice/memory.max", "4000000000\n");
  tree.file("sys/fs/cgroup/user.slice/memory.current", "3900000000\n");
  EXPECT_EQ(tree.free().bytes, 1e8);
}

TEST(FreeMemory, ContainerSeesItsGroupAsTheRoot) {
  Tree tree;
  tree.file("proc/self/cgroup", "0::/\n");
  tree.file("sys/fs/cgroup/memory.max", "1000000000\n");
  tree.file("sys/fs/cgroup/memory.current", "1100000000\n");  // more than it may
  EXPECT_EQ(tree.free().bytes, 0);
}

TEST(FreeMemory, GroupOfVersion1) {
  Tree tree;
  tree.file("proc/self/cgroup", "12:cpu,cpuacct:/docker/abc\n7:memory:/docker/abc\n1:name=systemd:/docker/abc\n");
  // The folder of the world outside is not there; the root is the container's own.
  tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000000\n");
  tree.file("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000000\n");
  tree.file("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 250000000\n");
  EXPECT_EQ(tree.free().bytes, 1.25e9);
  tree.file("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(tree.free().bytes, 1.25e9);
  tree.file("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2000000000\n");
  tree.file("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "1500000000\n");
  EXPECT_EQ(tree.free().bytes, 5e8);
}

TEST(FreeMemory, Limits) {
  EXPECT_TRUE(std::isinf(left_of_limit(RLIM_INFINITY, 5)));
  EXPECT_EQ(left_of_limit(1000, 400), 600);
  EXPECT_EQ(left_of_limit(1000, 4000), 0);
  EXPECT_GT(free_memory().bytes, 0);
}

TEST(FreeMemory, Words) {
  EXPECT_EQ(bytes_in_words(512), "512 bytes");
  EXPECT_EQ(bytes_in_words(240e3), "240 KB");
  EXPECT_EQ(bytes_in_words(7.2e9), "7.2 GB");
  EXPECT_EQ(bytes_in_words(999.6e6), "1 GB");
  EXPECT_EQ(free_in_words({2.1e9, "ulimit -v"}), "2.1 GB are free (limit: ulimit -v)");
  EXPECT_NO_THROW(require_memory(1e6, "a little"));
  try {
    require_memory(1e30, "a cache", "take fewer", "--slots");
    FAIL() << "1e30 bytes are free";
  } catch (const NotEnoughMemory& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("a cache needs "), 0u) << text;
    EXPECT_NE(text.find(" are free"), std::string::npos) << text;
    EXPECT_NE(text.find("; take fewer"), std::string::npos) << text;
    EXPECT_EQ(error.where(), "--slots");
  }
}

}  // namespace
}  // namespace ttr
