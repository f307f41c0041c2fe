#include "words.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace examples {
namespace {

/// A character of UTF-8 and its bytes; no bytes where the text does not begin with one.
struct character {
  unsigned code, bytes;
};

character first_of(std::string_view text) {
  unsigned const lead = static_cast<unsigned char>(text[0]);
  unsigned const bytes = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {0, 0};
  unsigned code = bytes == 1 ? lead : lead & (0x7FU >> bytes);
  for (unsigned i = 1; i < bytes; ++i) {
    unsigned const next = static_cast<unsigned char>(text[i]);
    if (next >> 6 != 2) return {0, 0};
    code = code << 6 | (next & 0x3F);
  }
  constexpr unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  bool const fits = code >= least[bytes] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return {code, fits ? bytes : 0};
}

/// What a terminal takes for a command, for the end of a line, or for another direction of writing.
bool is_control(unsigned code) {
  return code < ' ' || (code >= 0x7F && code < 0xA0) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string in_one_line(std::string_view text, std::size_t longest) {
  std::string line;
  while (!text.empty()) {
    character const next = first_of(text);
    std::size_t const bytes = std::max(next.bytes, 1U);
    if (line.size() + bytes > longest) return line + "...";
    if (next.bytes == 0 || is_control(next.code))
      line += '?';
    else
      line += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return line;
}

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

/// Insertions, deletions and replacements between two words, whatever their case.
std::size_t edits(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      std::size_t const kept = corner + (lower(left[i - 1]) == lower(right[j - 1]) ? 0U : 1U);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, kept});
    }
  }
  return row.back();
}

} // namespace

std::string shown_sentence(std::string_view sentence) { return in_one_line(sentence, 4000); }
std::string shown(std::string_view word) { return in_one_line(word, 60); }
std::string shown_path(std::string_view path) { return in_one_line(path, 240); }

std::string nearest(std::string_view word, std::span<std::string const> known) {
  word = word.substr(0, 64);
  std::string best;
  std::size_t fewest = word.size() + 1;
  for (std::string const& each : known) {
    std::size_t const needed = edits(word, each);
    // A word of which more than half is different was hardly meant.
    if (needed < fewest && needed <= std::max<std::size_t>(2, std::max(word.size(), each.size()) / 2))
      best = each, fewest = needed;
  }
  return best;
}

std::string listed(std::span<std::string const> words) {
  std::string text;
  for (std::string const& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string counted(long number, char const* one, char const* more) {
  return std::to_string(number) + " " + (number == 1 ? one : more);
}

} // namespace examples
