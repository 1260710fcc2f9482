// `ttr serve` without sockets: the store, its log, and what a stranger may send.
#include "serve_api.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "random.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

class Serve : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ttr-serve-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  // A server that was started, and is gone without a word when it goes out of scope: nothing is saved.
  struct Server {
    explicit Server(const std::string& folder_, ModelStore::Limits limits = {}, std::string token = "")
        : store(folder_, false, limits), api(store, metrics, std::move(token)) {}
    ModelStore store;
    ServeMetrics metrics;
    ServeApi api;
    ApiResponse ask(std::string_view method, std::string_view path, std::string_view body = "",
                    std::string_view type = "application/json") {
      return api.answer({method, path, body, type, "", "localhost:8321", ""});
    }
  };
  static std::string row(int i, bool with_value = true) {
    const double x = std::sin(0.7 * i), z = std::cos(1.3 * i);
    return with_value ? fmt::format("{{\"x\": {}, \"z\": {}, \"y\": {}}}", x, z, 2 * x - z + 0.1 * std::sin(5.1 * i))
                      : fmt::format("{{\"x\": {}, \"z\": {}}}", x, z);
  }
  static constexpr const char* model = R"({"keys": ["x", "z"], "values": ["y"], "layers": ["nlms", "rls", "mix"]})";
  std::string folder;
};

TEST_F(Serve, MakesLearnsPredictsDescribesDeletes) {
  Server s(folder);
  EXPECT_EQ(s.ask("PUT", "/models/a", model).status, 201);
  EXPECT_EQ(s.ask("PUT", "/models/a", model).status, 409);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(s.ask("POST", "/models/a/learn", row(i)).status, 200);
  const ApiResponse answer = s.ask("POST", "/models/a/predict", row(50, false));
  EXPECT_EQ(answer.status, 200);
  const Json json = Json::parse(answer.body, "answer");
  EXPECT_EQ(json.at("row").number(), 51);
  const double actual = 2 * std::sin(35.0) - std::cos(65.0);
  EXPECT_NEAR(json.at("predictions").at("rls").number(), actual, 0.3);
  EXPECT_FALSE(json.at("predictions").at("mix").is_null());
  EXPECT_EQ(Json::parse(s.ask("GET", "/models/a").body, "model").at("rows").number(), 50);
  EXPECT_EQ(s.ask("GET", "/models").body, "{\"models\":[\"a\"]}\n");
  EXPECT_NE(s.ask("GET", "/metrics").body.find("\nttr_rows_learned_total 50\n"), std::string::npos);
  EXPECT_EQ(s.ask("GET", "/health").status, 200);
  EXPECT_EQ(s.ask("DELETE", "/models/a").status, 200);
  EXPECT_EQ(s.ask("POST", "/models/a/learn", row(1)).status, 404);
  EXPECT_FALSE(std::filesystem::exists(folder + "/a.ttr"));
}

// Questions in between, blocks of rows, lines and single rows: the same bits.
TEST_F(Serve, QuestionsLeaveNoTrace) {
  Server s(folder);
  s.ask("PUT", "/models/a", model), s.ask("PUT", "/models/b", model);
  for (int i = 0; i < 1100; ++i) {  // beyond the last change of units
    const std::string plain = s.ask("POST", "/models/a/learn", row(i)).body;
    if (i % 3 == 0)
      for (int q = 0; q < 2; ++q) s.ask("POST", "/models/b/predict", row(1000 + i + q, false));
    ASSERT_EQ(s.ask("POST", "/models/b/learn", row(i)).body, plain) << i;
  }
  EXPECT_EQ(s.ask("POST", "/models/a/predict", row(7)).body, s.ask("POST", "/models/b/predict", row(7)).body);
}

