#include "npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::string file(const std::string& dict, const std::string& data, int version = 1) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version), text += '\0';
  const std::size_t n = dict.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(n >> (8 * i) & 0xff);
  return text + dict + data;
}

std::string header(const std::string& type, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

template <class T>
std::string bytes(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::vector<std::vector<double>> rows_of(const std::string& text) {
  NpyReader npy(ByteSource::from_text(text));
  std::vector<int> all;
  for (std::size_t c = 0; c < npy.names().size(); ++c) all.push_back(static_cast<int>(c));
  npy.select(all);
  std::vector<std::vector<double>> rows;
  std::vector<double> row(all.size());
  for (;;) {
    const auto read = npy.next(row.data());
    if (read == RowSource::Read::end) return rows;
    if (read == RowSource::Read::row) rows.push_back(row);
  }
}

std::string error_of(const std::string& text) {
  try {
    rows_of(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

using Rows = std::vector<std::vector<double>>;

TEST(Npy, EveryType) {
  const Rows expected = {{1, -2, 3}, {4, 5, 6}};
  EXPECT_EQ(rows_of(file(header("<f8", "(2, 3)"), bytes<double>({1, -2, 3, 4, 5, 6}))), expected);
  EXPECT_EQ(rows_of(file(header("<f4", "(2, 3)"), bytes<float>({1, -2, 3, 4, 5, 6}), 2)), expected);
  EXPECT_EQ(rows_of(file(header("<i4", "(2, 3)"), bytes<std::int32_t>({1, -2, 3, 4, 5, 6}), 3)), expected);
  EXPECT_EQ(rows_of(file(header("<i8", "(2, 3)"), bytes<std::int64_t>({1, -2, 3, 4, 5, 6}))), expected);
}

TEST(Npy, OneAxisIsOneColumn) {
  EXPECT_EQ(rows_of(file(header("<f8", "(3,)"), bytes<double>({1, 2, 3}))), (Rows{{1}, {2}, {3}}));
  // With one column the order of axes does not matter.
  EXPECT_EQ(rows_of(file(header("<f8", "(2, 1)", "True"), bytes<double>({1, 2}))), (Rows{{1}, {2}}));
}

TEST(Npy, WhatCannotBeReadIsSaid) {
  const std::string six = bytes<double>({1, 2, 3, 4, 5, 6});
  const std::pair<std::string, std::string> cases[] = {
      {file(header("<f8", "(2, 3)", "True"), six), "Fortran order"},
      {file(header(">f8", "(2, 3)"), six), "big endian"},
      {file(header("<c16", "(1, 3)"), six), "'<c16'"},
      {file(header("|b1", "(2, 3)"), six), "'|b1'"},
      {file(header("<f8", "(1, 2, 3)"), six), "3 axes"},
      {file(header("<f8", "()"), six), "0 axes"},
      {file(header("<f8", "(0, 3)"), ""), "empty array"},
      {file(header("<f8", "(3, 3)"), six), "ends after row 2"},
      {file("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }\n", six), "named fields"},
      {file("{}\n", six), "damaged"},
      {file(header("<f8", "(2, x)"), six), "unreadable shape"},
      {file(header("<f8", "(2, 3)"), six).substr(0, 30), "cut off"},
      {file(header("<f8", "(2, 3)"), six, 9), "version 9"}};
  for (const auto& [text, part] : cases)
    EXPECT_NE(error_of(text).find(part), std::string::npos) << part << ": " << error_of(text);
}

TEST(Npy, NumbersThatAreNotFiniteAreBadRows) {
  const double inf = std::numeric_limits<double>::infinity();
  NpyReader npy(ByteSource::from_text(file(header("<f8", "(2, 2)"), bytes<double>({1, inf, 3, 4}))));
  npy.select({0, 1});
  double row[2];
  EXPECT_EQ(npy.next(row), RowSource::Read::bad);
  EXPECT_EQ(npy.bad().where, "row 1, column 2");
  EXPECT_EQ(npy.next(row), RowSource::Read::row);
  EXPECT_EQ(row[1], 4);
}

TEST(Npy, HeaderLengthDoesNotDependOnTheRows) {
  const std::string small = npy_header(0, 3), large = npy_header(std::numeric_limits<std::int64_t>::max(), 3);
  EXPECT_EQ(small.size(), large.size());
  EXPECT_EQ(small.size() % 64, 0u);
  EXPECT_EQ(rows_of(npy_header(2, 3) + bytes<double>({1, 2, 3, 4, 5, 6})), (Rows{{1, 2, 3}, {4, 5, 6}}));
}

TEST(Npy, DamagedFilesAreRefusedNotTrusted) {
  const std::string good = file(header("<f8", "(2, 3)"), bytes<double>({1, 2, 3, 4, 5, 6}));
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) text[6 + random() % (text.size() - 6)] = static_cast<char>(random() % 256);
    text.resize(random() % 4 == 0 ? random() % text.size() : text.size());
    try {
      for (const auto& row : rows_of(text))
        for (double x : row) ASSERT_TRUE(std::isfinite(x));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ttr::cli
