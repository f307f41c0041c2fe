#include "words.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace examples {
namespace {

std::string in_one_line(std::string_view text, std::size_t longest) {
  bool const cut = text.size() > longest;
  if (cut) {
    // Not within a character of UTF-8.
    while (longest > 0 && (static_cast<unsigned char>(text[longest]) & 0xC0) == 0x80) --longest;
    text = text.substr(0, longest);
  }
  std::string line;
  for (char const each : text) line += static_cast<unsigned char>(each) < ' ' || each == '\x7f' ? '?' : each;
  return line + (cut ? "..." : "");
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