TEST_F(Serve, QuestionsOfSeriesCategoriesAndGroupsLeaveNoTrace) {
  const char* const makes[] = {
      R"({"values": ["y"], "lags": 3, "season": 4, "layers": ["rls"]})",
      R"({"keys": ["x"], "categories": ["place"], "category_slots": 2, "values": ["y"], "layers": ["rls"]})",
      R"({"keys": ["x"], "missing": "mean", "values": ["y"], "layers": ["rls"], "interval": 0.9})",
      R"({"keys": ["x"], "values": ["place"], "classify": true, "classes": ["here", "there"]})"};
  Server s(folder);
  int n = 0;
  for (const char* make : makes) {
    const std::string a = fmt::format("a{}", ++n), b = fmt::format("b{}", n);
    ASSERT_EQ(s.ask("PUT", "/models/" + a, make).status, 201) << s.ask("PUT", "/models/" + a, make).body;
    s.ask("PUT", "/models/" + b, make);
    for (int i = 0; i < 40; ++i) {
      const auto text = [](int k, const char* place) {
        return fmt::format("{{\"x\": {}, \"y\": {}, \"place\": \"{}\"}}", std::sin(k), std::cos(2.0 * k), place);
      };
      const char* const place = i % 3 == 0 ? "here" : "there";
      s.ask("POST", "/models/" + b + "/predict", text(i + 3, n == 4 ? "here" : "nowhere"));
      s.ask("POST", "/models/" + b + "/predict", R"({"x": null})");
      ASSERT_EQ(s.ask("POST", "/models/" + b + "/learn", text(i, place)).body,
                s.ask("POST", "/models/" + a + "/learn", text(i, place)).body)
          << make << i;
    }
  }
}

// What was acknowledged is there after the process has gone, wherever the log ends.
TEST_F(Serve, ModelsComeBackFromTheLog) {
  std::string before, description;
  {
    Server s(folder);
    s.ask("PUT", "/models/a", model), s.ask("PUT", "/models/b", model), s.ask("PUT", "/models/gone", model);
    for (int i = 0; i < 30; ++i) s.ask("POST", "/models/a/learn", row(i));
    s.ask("POST", "/save");
    for (int i = 30; i < 60; ++i) s.ask("POST", "/models/a/learn", row(i)), s.ask("POST", "/models/b/learn", row(i));
    s.ask("POST", "/models/a/learn", R"({"x": "no number", "z": 1, "y": 2})");  // bad, and so it is again
    s.ask("DELETE", "/models/gone");
    s.ask("DELETE", "/models/b"), s.ask("PUT", "/models/b", model);  // another model of the same name
    s.ask("POST", "/models/b/learn", row(5));
    before = s.ask("POST", "/models/a/predict", row(99)).body + s.ask("POST", "/models/b/predict", row(99)).body;
  }
  for (int times = 0; times < 2; ++times) {  // a start that is cut off does no harm either
    Server s(folder);
    EXPECT_EQ(s.store.replayed(), times == 0 ? 32 : 0);
    EXPECT_EQ(s.ask("POST", "/models/a/predict", row(99)).body + s.ask("POST", "/models/b/predict", row(99)).body,
              before);
    EXPECT_EQ(s.ask("GET", "/models/gone").status, 404);
  }
}

TEST_F(Serve, ALogThatIsCutOffAnywhereLosesTheLastRowsAlone) {
  std::vector<std::string> answers;
  std::string log;
  {
    Server s(folder);
    s.ask("PUT", "/models/a", model);
    for (int i = 0; i < 12; ++i)
      s.ask("POST", "/models/a/learn", row(i)), answers.push_back(s.ask("POST", "/models/a/predict", row(50)).body);
  }
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".log") log = file.path().string();
  std::ifstream in(log, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const std::filesystem::path kept = folder + "-model";
  std::filesystem::copy_file(folder + "/a.ttr", kept);
  SplitMix random(5);
  for (int trial = 0; trial < 60; ++trial) {
    std::string text =
        whole.substr(0, static_cast<std::size_t>(random.uniform() * static_cast<double>(whole.size() + 1)));
    const bool damaged = trial % 2 == 1 && text.size() > 20;
    if (damaged) text[text.size() - 1 - static_cast<std::size_t>(random.uniform() * 12)] ^= 0x10;
    for (const auto& file : std::filesystem::directory_iterator(folder))
      if (file.path().extension() == ".log") std::filesystem::remove(file.path());
    std::filesystem::copy_file(kept, folder + "/a.ttr", std::filesystem::copy_options::overwrite_existing);
    std::ofstream(log, std::ios::binary) << text;
    if (damaged && text.substr(0, 8) != whole.substr(0, 8)) continue;
    Server s(folder);
    const auto rows = static_cast<std::size_t>(Json::parse(s.ask("GET", "/models/a").body, "a").at("rows").number());
    ASSERT_LE(rows, answers.size());
    if (rows > 0) {
      EXPECT_EQ(s.ask("POST", "/models/a/predict", row(50)).body, answers[rows - 1]);
    }
  }
  std::filesystem::remove(kept);
}

