#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace train_moe {

/// A word that a user typed, fit for a sentence in one line.
inline std::string as_typed(std::string_view word) {
  constexpr std::size_t longest = 60;
  std::string text = "'";
  for (char const each : word.substr(0, longest)) text += static_cast<unsigned char>(each) < ' ' ? '?' : each;
  return text + (word.size() > longest ? "...'" : "'");
}

/// A path, fit for a sentence in one line.
inline std::string shown(std::filesystem::path const& path) {
  constexpr std::size_t longest = 240;
  std::string text = path.string();
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  for (char& each : text)
    if (static_cast<unsigned char>(each) < ' ') each = '?';
  return text;
}

/// Insertions, deletions and replacements between two words.
inline std::size_t distance_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      auto const replaced = diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

/// The known word that `word` is most probably meant to be; empty where none is near.
inline std::string nearest(std::string_view word, std::span<std::string const> known) {
  std::string best;
  // A word of which more than half is different was hardly meant.
  auto within = std::max<std::size_t>(2, word.size() / 2);
  for (auto const& each : known)
    if (auto const distance = distance_between(word, each); distance < within + (best.empty() ? 1 : 0)) {
      best = each;
      within = distance;
    }
  return best;
}

} // namespace train_moe
