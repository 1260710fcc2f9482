#include "csv.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

using Rows = std::vector<std::vector<double>>;

CsvReader reader(const std::string& text, HeaderLine header = HeaderLine::automatic) {
  return CsvReader(ByteSource::from_text(text), header);
}

/// All good rows of a text; bad ones as their messages.
Rows read_all(CsvReader& csv, std::vector<std::string>* bad = nullptr) {
  std::vector<int> all;
  for (std::size_t c = 0; c < csv.names().size(); ++c) all.push_back(static_cast<int>(c));
  csv.select(all);
  Rows rows;
  std::vector<double> row(all.size());
  for (;;) {
    const RowSource::Read read = csv.next(row.data());
    if (read == RowSource::Read::end) return rows;
    if (read == RowSource::Read::row) rows.push_back(row);
    if (read == RowSource::Read::bad && bad) bad->push_back(csv.bad().message);
  }
}

std::string error_of(const std::string& text) {
  try {
    auto csv = reader(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Csv, HeaderIsFound) {
  auto csv = reader("a,b\n1,2\n3,4\n");
  EXPECT_TRUE(csv.has_header());
  EXPECT_EQ(csv.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_all(csv), (Rows{{1, 2}, {3, 4}}));
}

TEST(Csv, NumbersOnlyHaveNoHeader) {
  auto csv = reader("1,2\n3,4");
  EXPECT_FALSE(csv.has_header());
  EXPECT_EQ(csv.names(), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(read_all(csv), (Rows{{1, 2}, {3, 4}}));
}

TEST(Csv, AMissingNumberInTheFirstRowIsNotAHeader) {
  auto csv = reader("1,nan\n3,4\n");
  EXPECT_FALSE(csv.has_header());
  std::vector<std::string> bad;
  EXPECT_EQ(read_all(csv, &bad), (Rows{{3, 4}}));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_NE(bad[0].find("'nan' on line 1, column 2"), std::string::npos) << bad[0];
}

TEST(Csv, HeaderCanBeForced) {
  auto yes = reader("1,2\n3,4\n", HeaderLine::yes);
  EXPECT_EQ(read_all(yes), (Rows{{3, 4}}));
  auto no = reader("a,b\n3,4\n", HeaderLine::no);
  EXPECT_EQ(read_all(no), (Rows{{3, 4}}));
  EXPECT_EQ(no.rows_read(), 2);
}

TEST(Csv, Separators) {
  EXPECT_EQ(reader("a;b\n1;2\n").separator(), ';');
  EXPECT_EQ(reader("a\tb\n1\t2\n").separator(), '\t');
  EXPECT_EQ(reader("\"a;b\",c\n1,2\n").separator(), ',');
}

TEST(Csv, QuotesMarksAndLineEnds) {
  auto csv = reader("\xef\xbb\xbf\"x \"\"big\"\"\",\"y,\r\nz\"\r\n\"1.5\",\" 2 \"\r\n\r\n+3,-4e-1\r\n");
  EXPECT_EQ(csv.names(), (std::vector<std::string>{"x \"big\"", "y,\r\nz"}));
  EXPECT_EQ(read_all(csv), (Rows{{1.5, 2}, {3, -0.4}}));
}

TEST(Csv, LineNumbersCountLinesInsideQuotes) {
  auto csv = reader("\"a\nb\",c\n1,2\n\n3,x\n");
  std::vector<std::string> bad;
  read_all(csv, &bad);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_NE(bad[0].find("'x' on line 5, column 'c'"), std::string::npos) << bad[0];
}

TEST(Csv, BadRowsAreNamedAndPassed) {
  auto csv = reader("a,b\n1,2\n3\n4,5,6\nx,1\n1,\n1,inf\n1,1e999\n7,8\n1,\"2\n");
  std::vector<std::string> bad;
  EXPECT_EQ(read_all(csv, &bad), (Rows{{1, 2}, {7, 8}}));
  ASSERT_EQ(bad.size(), 7u);
  const char* parts[] = {"line 3 of text has 1 field ",
                         "line 4 of text has 3 fields",
                         "'x' on line 5, column 'a'",
                         "line 6, column 'b' of text is empty",
                         "'inf' on line 7",
                         "'1e999' on line 8",
                         "line 10 of text opens a quote"};
  for (std::size_t i = 0; i < bad.size(); ++i) EXPECT_NE(bad[i].find(parts[i]), std::string::npos) << bad[i];
}

TEST(Csv, NumbersAtTheEdgeOfDouble) {
  double x = 0;
  EXPECT_EQ(parse_number("1e-400", x), Parsed::number);
  EXPECT_EQ(x, 0);
  EXPECT_EQ(parse_number("4.9e-324", x), Parsed::number);
  EXPECT_GT(x, 0);
  EXPECT_EQ(parse_number("-1e309", x), Parsed::overflow);
  EXPECT_EQ(parse_number("1.7976931348623157e308", x), Parsed::number);
  EXPECT_EQ(parse_number("NaN", x), Parsed::not_finite);
  EXPECT_EQ(parse_number("-Infinity", x), Parsed::not_finite);
  EXPECT_EQ(parse_number(" ", x), Parsed::empty);
  for (const char* text : {"1,5", "1 2", "0x10", "--1", "+-1", "1e", "e5", "one", ".", "-"})
    EXPECT_EQ(parse_number(text, x), Parsed::text) << text;
}

TEST(Csv, EmptyInput) {
  EXPECT_NE(error_of("\n\n\r\n").find("no row"), std::string::npos);
  auto csv = reader("a,b\n");
  EXPECT_TRUE(read_all(csv).empty());
}

TEST(Csv, ZeroBytesAreRefused) {
  EXPECT_NE(error_of(std::string("ab\0cd,1\n", 8)).find("zero byte"), std::string::npos);
}

TEST(Csv, AFieldLargerThanABlock) {
  auto csv = reader("a,b\n\"" + std::string(3 << 20, 'x') + "\",2\n5,6\n");
  csv.select({1});
  double x = 0;
  EXPECT_EQ(csv.next(&x), RowSource::Read::row);
  EXPECT_EQ(x, 2);
  EXPECT_EQ(csv.next(&x), RowSource::Read::row);
  EXPECT_EQ(x, 6);
}

TEST(Csv, AnOpenQuoteDoesNotEatAllMemory) {
  auto csv = reader("a,b\n1,\"" + std::string(17 << 20, 'x'));
  double row[2];
  csv.select({0, 1});
  EXPECT_THROW(csv.next(row), Error);
}

TEST(Csv, RowsAcrossBlocks) {
  std::string text = "a,b\n";
  for (int i = 0; i < 200000; ++i) text += std::to_string(i) + "," + std::to_string(2 * i) + "\n";
  auto csv = reader(text);
  const Rows rows = read_all(csv);
  ASSERT_EQ(rows.size(), 200000u);
  for (int i = 0; i < 200000; ++i) ASSERT_EQ(rows[i], (std::vector<double>{1.0 * i, 2.0 * i}));
}

TEST(Csv, WrittenFieldsReadBack) {
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& raw) {
    std::vector<std::string> names = {"x"};
    for (const std::string& name : raw)
      if (!name.empty() && name.find('\0') == name.npos && name.front() != ' ' && name.back() != ' ')
        names.push_back(name);
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + csv_field(name);
    auto csv = reader(text + "\n", HeaderLine::yes);
    RC_ASSERT(csv.names() == names);
  }));
}