TEST_F(Serve, OneServerPerFolder) {
  Server s(folder);
  EXPECT_THROW(Server(folder, {}, ""), Error);
}

TEST_F(Serve, TokensHostsAndPagesOfBrowsers) {
  Server open(folder);
  const auto status = [](Server& s, std::string_view host, std::string_view origin, std::string_view authorization) {
    return s.api.answer({"GET", "/models", "", "", authorization, host, origin}).status;
  };
  EXPECT_EQ(status(open, "localhost:1", "", ""), 200);
  EXPECT_EQ(status(open, "127.0.0.1", "", ""), 200);
  EXPECT_EQ(status(open, "[::1]:8321", "", ""), 200);
  EXPECT_EQ(status(open, "evil.example", "", ""), 403);
  EXPECT_EQ(status(open, "", "", ""), 403);
  EXPECT_EQ(status(open, "localhost", "http://evil.example", ""), 403);
  const std::string other = folder + "/token";
  Server closed(other, {}, "0123456789abcdef");
  EXPECT_EQ(status(closed, "localhost", "", ""), 401);
  EXPECT_EQ(status(closed, "localhost", "", "Bearer 0123456789abcdeg"), 401);
  EXPECT_EQ(status(closed, "localhost", "", "Bearer 0123456789abcde"), 401);
  EXPECT_EQ(status(closed, "anywhere.example", "http://a.example", "Bearer 0123456789abcdef"), 200);
  EXPECT_EQ(closed.api.answer({"GET", "/health", "", "", "", "", ""}).status, 200);
}

TEST_F(Serve, BadRequestsGetASentence) {
  Server s(folder, {2, 1 << 20});
  EXPECT_EQ(s.ask("PUT", "/models/a", model).status, 201);
  const struct {
    const char *method, *path, *body;
    int status;
    const char* words;
  } cases[] = {
      {"PUT", "/models/..", model, 400, "name"},
      {"PUT", "/models/b", "{", 400, "not JSON"},
      {"PUT", "/models/b", "[]", 400, "object"},
      {"PUT", "/models/b", R"({"values": ["y"]})", 400, "nothing is left to predict it from"},
      {"PUT", "/models/b", R"({"keys": ["x"]})", 400, "values"},
      {"PUT", "/models/b", R"({"keys": ["x"], "values": ["y"], "layers": ["nlsm"]})", 400, "nlms"},
      {"PUT", "/models/b", R"({"keys": ["x"], "values": ["y"], "layer": ["nlms"]})", 400, "layers"},
      {"PUT", "/models/b", R"({"keys": ["x"], "values": ["y"], "lags": -1})", 400, "lags"},
      {"PUT", "/models/b", R"({"keys": ["x"], "values": ["y"], "horizon": 1e300})", 400, "whole number"},
      {"PUT", "/models/b", R"({"keys": ["x"], "values": ["y"], "window": 0})", 400, "--window 0 is out of range"},
      {"PUT", "/models/b", R"({"keys": ["x"], "values": ["y"], "classify": true})", 400, "--classes"},
      {"POST", "/models/a/learn", "", 400, "not JSON"},
      {"POST", "/models/a/learn", "{\"x\": NaN}", 400, "not JSON"},
      {"POST", "/models/a/learn", "{\"x\": 1e999, \"z\": 1, \"y\": 1}", 400, "JSON"},
      {"POST", "/models/a/learn", "{\"x\": {\"a\": 1}}", 400, "numbers, texts and null"},
      {"POST", "/models/a/learn", "{\"x\": 1}", 400, "'z' is missing"},
      {"POST", "/models/a/learn", "{\"x\": \"one\", \"z\": 1}", 400, "is not a number"},
      {"POST", "/models/a/learn", "7", 400, "a row is an object"},
      {"GET", "/models/a/learn", "", 405, "POST"},
      {"PATCH", "/models/a", "", 405, "PUT"},
      {"GET", "/nothing", "", 404, "there is no GET /nothing"},
      {"POST", "/models/none/learn", "{}", 404, "there is no model"},
  };
  for (const auto& one : cases) {
    const ApiResponse response = s.ask(one.method, one.path, one.body);
    EXPECT_EQ(response.status, one.status) << one.path << " " << one.body << response.body;
    EXPECT_NE(Json::parse(response.body, "response").at("error").at("message").text().find(one.words),
              std::string::npos)
        << one.body << response.body;
  }
  EXPECT_EQ(s.ask("PUT", "/models/b", model).status, 201);
  EXPECT_EQ(s.ask("PUT", "/models/c", model).status, 507);
  // Nothing of this was learned.
  EXPECT_EQ(Json::parse(s.ask("POST", "/models/a/learn", row(0)).body, "row").at("predictions").at("rls").number(),
            0);
}

