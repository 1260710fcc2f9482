// The messages of ttr::mpi (mpi/channel.h) on as many ranks as mpirun has started: the exclusive scan and what it costs, and
// messages in parts. Part of ttr_mpi_ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <thread>

#include "mpi/channel.h"

namespace ttr::mpi {
namespace {

constexpr std::size_t room = 64;

// Words are put together in their order: as little commutative as anything.
std::vector<std::byte> word(const std::string& text) {
  std::vector<std::byte> bytes(room);
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}
std::string text_of(const std::vector<std::byte>& bytes) {
  return bytes.empty() ? "" : reinterpret_cast<const char*>(bytes.data());
}
void put_together(const std::byte* further, std::byte* nearer) {
  const std::string both =
      std::string(reinterpret_cast<const char*>(further)) + reinterpret_cast<const char*>(nearer);
  ASSERT_LT(both.size(), room);
  std::memcpy(nearer, both.c_str(), both.size() + 1);
}
std::string name_of(int rank, int scan) {
  return std::string(1, static_cast<char>('a' + rank)) + std::to_string(scan);
}

// Rounds: 1 + ceil(log2(P - 1)); messages (P - 1) (1 + r) - (2^r - 1), and as many compositions but for P - 1.
TEST(ExclusiveScan, HasTheOrderOfRanksAndTheCostsOfTheFormula) {
  for (const bool backwards : {false, true}) {
    Channel channel(MPI_COMM_WORLD, 60, false);
    const int rank = channel.rank(), P = channel.ranks(), place = backwards ? P - 1 - rank : rank;
    std::vector<std::unique_ptr<Exscan>> scans;
    constexpr int count = 3;  // under way at the same time, and ended in another order
    for (int i = 0; i < count; ++i)
      scans.push_back(channel.begin_exscan(word(name_of(rank, i)), put_together, backwards, i));
    for (const int i : {1, 2, 0}) {
      std::string expected;
      for (int p = 0; p < place; ++p) expected += name_of(backwards ? P - 1 - p : p, i);
      EXPECT_EQ(text_of(channel.end_exscan(*scans[static_cast<std::size_t>(i)])), expected) << "rank " << rank;
    }
    channel.flush();
    const int rounds = P > 1 ? static_cast<int>(std::bit_width(static_cast<unsigned>(P - 2))) : 0;
    EXPECT_LE(channel.counts.messages, count * (1 + rounds));
    EXPECT_LE(channel.counts.compositions, count * rounds);
    const std::int64_t mine[] = {channel.counts.messages, channel.counts.bytes, channel.counts.compositions};
    const std::vector<std::int64_t> all = channel.all_of(mine);
    std::int64_t messages = 0, bytes = 0, compositions = 0;
    for (std::size_t r = 0; r < all.size(); r += 3)
      messages += all[r], bytes += all[r + 1], compositions += all[r + 2];
    const int formula = P > 1 ? (P - 1) * (1 + rounds) - ((1 << rounds) - 1) : 0;
    EXPECT_EQ(messages, count * formula);
    EXPECT_EQ(bytes, count * formula * static_cast<std::int64_t>(room));
    EXPECT_EQ(compositions, count * (formula - (P - 1)));
  }
}

// Which pairs are composed follows from the number of ranks alone, not from who comes when.
TEST(ExclusiveScan, ComposesTheSamePairsWhoeverIsLate) {
  const auto brackets = [](const std::byte* further, std::byte* nearer) {
    const std::string both =
        "(" + std::string(reinterpret_cast<const char*>(further)) + " " + reinterpret_cast<const char*>(nearer) + ")";
    ASSERT_LT(both.size(), room);
    std::memcpy(nearer, both.c_str(), both.size() + 1);
  };
  std::string first;
  for (int late = -1; late < 3; ++late) {
    Channel channel(MPI_COMM_WORLD, 60, false);
    if (late == channel.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto scan = channel.begin_exscan(word(name_of(channel.rank(), 0)), brackets, false, 0);
    const std::string text = text_of(channel.end_exscan(*scan));
    if (late < 0) first = text;
    EXPECT_EQ(text, first);
    if (channel.ranks() == 7 && channel.rank() == 6) {
      EXPECT_EQ(text, "((a0 b0) ((c0 d0) (e0 f0)))");
    }
    channel.flush();
  }
}

TEST(LongMessages, GoInParts) {
  Channel channel(MPI_COMM_WORLD, 60, false);
  channel.largest = 1000;
  const int rank = channel.rank(), P = channel.ranks(), to = (rank + 1) % P, from = (rank + P - 1) % P;
  for (const std::size_t size : {std::size_t{0}, std::size_t{999}, std::size_t{1000}, std::size_t{12345}}) {
    const auto bytes_of = [&](int of) {
      std::vector<std::byte> bytes(size);
      for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + static_cast<std::size_t>(of));
      return bytes;
    };
    const std::int64_t before = channel.counts.messages;
    channel.send(bytes_of(rank), to, 3);
    EXPECT_EQ(channel.counts.messages - before,
              std::max<std::int64_t>(1, (static_cast<std::int64_t>(size) + 999) / 1000));
    channel.send(bytes_of(rank), to, 3);
    EXPECT_EQ(channel.take(channel.expect(size, from, 3), "bytes"), bytes_of(from));
    std::vector<std::byte> received(size);
    channel.receive(received, from, 3, "bytes");
    EXPECT_EQ(received, bytes_of(from));
  }
  channel.flush();
}

}  // namespace
}  // namespace ttr::mpi