TEST(Csv, AnyBytesEitherReadOrAreRefused) {
  // Not a crash, not an endless loop, and every delivered number is finite.
  std::mt19937 random(5);
  const std::string alphabet = "01.,;\t\"\n\r-e x";
  for (int round = 0; round < 3000; ++round) {
    std::string text(random() % 60, ' ');
    for (char& c : text)
      c = random() % 8 == 0 ? static_cast<char>(random() % 256) : alphabet[random() % alphabet.size()];
    try {
      auto csv = reader(text);
      for (const auto& row : read_all(csv))
        for (double x : row) ASSERT_TRUE(std::isfinite(x));
    } catch (const Error&) {
    }
  }
}

TEST(Csv, ColumnsByNameNumberAndRange) {
  auto csv = reader("a,b,c,7\n1,2,3,4\n");
  EXPECT_EQ(find_columns({"b", "1"}, csv, "--keys"), (std::vector<int>{1, 0}));
  EXPECT_EQ(find_columns({"2-4"}, csv, "--keys"), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(find_columns({"a,c"}, csv, "--keys"), (std::vector<int>{0, 2}));
  EXPECT_EQ(find_columns({"7"}, csv, "--keys"), (std::vector<int>{3}));  // a name wins
  for (const char* word : {"z", "0", "5", "3-2", "", "a,", "-1"})
    EXPECT_THROW(find_columns({word}, csv, "--keys"), Error) << word;
  EXPECT_THROW(find_columns({"a", "1"}, csv, "--keys"), Error);
  auto commas = reader("\"a,b\",a,c\n1,2,3\n");
  EXPECT_EQ(find_columns({"a,b"}, commas, "--keys"), (std::vector<int>{0}));
  EXPECT_EQ(find_columns({"a", "b", "c"}, commas, "--keys"), (std::vector<int>{0, 2}));
  EXPECT_EQ(find_columns({"a,c"}, commas, "--keys"), (std::vector<int>{1, 2}));
  auto twins = reader("a,a\n1,2\n");
  EXPECT_THROW(find_columns({"a"}, twins, "--keys"), Error);
  EXPECT_EQ(find_columns({"2"}, twins, "--keys"), (std::vector<int>{1}));
}

TEST(Csv, MessagesShowValuesSafely) {
  EXPECT_EQ(shown_value("a\x01z"), "'a\\x01z'");
  EXPECT_EQ(shown_value(std::string(100, 'a')), "'" + std::string(40, 'a') + "...'");
}

TEST(ByteSourceTest, PeekDoesNotConsume) {
  auto source = ByteSource::from_text("hello");
  EXPECT_EQ(source.peek(3), "hel");
  EXPECT_EQ(source.peek(10), "hello");
  EXPECT_EQ(source.position(), 0);
  char data[10];
  EXPECT_EQ(source.read(data, 10), 5u);
  EXPECT_EQ(std::memcmp(data, "hello", 5), 0);
  EXPECT_EQ(source.read(data, 10), 0u);
}

}  // namespace
}  // namespace ttr::cli
