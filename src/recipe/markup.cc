// Plain rendering of the LaTeX subset: commands become words or marks (\top a prime, \le <=, \odot *), braces around
// single characters go, everything else stays as it is. Unknown commands keep their name, so greek letters read well.
#include "recipe/markup.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace ttr {
namespace {

constexpr std::pair<std::string_view, std::string_view> plain_words[] = {
    {"top", "'"},     {"le", "<="},     {"ge", ">="},     {"ne", "!="},        {"cdot", "."},
    {"odot", " * "},  {"lVert", "|"},   {"rVert", "|"},   {"leftarrow", "<-"}, {"to", "->"},
    {"infty", "inf"}, {"ldots", "..."}, {"cdots", "..."}, {"nabla", "grad"},   {"quad", "  "},
    {"ell", "l"},     {"times", "x"},   {"left", ""},     {"right", ""}};

/// Reads {...} at `at` (or one character) and moves behind it.
std::string_view group(std::string_view math, std::size_t& at) {
  while (at < math.size() && math[at] == ' ') ++at;
  if (at >= math.size()) return {};
  if (math[at] != '{') return math.substr(at++, 1);
  int depth = 0;
  const std::size_t begin = at + 1;
  for (; at < math.size(); ++at) {
    if (math[at] == '{') ++depth;
    if (math[at] == '}' && --depth == 0) return math.substr(begin, at++ - begin);
  }
  return math.substr(begin);
}

std::string plain_math(std::string_view math) {
  std::string out;
  const auto ends_with_letter = [&out] {
    return !out.empty() && std::isalnum(static_cast<unsigned char>(out.back())) != 0;
  };
  const auto is_factor = [&] { return ends_with_letter() || (!out.empty() && out.back() == ')'); };
  for (std::size_t i = 0; i < math.size();) {
    const char c = math[i];
    if (c != '\\') {
      if (c == '^' && math.substr(i, 5) == "^\\top") {
        out += '\'';
        i += 5;
      } else if ((c == '_' || c == '^') && i + 3 < math.size() && math[i + 1] == '{' && math[i + 3] == '}') {
        out += c;
        out += math[i + 2];
        i += 4;
      } else {
        out += c;
        ++i;
      }
      continue;
    }
    ++i;
    if (i < math.size() && !std::isalpha(static_cast<unsigned char>(math[i]))) {
      const char mark = math[i++];
      out += mark == ',' || mark == ';' || mark == ' ' ? " " : std::string(1, mark);
      continue;
    }
    const std::size_t begin = i;
    while (i < math.size() && std::isalpha(static_cast<unsigned char>(math[i]))) ++i;
    std::string_view name = math.substr(begin, i - begin);
    if (name == "tfrac" && math.substr(i, 2) == "12") {
      out += "1/2 ";
      i += 2;
    } else if (name == "tilde") {
      out += plain_math(group(math, i)) + "~";
    } else if (name == "cdot" && is_factor()) {  // between factors; alone it is a place for an argument: kappa(k, .)
      out += '*';
      if (i < math.size() && math[i] == ' ') ++i;
    } else if (name == "sqrt") {
      out += "sqrt(" + plain_math(group(math, i)) + ")";
    } else if (name == "binom") {
      const std::string top = plain_math(group(math, i));
      out += "C(" + top + "," + plain_math(group(math, i)) + ")";
    } else if (name == "mathrm" || name == "operatorname" || name == "text" || name == "mathbb") {
      if (name != "text" && ends_with_letter()) out += ' ';
      out += plain_math(group(math, i));
    } else {
      std::string_view word = name;
      bool letters = true;
      for (const auto& [latex, ascii] : plain_words)
        if (latex == name) word = ascii, letters = false;
      if (letters && ends_with_letter()) out += ' ';
      out += word;
      const bool tight = name == "le" || name == "ge" || name == "lVert" || name == "nabla";
      if (tight && i < math.size() && math[i] == ' ') ++i;
      // A space after a LaTeX command only ends its name, unless plain letters would run together.
      if (i < math.size() && math[i] == ' ' && i + 1 < math.size() && math[i + 1] != '\\' &&
          !std::isalnum(static_cast<unsigned char>(math[i + 1])) && letters)
        ++i, out += ' ';
    }
  }
  return out;
}

std::string single_spaced(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' || out.empty() || out.back() != ' ') out += c;
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

std::string render(std::string_view markup, Notation notation) {
  if (notation == Notation::latex) return std::string(markup);
  std::string out;
  while (!markup.empty()) {
    const std::size_t open = std::min(markup.find('$'), markup.size());
    out += markup.substr(0, open);
    markup.remove_prefix(std::min(open + 1, markup.size()));
    const std::size_t close = std::min(markup.find('$'), markup.size());
    out += plain_math(markup.substr(0, close));
    markup.remove_prefix(std::min(close + 1, markup.size()));
  }
  return single_spaced(out);
}

std::string prose(std::string_view text, Notation notation) {
  if (notation == Notation::plain) return std::string(text);
  std::string out;
  bool code = false;
  for (const char c : text) {
    switch (c) {
      case '`':
        out += code ? "}" : "\\texttt{", code = !code;
        break;
      case '_':
      case '%':
      case '#':
      case '&':
      case '{':
      case '}':
      case '$':
        out += '\\', out += c;
        break;
      case '^':
        out += "\\^{}";
        break;
      case '~':
        out += "\\~{}";
        break;
      case '\\':
        out += "\\textbackslash{}";
        break;
      case '|':
        out += "$|$";
        break;
      case '<':
        out += "$<$";
        break;
      case '>':
        out += "$>$";
        break;
      case '*':
        out += "$*$";
        break;
      default:
        out += c;
    }
  }
  return code ? out + "}" : out;
}

}  // namespace ttr
