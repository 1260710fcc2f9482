// Form::scan: the tree over segments, the cut into segments, and every layer that has the form with several threads:
// the bits of one thread, and the numbers of the recurrent form.
#include <numeric>
#include <set>

#include "families/common/segments.h"
#include "layer_harness.h"
#include "threads/pool.h"

namespace ttr_layer_test {
namespace {

using families::Segments;
using families::Sequence;
using families::Team;

// Maps x -> a x + b in integers that wrap: composed in any other order they would be others.
struct Affine {
  std::uint64_t a, b;
};

TEST(Scan, SweepsGiveEveryStart) {
  threads::prepare(3);
  for (const int workers : {1, 3})
    for (std::ptrdiff_t count = 0; count < 70; ++count) {
      std::vector<Affine> maps;
      for (std::ptrdiff_t i = 0; i < count; ++i)
        maps.push_back({static_cast<std::uint64_t>(2 * i + 3), static_cast<std::uint64_t>(i * i + 1)});
      std::vector<std::uint64_t> want = {7}, starts(static_cast<std::size_t>(count + 1));
      for (const Affine& m : maps) want.push_back(m.a * want.back() + m.b);
      starts[0] = 7;
      const threads::Crew crew{workers};
      const Team team(
          workers,
          [](const void* owner, int tasks, Team::Task task, void* context) noexcept {
            threads::run(*static_cast<const threads::Crew*>(owner), tasks, task, context);
          },
          &crew);
      std::atomic<int> made{0};
      families::up_sweep(team, count, true, [&](std::ptrdiff_t to, std::ptrdiff_t from, int) {
        ASSERT_LT(from, to);
        Affine &second = maps[static_cast<std::size_t>(to)], &first = maps[static_cast<std::size_t>(from)];
        second = {second.a * first.a, second.a * first.b + second.b};
      });
      families::down_sweep(team, count, true, [&](std::ptrdiff_t to, std::ptrdiff_t from, int) {
        const Affine& m = maps[static_cast<std::size_t>(to - 1)];
        starts[static_cast<std::size_t>(to)] = m.a * starts[static_cast<std::size_t>(from)] + m.b;
        ++made;
      });
      EXPECT_EQ(starts, want) << count << " maps";
      EXPECT_EQ(made, count);
    }
}

TEST(Scan, SegmentsCoverASequence) {
  std::set<std::ptrdiff_t> counts;
  for (std::ptrdiff_t time = 0; time < 1500; ++time)
    for (const int chunk : {0, 1, 7, 64})
      for (const std::ptrdiff_t unit : {1, 16}) {
        const Segments g = Segments::of({2, 5, 5 + time}, chunk, 20, unit);
        std::ptrdiff_t at = 5;
        for (std::ptrdiff_t i = 0; i < g.count; ++i) {
          EXPECT_EQ(g[i].row, 2);
          EXPECT_EQ(g[i].begin, at);
          EXPECT_GT(g[i].end, at);
          if (chunk > 0) {
            EXPECT_LE(g[i].end - at, chunk);
          } else if (i + 1 < g.count) {
            EXPECT_GE(g[i].end - at, 20);
          }
          EXPECT_LE(g[i].end - at, Segments::longest(time, chunk, 20, unit));
          EXPECT_LE(Segments::longest(time - 1, chunk, 20, unit), Segments::longest(time, chunk, 20, unit));
          at = g[i].end;
        }
        EXPECT_EQ(at, 5 + time);
        EXPECT_LE(g.count, Segments::most(time, chunk));
        if (chunk == 0 && unit == 1) counts.insert(g.count);
      }
  EXPECT_EQ(counts, (std::set<std::ptrdiff_t>{0, 1, 3, 5}));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t every = 7;
#else
constexpr std::size_t every = 1;
#endif

struct Cut {
  Shape shape;
  int chunk;
  std::int64_t time;
  std::vector<std::int64_t> cu;
};

Plan with_threads(const Subject& subject, Shape shape, int threads, int chunk, Type type) {
  Options options;
  options.threads = threads, options.chunk = chunk, options.type = type;
  if (subject.info->square) shape.value_dim = shape.key_dim;
  if (!subject.info->grouped) shape.key_heads = shape.heads;
  return plan(subject.text, shape, options);
}

// One head and more; segments that the length decides, more of them than a round has, and more than there are tokens
// in a sequence; packed sequences; states before and after.
TEST(Scan, ThreadsDoNotChangeBits) {
  const Cut cuts[] = {{{1, 1, 1, 20, 20}, 0, 1601, {}},
                      {{1, 2, 1, 13, 17}, 33, 1100, {}},
                      {{3, 1, 1, 19, 21}, 0, 2600, {0, 1300, 1305, 2600}},
                      {{1, 1, 1, 24, 40}, 100, 1217, {}}};
  const std::vector<Subject> all = subjects(12);
  for (std::size_t s = 0; s < all.size(); s += every)
    for (const Cut& cut : cuts) {
      const Subject& subject = all[s];
      const Plan one = with_threads(subject, cut.shape, 1, cut.chunk, Type::f32);
      if (std::find(one.forms().begin(), one.forms().end(), Form::scan) == one.forms().end()) break;
      SCOPED_TRACE(subject.text + ", time " + std::to_string(cut.time));
      Problem p = cut.cu.empty() ? batch_problem(one, cut.time, 5) : bare(one, cut.time, cut.cu, cut.time, 3);
      const Result expected = run(p, Form::scan);
      expect_ok(expected, Form::scan);
      for (const int threads : {2, 3, 5}) {
        p.plan = with_threads(subject, cut.shape, threads, cut.chunk, Type::f32);
        const Result r = run(p, Form::scan);
        EXPECT_TRUE(same_bits(r.values(), expected.values())) << threads << " threads";
        EXPECT_TRUE(same_bits(r.gradients(), expected.gradients())) << threads << " threads";
      }
    }
}

// Against the recurrent form in double, with all gradients and those of the initial state. Sequences shorter than a
// segment, of one token and of none among them.
TEST(Scan, EqualsTheRecurrentForm) {
  const Cut cuts[] = {{{1, 1, 1, 7, 11}, 0, 4100, {}},
                      {{4, 1, 1, 5, 3}, 16, 900, {0, 3, 3, 4, 900}},
                      {{1, 2, 1, 5, 3}, 64, 40, {}},
                      {{1, 1, 1, 3, 5}, 1, 37, {}}};
  const std::vector<Subject> all = subjects(12);
  for (std::size_t s = 0; s < all.size(); s += every)
    for (const Cut& cut : cuts) {
      const Subject& subject = all[s];
      const Plan shared = with_threads(subject, cut.shape, 3, cut.chunk, Type::f64);
      if (std::find(shared.forms().begin(), shared.forms().end(), Form::scan) == shared.forms().end()) break;
      SCOPED_TRACE(subject.text + ", time " + std::to_string(cut.time));
      const Problem p =
          cut.cu.empty() ? batch_problem(shared, cut.time, 5) : bare(shared, cut.time, cut.cu, cut.time, 3);
      const Result expected = run(p, Form::recurrent), r = run(p, Form::scan);
      expect_ok(r, Form::scan);
      const double worse = subject.info->conditioning * (cut.time > 1000 ? 10 : 1);
      expect_near(r, expected, worse * form_tolerance(Type::f64), worse * form_gradient_tolerance(Type::f64), "scan");
    }
}

// Threads do not change what Form::best is, so its bits are those of one thread.
TEST(Scan, BestIsTheSameOnAnyNumberOfThreads) {
  for (const LayerInfo& info : layers()) {
    if (info.recipe.empty()) continue;
    for (const std::int64_t time : {8, 8192}) {
      Options one, many;
      many.threads = 8;
      const Shape shape{1, 1, 0, 16, 16};
      EXPECT_EQ(plan(info.name, shape, one).best_form(time), plan(info.name, shape, many).best_form(time))
          << info.name;
    }
  }
}

// A long call goes in blocks of time: its scratch does not grow, and it equals the recurrent form.
TEST(Scan, LongCallsHaveAFixedFootprint) {
  for (const std::string layer : {"hgrn", "gateloop", "mamba-1", "rg-lru", "gla"}) {
    Options options;
    options.threads = 2;
    const Plan two = plan(layer, {1, 1, 0, 4, 4}, options);
    EXPECT_EQ(two.footprint(1'000'000, Form::scan).workspace, two.footprint(100'000, Form::scan).workspace) << layer;
  }
  Options options;
  options.type = Type::f64, options.threads = 2;
  const Plan two = plan("rg-lru", {1, 1, 0, 4, 4}, options);
  const Problem p = batch_problem(two, 40'000, 0);
  const Result scan = run(p, Form::scan), expected = run(p, Form::recurrent);
  expect_ok(scan, Form::scan);
  expect_near(scan, expected, 1e-11, 1e-10, "scan");
}

}  // namespace
}  // namespace ttr_layer_test