// Texts that were made of pieces of requests: whatever they are, there is an answer, and a model that goes on.
// As tests/regress_values_cli_test.sh: every option of a model is listed here, and those that take a column are given
// that of the value. Such a model is refused, or a row's answer does not depend on its value.
TEST_F(Serve, NoOptionHandsAValueToItsPrediction) {
  const std::vector<std::string> columns = {"keys", "values", "with", "dates", "categories", "group", "weights"};
  const std::vector<std::string> others = {"layers",   "lags",        "horizon", "category_slots", "missing",
                                           "classify", "classes",     "delay",   "iterate",        "raw",
                                           "bias",     "standardize", "tune",    "diff",           "fourier",
                                           "season",   "warmup",      "window",  "interval"};
  Server s(folder);
  const std::string body = s.ask("PUT", "/models/a", R"({"values": ["y"], "nonsense": 1})").body;
  std::string list = body.substr(body.find("there are ") + 10);
  list = list.substr(0, list.find('"'));
  std::set<std::string> there, listed(columns.begin(), columns.end());
  listed.insert(others.begin(), others.end());
  std::string word;
  for (const char c : list + ",") {
    if (c == ' ' || c == ',') {
      if (!word.empty() && word != "and") there.insert(word);
      word.clear();
    } else {
      word += c;
    }
  }
  EXPECT_EQ(there, listed);

  int n = 0, honest = 0;
  for (const std::string& column : columns)
    for (const char* time : {R"("horizon": 0)", R"("horizon": 1)", R"("delay": 2)", R"("horizon": 1, "delay": 2)"}) {
      if (column == "values") continue;
      const std::string keys = column == "keys" ? "" : R"("keys": ["x"], )";
      const std::string make =
          fmt::format(R"({{{}"values": ["y"], "layers": ["rls"], {}, "{}": "y"}})", keys, time, column);
      const std::string a = fmt::format("a{}", ++n), b = fmt::format("b{}", n);
      const ApiResponse made = s.ask("PUT", "/models/" + a, make);
      if (made.status != 201) {
        EXPECT_EQ(made.status, 400);
        EXPECT_TRUE(made.body.find("column 'y'") != std::string::npos ||
                    made.body.find("value 'y'") != std::string::npos)
            << make << made.body;
        continue;
      }
      ASSERT_EQ(s.ask("PUT", "/models/" + b, make).status, 201);
      for (int i = 0; i < 60; ++i) {
        const auto text = [&](int y) { return fmt::format(R"({{"x": {}, "y": {}}})", std::sin(0.7 * i), y); };
        const int y = 1 + i * i % 7;
        const std::string one = s.ask("POST", "/models/" + a + "/learn", text(y)).body;
        const std::string other = s.ask("POST", "/models/" + b + "/learn", text(i == 59 ? y + 3 : y)).body;
        // An answer that is one for a later row may know the value of this one.
        if (std::string_view(time).find(R"("horizon": 1)") == std::string_view::npos || i < 59) {
          ASSERT_EQ(one, other) << make << i;
        }
      }
      ++honest;
    }
  EXPECT_GE(honest, 8);
}

TEST_F(Serve, RandomBytesAreAnswered) {
  Server s(folder);
  s.ask("PUT", "/models/a", model);
  const std::string pieces[] = {"{",     "}",         "[",   "]",       "\"x\"",    ":",
                                ",",     "1",         "-",   "e",       "999",      "null",
                                "true",  "\"",        "\\",  "\\u0000", "\n",       " ",
                                "\"y\"", "\"z\"",     "nan", "\xff",    "\xc3\x28", std::string("\0", 1),
                                "0.5",   "\"models\""};
  const char* const paths[] = {
      "/models/a/learn", "/models/a/predict", "/models/b", "/models/a", "/models//learn", "//", "/models/a/save"};
  const char* const methods[] = {"GET", "PUT", "POST", "DELETE", "", "PO\nST"};
  SplitMix random(11);
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random.uniform() * static_cast<double>(n)) % n;
  };
  for (int trial = 0; trial < 3000; ++trial) {
    std::string body;
    for (std::size_t n = below(30); n > 0; --n) body += pieces[below(std::size(pieces))];
    const char* const path = paths[below(std::size(paths))];
    const std::string method = methods[below(std::size(methods))];
    if (method == "DELETE") continue;
    const ApiResponse response = s.ask(method, path, body, trial % 2 ? "application/json" : "application/x-ndjson");
    ASSERT_NE(response.status, 500) << method << path << body << response.body;
  }
  EXPECT_EQ(s.ask("POST", "/models/a/learn", std::string(1 << 20, '[')).status, 400);
  EXPECT_EQ(s.ask("POST", "/models/a/learn", std::string(100000, '[') + std::string(100000, ']')).status, 400);
  EXPECT_EQ(s.ask("POST", "/models/a/learn", row(1)).status, 200);
}

// Many threads, many models, saving all the while: nothing is lost, and each model has what it would have alone.
TEST_F(Serve, ThreadsDoNotDisturbEachOther) {
  std::string alone, together;
  {
    Server s(folder, {100, 20000});  // the log is long after a hundred rows
    for (int m = 0; m < 4; ++m) s.ask("PUT", fmt::format("/models/m{}", m), model);
    std::vector<std::thread> team;
    for (int m = 0; m < 4; ++m)
      team.emplace_back([&, m] {
        for (int i = 0; i < 150; ++i) {
          s.ask("POST", fmt::format("/models/m{}/learn", m), row(i));
          s.ask("POST", fmt::format("/models/m{}/predict", (m + 1) % 4), row(i));
          if (i % 10 == 0) s.ask("GET", "/metrics"), s.ask("GET", "/models");
          if (s.store.log_is_long()) s.store.save_all();
        }
      });
    for (std::thread& one : team) one.join();
  }
  Server s(folder);
  s.ask("PUT", "/models/alone", model);
  for (int i = 0; i < 150; ++i) s.ask("POST", "/models/alone/learn", row(i));
  const std::string expected = s.ask("POST", "/models/alone/predict", row(200)).body;
  for (int m = 0; m < 4; ++m)
    EXPECT_EQ(s.ask("POST", fmt::format("/models/m{}/predict", m), row(200)).body, expected);
}

TEST_F(Serve, LinesAreAnsweredOneByOne) {
  Server s(folder);
  s.ask("PUT", "/models/a", model), s.ask("PUT", "/models/b", model);
  const std::string lines = row(0) + "\n\n" + row(1) + "\r\n{oops\n" + row(2);
  const ApiResponse answer = s.ask("POST", "/models/a/learn", lines, "application/x-ndjson");
  std::string expected;
  for (int i = 0; i < 2; ++i) expected += s.ask("POST", "/models/b/learn", row(i)).body;
  expected += "{\"error\":{\"message\":\"the row is not JSON\"}}\n" + s.ask("POST", "/models/b/learn", row(2)).body;
  EXPECT_EQ(answer.body, expected);
}

}  // namespace
}  // namespace ttr::cli
